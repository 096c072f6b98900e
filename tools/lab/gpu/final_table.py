#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of accuracy.py's stage final: test pictures, int8 beside the float network that trained as long, over the seeds.

    final_table.py FOLDER      of run directories NETWORK-seedN

The 95 % interval is that of paired proportions over the pictures of all seeds together (Agresti, Categorical Data Analysis, 2002, 10.1.1):
what these networks differ by on such pictures. How seeds differ, the deviation says. A run without a control of its own is held against that
of a run of its network and seed that trained as long at the same rate (accuracy.py --few-bits, science.py), picture by picture.
"""
import json
import pathlib
import statistics
import sys

import accuracy_plan
import markdown

PHASES = ("float", "qat", "float_control")


def control_of(recipe):
    """Of a recipe's text, every key written out: what its float control does."""
    lines = recipe.partition("\nqat:\n")[2].partition("\n\n")[0].splitlines()
    values = dict(line.strip().split(": ", 1) for line in lines if ": " in line)
    return tuple(values.get(key) for key in accuracy_plan.CONTROL_KEYS)


def read_run(folder):
    """None for a run without a report."""
    if not (folder / "report.json").exists():
        return None
    report = json.loads((folder / "report.json").read_text())
    head, compared = report["headline"], report["comparison"]
    tops = {row["name"]: 100 * row["top1"] for row in report["rows"]}
    rights = {row["name"]: row.get("right") for row in report["rows"]}  # None: of an older octet
    speeds = {phase: [epoch["images_per_second"] for epoch in report["epochs"] if epoch["phase"] == phase] for phase in PHASES}
    # Of those that promise the QAT graph's codes: what was trained (simulation, autocast) is only counted, over fewer pictures.
    differing = {name: sum(layer["differing"][index] for layer in compared["layers"])
                 for index, (name, exact) in enumerate(zip(compared["programs"][1:], compared["exact"])) if exact}
    return {"seed": report["seed"], "chip": report["machine"].rpartition("; ")[2], "seconds": report["seconds"], "baseline": head["baseline"],
            "top1": {"float": tops["float"], "ptq": tops["ptq"], "float_control": tops.get("float_control"), "int8": tops[head["int8_row"]]},
            "right": {**{name: rights.get(name) for name in ("float", "ptq", "float_control")}, "int8": rights[head["int8_row"]]},
            "rate": next((epoch.get("learning_rate") for epoch in report["epochs"] if epoch["phase"] == "qat"), None),
            "points": -head["points_lost"], "only_baseline_right": head["only_baseline_right"], "only_int8_right": head["only_int8_right"],
            "images": head["paired_images"], "epochs": sum(epoch["phase"] == "qat" for epoch in report["epochs"]),
            "control": control_of(report["recipe"]), "compared_codes": head["compared_codes"] or 0, "differing_codes": differing,
            "training_seconds": sum(epoch["seconds"] for epoch in report["epochs"]),
            "images_per_second": {phase: statistics.median(values) for phase, values in speeds.items() if values}}


def paired_interval(only_first, only_second, images):
    """In points, of the second minus the first."""
    mean = (only_second - only_first) / images
    reach = 1.96 * (only_first + only_second - images * mean * mean) ** 0.5 / images
    return 100 * (mean - reach), 100 * (mean + reach)


def rows(folder):
    networks = {}
    for path in sorted(folder.glob("*-seed*/")):
        run = read_run(path)
        if run is not None:
            networks.setdefault(path.name.rsplit("-seed", 1)[0], []).append(run)
    share_controls(networks)
    return [{"network": name, "runs": runs, "interval": interval_of(runs)} for name, runs in networks.items()]


def only_right(first, second):
    """(pictures that only the first has right, only the second), of report.json's hexadecimal digits; None where they are not known."""
    if not first or not second or len(first) != len(second):
        return None
    one, two = int(first, 16), int(second, 16)
    return (one & ~two).bit_count(), (two & ~one).bit_count()


def share_controls(networks):
    """{NETWORK-VARIANT: runs}: those without a control are held against that of their likes."""
    def likes(name, run):
        return name.split("-")[0], run["seed"], run["control"]

    controls = {likes(name, run): run for name, runs in networks.items() for run in runs if run["top1"]["float_control"] is not None}
    for name, runs in networks.items():
        for run in runs:
            if run["top1"]["float_control"] is None and likes(name, run) in controls:
                control = controls[likes(name, run)]
                run["top1"]["float_control"] = control["top1"]["float_control"]
                if control["images"] == run["images"]:
                    run["right"]["float_control"] = control["right"]["float_control"]
                alone = only_right(run["right"]["float_control"], run["right"]["int8"])
                run.update(baseline="float_control (another run's)", points=run["top1"]["int8"] - run["top1"]["float_control"],
                           only_baseline_right=alone and alone[0], only_int8_right=alone and alone[1])


def counts_of(runs):
    """(only the baseline right, only int8, pictures) over the seeds; None where a run does not know."""
    if any(run["only_baseline_right"] is None for run in runs):
        return None
    return tuple(sum(run[key] for run in runs) for key in ("only_baseline_right", "only_int8_right", "images"))


def interval_of(runs):
    counts = counts_of(runs)
    return counts and paired_interval(*counts)


def values(runs, *path):
    """One a seed, of those that have it."""
    found = []
    for run in runs:
        for key in path:
            run = run.get(key) if run is not None else None
        if run is not None:
            found.append(run)
    return found


def differing(runs):
    engines = dict.fromkeys(name for run in runs for name in run["differing_codes"])
    return ", ".join(f"{name} {sum(values(runs, 'differing_codes', name)):,}" for name in engines)


def table(rows):
    """Markdown: means ± sample deviations over the seeds; seconds beside those of training; images/s of the median epoch."""
    header = ["network", "seeds", "float", "ptq", "float control", "int8", "int8 minus", "95 %", "right: float, int8 alone", "codes compared",
              "differing", "seconds (training)", "images/s: float, QAT, control"]
    lines = []
    for row in rows:
        runs, interval = row["runs"], row["interval"]
        baselines = "/".join(sorted({run["baseline"] for run in runs}))
        seconds = f"{statistics.fmean(values(runs, 'seconds')):.0f} ({statistics.fmean(values(runs, 'training_seconds')):.0f})"
        speeds = [values(runs, "images_per_second", phase) for phase in PHASES]
        lines.append([row["network"], ",".join(str(run["seed"]) for run in runs),
                      *(markdown.spread(values(runs, "top1", key)) for key in ("float", "ptq", "float_control", "int8")),
                      f"{baselines}: {markdown.spread(values(runs, 'points'), sign='+')}", "{:+.2f} .. {:+.2f}".format(*interval) if interval else "-",
                      f"{sum(values(runs, 'only_baseline_right'))}, {sum(values(runs, 'only_int8_right'))}" if interval else "-",
                      f"{sum(values(runs, 'compared_codes')):,}", differing(runs), seconds,
                      ", ".join(f"{statistics.median(speed):,.0f}" if speed else "-" for speed in speeds)])
    return markdown.table(header, lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(table(rows(pathlib.Path(sys.argv[1]))))
