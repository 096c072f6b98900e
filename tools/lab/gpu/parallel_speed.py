# SPDX-License-Identifier: Apache-2.0
"""Parts speed and pipeline of parallel.py: a training step on random pictures, on all GPUs beside one."""
import json
import os
import subprocess
import sys

import gpus
import parallel_runs
import programs

sys.path.append(str(programs.ROOT / "tools" / "lab" / "bench"))
import step_model  # noqa: E402

# images/s of several GPUs beside one, to reach, by their number
TO_REACH = {"resnet50": {2: 1.94, 4: 3.84, 8: 7.6}, "resnet18": {2: 1.90}, "mobilenet_v2": {2: 1.90}, "resnet50 sync_batch_norm": {2: 1.85}}
MODELS = ("resnet50", "resnet18", "mobilenet_v2")
MODEL_WITHIN = 0.05  # the model of a step's time, made from one and two GPUs, of what was measured on more
JUDGED_BATCH = 1024  # part pipeline: 8 micro-batches of 128


def step_times(model, count, options, *more, limit=60):
    """What train_bench prints: one process, or `count` that train together."""
    command = [programs.program("train_bench"), "--model", model, *more, *(["--seconds", "0.05", "--batch", "32"] if options.dry else [])]
    if count == 1:
        return json.loads(parallel_runs.run(command, limit, gpus.environment(options.visible[0])))
    common = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(parallel_runs.free_port())}
    others = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env={**common, "RANK": str(rank)})
              for rank in range(1, count)]
    try:
        return json.loads(parallel_runs.run(command, limit, {**common, "RANK": "0"}))
    finally:
        for other in others:
            other.kill()
            other.wait()


def counts(available):
    """Numbers of GPUs to measure beside one: 2, 4, 8, as far as there are so many, and all of them."""
    return sorted({count for count in (2, 4, 8) if count < available} | {available})


def speed_of(model, options, one, more):
    """A row of the table: the step on one GPU (given) and on each number of GPUs, with the images/s beside one's. waiting_ms is what of a
    step the backward pass did not hide of the exchange; exchange_ms the exchange alone, one sum of all gradients."""
    by_gpus = {"1": {"ms": one["median_ms"], "images_per_second": round(one["images_per_second"]), "peak_gib": one["peak_gib"], "factor": 1}}
    for count in counts(options.count):
        times = step_times(model, count, options, *more)
        by_gpus[str(count)] = {"ms": times["median_ms"], "images_per_second": round(times["images_per_second"]), "peak_gib": times["peak_gib"],
                               "factor": round(times["images_per_second"] / one["images_per_second"], 3),
                               **{key: times[key] for key in ("exchange_ms", "waiting_ms")}}
    return {"batch": one["batch"], "gradient_bytes": times["gradient_bytes"], "by_gpus": by_gpus}


def speed(options):
    """Good: every factor that was asked is reached, and the model made from one and two GPUs is within 5 % of what more of them take."""
    if options.device == "cpu":
        return {"skipped": "needs GPUs"}
    rows, missed = {}, []
    for model in MODELS:
        one = step_times(model, 1, options)
        variants = {model: [], f"{model} fp16 exchange": ["--exchange", "fp16"]}
        if model == "resnet50":
            variants[f"{model} sync_batch_norm"] = ["--sync-batch-norm"]
        for name, more in variants.items():
            row = rows[name] = speed_of(model, options, one, more)
            for count, least in TO_REACH.get(name, {}).items():
                reached = row["by_gpus"].get(str(count), {"factor": least})["factor"]
                if reached < least:
                    missed.append(f"{name}, {count} GPUs: {reached} of {least}")
            for count in counts(options.count)[1:]:
                off = step_model.off_by(row, count, network=50)
                if abs(off) > MODEL_WITHIN:
                    missed.append(f"{name}, {count} GPUs: the model is {100 * off:+.1f} % off")
            print(f"  {name}: {row}", file=sys.stderr, flush=True)
    print(step_model.table(rows, [4, 8, 16], network=50), file=sys.stderr, flush=True)
    return {"good": options.dry or not missed, "missed": missed, **rows}


def replicated(options, words, one):
    """Two stages on each pair of GPUs, whose replicas of the network share each step: beside one GPU with a batch of one replica."""
    if options.count < 4:
        return {}
    times = step_times("resnet50", options.count // 2 * 2, options, *words)
    return {"replicas": {"of": times["replicas"], "ms": times["median_ms"], "images_per_second": round(times["images_per_second"]),
                         "factor": round(times["images_per_second"] / one["images_per_second"], 3), "peak_gib": times["peak_gib_by_rank"]}}


def piped(options, bench, batch, ones):
    """Two stages of 8 micro-batches, recorded as a CUDA graph as runs are; where that fails, launched kernel by kernel."""
    words = ["--micro-batches", "8", *(["--size", "64"] if options.dry else ["--batch", str(batch), "--seconds", "1"])]
    size = ["--batch", "32"] if options.dry else []
    propose = [bench, "--model", "resnet50", "--propose", "2", *words, *size]
    proposed = json.loads(parallel_runs.run(propose, 60, gpus.environment(options.visible[0])))
    words += ["--stages", proposed["stages"][0]]
    alone = step_times("resnet50", 1, options, *words)  # the same micro-batches, both stages on one GPU
    tries = {}
    for name, more in (("recorded", []), ("eager", ["--eager"])):
        try:
            tries[name] = step_times("resnet50", 2, options, *words, *more, limit=40)
            break
        except parallel_runs.Failed as failure:
            tries[name] = {"failed": str(failure)}
            print(f"  {name}: {failure}", file=sys.stderr, flush=True)
    two = tries[name]
    if "failed" in two:
        raise parallel_runs.Failed(f"{tries}")
    one = ones[batch]
    fastest = max(ones.values(), key=lambda times: times["images_per_second"])
    row = {"factor": round(two["images_per_second"] / fastest["images_per_second"], 3), "beside_one_with_batch": fastest["batch"],
           "memory": round(max(two["peak_gib_by_rank"]) / one["peak_gib"], 3), "proposed": proposed, "how": name,
           "milliseconds": {"one": one["median_ms"], "one_with_micro_batches": alone["median_ms"], "two": two["median_ms"]},
           "images_per_second": {"one": round(one["images_per_second"]), "one_with_micro_batches": round(alone["images_per_second"]),
                                 "two": round(two["images_per_second"])},
           "peak_gib": {"one": one["peak_gib"], "two": two["peak_gib_by_rank"]}, "waiting_ms": two["waiting_ms"],
           **replicated(options, words, one),
           "failed": [text for text in (tried.get("failed") for tried in tries.values()) if text]}
    print(f"  batch {batch}: {row}", file=sys.stderr, flush=True)
    return row


def pipeline(options):
    """Two stages whatever the number of GPUs. Judged is the larger batch: with 8 micro-batches of 32 pictures a GPU is not filled, whoever
    computes them. Its images/s stand beside those of the faster of the two whole batches on one GPU, its memory beside one GPU's with the
    same batch. waiting_ms is the sum over a stage's two streams: while one waits the other may compute, and where both wait it counts twice."""
    if options.device == "cpu":
        return {"skipped": "needs GPUs"}
    ones = {batch: step_times("resnet50", 1, options, *([] if options.dry else ["--batch", str(batch)])) for batch in (JUDGED_BATCH, 256)}
    rows = {f"{batch} pictures": piped(options, programs.program("train_bench"), batch, ones) for batch in ones}
    judged = rows[f"{JUDGED_BATCH} pictures"]
    return {"good": options.dry or (judged["factor"] >= 1.6 and judged["memory"] <= 0.65), "judged": f"{JUDGED_BATCH} pictures",
            "to_reach": 1.6, "memory_to_reach": 0.65, **rows}
