# SPDX-License-Identifier: Apache-2.0
"""Tables for people."""
import statistics


def table(header, rows):
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = ["| " + " | ".join(word.ljust(width) for word, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def spread(values, digits=2, sign=""):
    """Mean ± sample deviation."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):{sign}.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
