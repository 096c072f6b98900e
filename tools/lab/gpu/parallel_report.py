# SPDX-License-Identifier: Apache-2.0
"""Part report of parallel.py: ResNet-18 on CIFAR-10 from data to report, on all GPUs and on one, for several seeds.

OUT/report/N_gpus/resnet18-seedS are run directories: what is finished is not repeated, what was stopped goes on where it stopped.
"""
import statistics
import sys

import accuracy_plan
import final_table
import gpus
import markdown
import octet_runs
import parallel_runs

NETWORK = "resnet18"
WITHIN = 2  # standard errors of the difference of two means


class Runs(octet_runs.Runner):
    """Of `count` processes each."""

    def __init__(self, count, options):
        super().__init__(options.octet, options.device, options.minutes)
        self.count = count

    def training(self, job):
        return [*super().training(job), *(["--gpus", str(self.count)] if self.count > 1 else [])]


def jobs(options, count):
    folder = options.out / ("report_dry" if options.dry else "report") / f"{count}_gpus"
    settings = [f"data.path={options.data.resolve()}", f"evaluate.engines=[{options.device}]"]
    if options.device == "cpu":
        settings += ["train.precision=fp32", "qat.precision=fp32"]
    if options.dry:
        settings += [*accuracy_plan.DRY, "data.limit_test=256"]
    return [accuracy_plan.Job(accuracy_plan.run_folder(folder, NETWORK, seed), NETWORK, [*settings, *accuracy_plan.of_network(options.set, NETWORK), f"seed={seed}"],
                              keep="int8.safetensors") for seed in options.seeds]


def finished(options, count):
    """What the reports say, by seed."""
    read = [final_table.read_run(job.folder) for job in jobs(options, count)]
    return [run for run in read if run is not None]


def table(options):
    rows = [[str(count), str(run["seed"]), f"{run['top1']['float']:.2f}", f"{run['top1']['int8']:.2f}", f"{run['compared_codes']:,}",
             final_table.differing([run]), f"{run['seconds']:.0f}", ", ".join(f"{speed:,.0f}" for speed in run["images_per_second"].values())]
            for count in (1, options.count) for run in finished(options, count)]
    return markdown.table(["GPUs", "seed", "float", "int8", "codes compared", "differing", "seconds", "images/s: float, QAT"], rows)


def summary(runs):
    return {"seeds": [run["seed"] for run in runs], **{what: [round(run["top1"][what], 2) for run in runs] for what in ("float", "int8")},
            "compared_codes": sum(run["compared_codes"] for run in runs),
            "differing_codes": sum(sum(run["differing_codes"].values()) for run in runs)}


def apart(one, several):
    """Of accuracies by seed: the difference of their means, in points, beside its standard error. One seed says nothing: None."""
    difference = statistics.fmean(several) - statistics.fmean(one)
    if len(one) < 2:
        return {"points": round(difference, 3), "standard_error": None, "within": None}
    error = sum(statistics.variance(values) / len(values) for values in (one, several)) ** 0.5
    return {"points": round(difference, 3), "standard_error": round(error, 3), "within": abs(difference) <= WITHIN * error}


def report(options):
    """Good: all are finished, no code differs, and means over the seeds are no further apart than twice what their scatter explains,
    which one seed cannot say."""
    if not (options.data / "test_batch.bin").exists():
        raise parallel_runs.Failed(f"{options.data}: no test_batch.bin of CIFAR-10 there (--data)")
    together, alone = Runs(options.count, options), Runs(1, options)
    gpus.share(jobs(options, options.count), [None], together.run, together.late)
    gpus.share(jobs(options, 1), options.visible or [None], alone.run, alone.late)
    print(table(options), file=sys.stderr, flush=True)
    one, all_ = summary(finished(options, 1)), summary(finished(options, options.count))
    problems = together.problems + alone.problems
    result = {"one": one, "all": all_, "problems": problems, "finished": one["seeds"] == all_["seeds"] == options.seeds}
    if not result["finished"]:
        return {"good": False, **result}
    alike = {what: apart(one[what], all_[what]) for what in ("float", "int8")}
    exact = all(row["compared_codes"] > 0 and row["differing_codes"] == 0 for row in (one, all_))
    return {"good": exact and not problems and (options.dry or all(row["within"] is not False for row in alike.values())), **result, "apart": alike}
