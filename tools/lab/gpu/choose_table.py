#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of accuracy.py's stage choose: int8 on the validation pictures after QAT, each variant beside the recipe as it is, seed by seed.

    choose_table.py FOLDER      of run directories NETWORK-seedN/VARIANT
"""
import json
import pathlib
import statistics
import sys

import accuracy_plan
import markdown


def result(folder):
    """Top-1 in % and loss on the validation pictures after the last epoch of QAT; None for a run without a report."""
    if not (folder / "report.json").exists():
        return None
    epochs = [epoch for epoch in json.loads((folder / "report.json").read_text())["epochs"] if epoch["phase"] == "qat"]
    return {"top1": 100 * epochs[-1]["validation_top1"], "loss": epochs[-1]["validation_loss"]}


def results(folder):
    """{(network, variant): {seed: result}}, in the order of the plan."""
    found = {}
    for network in accuracy_plan.NETWORKS:
        variants = dict.fromkeys([*accuracy_plan.qat_variants(network), *accuracy_plan.float_variants(network)])
        for variant in variants:
            for path in sorted(folder.glob(f"{network}-seed*/{variant}")):
                one = result(path)
                if one is not None:
                    found.setdefault((network, variant), {})[int(path.parent.name.rsplit("-seed", 1)[1])] = one
    return found


def rows(folder):
    found = results(folder)
    out = []
    for (network, variant), seeds in found.items():
        recipe = found.get((network, accuracy_plan.RECIPE), {})
        row = {"network": network, "variant": variant, "seeds": sorted(seeds)}
        for key in ("top1", "loss"):
            row[key] = [seeds[seed][key] for seed in row["seeds"]]
            paired = [seeds[seed][key] - recipe[seed][key] for seed in row["seeds"] if seed in recipe]
            row[f"{key}_minus_recipe"] = [] if variant == accuracy_plan.RECIPE else paired
        out.append(row)
    return out


def pooled(rows):
    """One row a variant over all networks that have it: paired differences alone, since the networks differ by more."""
    variants = dict.fromkeys(row["variant"] for row in rows if row["variant"] != accuracy_plan.RECIPE)
    out = []
    for variant in variants:
        of_it = [row for row in rows if row["variant"] == variant]
        if len(of_it) > 1:
            out.append({"network": "all", "variant": variant, "seeds": [seed for row in of_it for seed in row["seeds"]], "top1": [], "loss": [],
                        **{key: [value for row in of_it for value in row[key]] for key in ("top1_minus_recipe", "loss_minus_recipe")}})
    return out


def error_of_mean(values):
    return f"{statistics.stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""


def table(rows):
    """Markdown: means ± sample deviations over the seeds; "error": the standard error of the mean difference."""
    header = ["network", "variant", "runs", "int8, validation %", "minus recipe", "error", "loss", "minus recipe"]
    lines = []
    for row in rows + pooled(rows):
        lines.append([row["network"], row["variant"], str(len(row["seeds"])), markdown.spread(row["top1"]),
                      markdown.spread(row["top1_minus_recipe"], sign="+"), error_of_mean(row["top1_minus_recipe"]),
                      markdown.spread(row["loss"], 4), markdown.spread(row["loss_minus_recipe"], 4, "+")])
    return markdown.table(header, lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(table(rows(pathlib.Path(sys.argv[1]))))
