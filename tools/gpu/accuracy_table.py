#!/usr/bin/env python3
"""The table of accuracies from the run directories of octet train: mean and deviation over seeds.

Differing codes are each engine's, against the QAT graph, over all layers and seeds; of so many compared.

    accuracy_table.py FOLDER      of runs named RECIPE-seedN, each with a report.json and perhaps octet calibrate --all --json's calibrators.json
"""
import json
import pathlib
import re
import statistics
import sys

CALIBRATORS = ("minmax", "percentile", "mse", "entropy")
NOT_ENGINES = ("float", "ptq", "simulation", "qat_graph")


def read_run(folder):
    """One run: {column: top-1 in %}, the codes that differ, and what else the table shows; None for a run without a report."""
    if not (folder / "report.json").exists():
        return None
    report = json.loads((folder / "report.json").read_text())
    images = max(row["images"] for row in report["rows"])  # the slow reference may have run over a few only: no accuracy
    tops = {row["name"]: 100 * row["top1"] for row in report["rows"] if row["images"] == images}
    run = {"float": tops["float"]}
    calibrators = folder / "calibrators.json"
    if calibrators.exists():
        # The run's own activation scheme; calibrate --all tries the others too.
        scheme = re.search(r"^ *activation: *(\w+)", report["recipe"], re.MULTILINE).group(1)
        for result in json.loads(calibrators.read_text())["results"]:
            if result["activation"] == scheme:
                run[f"ptq {result['calibrator']}"] = 100 * result["top1"]
    run["qat"] = tops["qat_graph"]
    run.update({name: top1 for name, top1 in tops.items() if name not in NOT_ENGINES})
    compared = report["comparison"]
    differing = {name: sum(layer["differing"][index] for layer in compared["layers"]) for index, name in enumerate(compared["programs"][1:])}
    return {"top1": run, "seed": report["seed"], "seconds": report["seconds"], "differing_codes": differing,
            "compared_codes": report["headline"]["compared_codes"] or 0}


def rows(folder):
    """One row a recipe, in the order of names."""
    recipes = {}
    for path in sorted(folder.glob("*-seed*")):
        run = read_run(path) if path.is_dir() else None
        if run is not None:
            recipes.setdefault(path.name.rsplit("-seed", 1)[0], []).append(run)
    return [summary(recipe, runs) for recipe, runs in recipes.items()]


def summary(recipe, runs):
    columns = {}
    for run in runs:
        for name, top1 in run["top1"].items():
            columns.setdefault(name, []).append(top1)
    engines = {name for run in runs for name in run["differing_codes"]}
    return {"recipe": recipe, "seeds": [run["seed"] for run in runs],
            "top1": {name: {"mean": statistics.fmean(values), "deviation": statistics.stdev(values) if len(values) > 1 else None,
                            "values": values} for name, values in columns.items()},
            "differing_codes": {name: sum(run["differing_codes"].get(name, 0) for run in runs) for name in sorted(engines)},
            "compared_codes": sum(run["compared_codes"] for run in runs),
            "minutes": statistics.fmean(run["seconds"] for run in runs) / 60}


def table(rows):
    """Markdown: top-1 in % as mean ± sample deviation over the seeds."""
    present = [name for row in rows for name in row["top1"]]
    order = ["float", *(f"ptq {name}" for name in CALIBRATORS), "qat"]
    engines = sorted(set(present) - set(order))
    columns = [name for name in order if name in present] + engines
    lines = [["recipe", "seeds", *columns, "differing codes", "minutes a run"]]
    for row in rows:
        codes = ", ".join(f"{name} {count:,}" for name, count in row["differing_codes"].items())
        codes = f"{codes} of {row['compared_codes']:,}" if codes else "not compared"
        lines.append([row["recipe"], str(len(row["seeds"])), *(cell(row["top1"].get(name)) for name in columns), codes, f"{row['minutes']:.1f}"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["| " + " | ".join(word.ljust(width) for word, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def cell(column):
    if column is None:
        return ""
    return f"{column['mean']:.2f}" if column["deviation"] is None else f"{column['mean']:.2f} ± {column['deviation']:.2f}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(table(rows(pathlib.Path(sys.argv[1]))))
