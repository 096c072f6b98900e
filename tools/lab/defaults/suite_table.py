# SPDX-License-Identifier: Apache-2.0
"""The tables of suite.py: a table for each variant, the worst network first, then each variant's worst and mean.

Intervals are final_table.py's, of paired proportions over the test images. `calibrated only` is held against the float network, QAT against the
float control that trained as long: that of the network's first variant, at its rate. A control that training ruined counts in no mean.
"""
import statistics

import final_table
import markdown


def split(name):
    """("regnet_y_400mf", "w8a8-lsq"); no network's name has a dash."""
    network, _, variant = name.partition("-")
    return network, variant


def counts_between(runs, before, after):
    """(only the first right, only the second, images) of two rows of the runs together; None where a report does not say."""
    pairs = [final_table.only_right(run["right"].get(before), run["right"].get(after)) for run in runs]
    return None if None in pairs else (*map(sum, zip(*pairs)), sum(run["images"] for run in runs))


def points(runs, before, after):
    return statistics.fmean(run["top1"][after] - run["top1"][before] for run in runs)


def with_interval(number, counts):
    return f"{number:+.2f}" + ("" if counts is None else " ({:+.2f} .. {:+.2f})".format(*final_table.paired_interval(*counts)))


def ruined(runs):
    """Whether training on made the control worse than the float network, and than int8: it is no measure then."""
    counts = [counts_between(runs, "float", "float_control"), counts_between(runs, "float_control", "int8")]
    if None in counts:
        return False
    (_, highest), (lowest, _) = (final_table.paired_interval(*count) for count in counts)
    return highest < 0 < lowest


def line_of(network, runs):
    """(points of QAT, whether they count, cells of a line)"""
    controlled = all(run["top1"]["float_control"] is not None for run in runs)
    lost = statistics.fmean(run["points"] for run in runs) if controlled else points(runs, "float", "int8")
    counts = final_table.counts_of(runs) if controlled else counts_between(runs, "float", "int8")
    tops = [markdown.spread(final_table.values(runs, "top1", key)) for key in ("float", "ptq", "float_control", "int8")]
    counts_for_mean = not ruined(runs)
    note = "" if counts_for_mean else ", of a ruined control"
    return lost, counts_for_mean, [network, tops[0], tops[1], with_interval(points(runs, "float", "ptq"), counts_between(runs, "float", "ptq")), tops[2], tops[3],
                                   with_interval(lost, counts) + note, final_table.differing(runs), f"{statistics.fmean(final_table.values(runs, 'seconds')):.0f}"]


def table(rows):
    """All tables, of final_table.rows()."""
    by_variant = {}
    for row in rows:
        network, variant = split(row["network"])
        if variant:
            by_variant.setdefault(variant, []).append((network, row["runs"]))
    header = ["network", "float", "calibrated only", "minus float", "float control", "int8 after QAT", "minus control", "codes that differ", "seconds"]
    parts, summary = [], []
    for variant, found in sorted(by_variant.items()):
        lines = sorted((line_of(network, runs) for network, runs in found), key=lambda line: line[0])
        parts.append(f"## {variant}\n\n" + markdown.table(header, [cells for _, _, cells in lines]))
        calibrated = [points(runs, "float", "ptq") for _, runs in found]
        trained = [lost for lost, counts, _ in lines if counts] or [float("nan")]
        summary.append([variant, str(len(found)), *(f"{number:+.2f}" for numbers in (calibrated, trained) for number in
                                                    (min(numbers), statistics.fmean(numbers)))])
    if not summary:
        return "nothing is finished"
    names = ["variant", "networks", "calibrated only: worst", "mean", "QAT: worst", "mean"]
    return "\n\n".join([*parts, "## All\n\n" + markdown.table(names, summary)])
