# SPDX-License-Identifier: Apache-2.0
"""The tables of science.py: each row's variants beside the float control, and each effect beside its neighbour, over the seeds.

The 95 % intervals are final_table.py's: of paired proportions over the test pictures, those of all seeds together. They say what two networks
differ by on such pictures; how far two runs of one recipe are apart for no reason, the variant `again` says.
"""
import statistics

import final_table
import markdown
import science_plan

ABSOLUTE = 50  # what is asked is top-1 from here on, else points


def controlled(runs):
    """Whether each has a float control, its own or another run's; else points and counts are against float."""
    return all(run["top1"]["float_control"] is not None for run in runs)


def reached(asked, runs):
    """("-0.50", "no, by 0.12")"""
    if asked is None:
        return "", ""
    absolute = asked >= ABSOLUTE
    if not absolute and not controlled(runs):
        return f"{asked:+.2f}", "no control yet"
    got = statistics.fmean(final_table.values(runs, "top1", "int8") if absolute else final_table.values(runs, "points"))
    return (f"{asked:.2f}" if absolute else f"{asked:+.2f}"), "yes" if got >= asked - 1e-9 else f"no, by {asked - got:.2f}"


def interval_words(counts):
    """Of (only the first right, only the second, pictures), None where it is not known."""
    if counts is None:
        return "-"
    return "{:+.2f} .. {:+.2f}".format(*final_table.paired_interval(*counts))


def chips_of(runs):
    """Where they ran: on another chip sums have another order and other algorithms, and two runs of one recipe differ by more."""
    return ", ".join(sorted({run["chip"] for run in runs}))


def variants_table(row, found):
    header = ["W/A", "variant", "seeds", "float", "PTQ", "float control", "int8", "minus control", "paired 95 %", "right: control, int8 alone",
              "codes compared", "differing", "QAT epochs", "chip", "asked", "reached"]
    lines = []
    for name in row.variants:
        runs = found.get(f"{row.network}-{name}", {}).get("runs")
        if not runs:
            continue
        bits = science_plan.bits_of(name)
        counts = final_table.counts_of(runs) if controlled(runs) else None
        lines.append([bits.removeprefix("w").replace("a", "/") if bits.startswith("w") else "8/8", name, ",".join(str(run["seed"]) for run in runs),
                      *(markdown.spread(final_table.values(runs, "top1", key)) for key in ("float", "ptq", "float_control", "int8")),
                      markdown.spread(final_table.values(runs, "points"), sign="+") if controlled(runs) else "-",
                      interval_words(counts), f"{counts[0]}, {counts[1]}" if counts else "-",
                      f"{sum(final_table.values(runs, 'compared_codes')):,}", final_table.differing(runs),
                      "/".join(sorted({str(run["epochs"]) for run in runs})), chips_of(runs), *reached(row.asked.get(bits), runs)])
    return markdown.table(header, lines) if lines else "nothing is finished"


def pairs_of(variant, beside):
    """[(run of the neighbour, run of the variant)] of the seeds that both have, trained as long at the same rate."""
    seeds = {(run["seed"], run["epochs"], run["rate"]): run for run in beside}
    keyed = [((run["seed"], run["epochs"], run["rate"]), run) for run in variant]
    return [(seeds[key], run) for key, run in keyed if key in seeds]


def effect(pairs):
    """([points of each seed], counts or None)."""
    counts = [final_table.only_right(one["right"]["int8"], two["right"]["int8"]) for one, two in pairs]
    whole = None if not counts or None in counts else (*map(sum, zip(*counts)), sum(run["images"] for run, _ in pairs))
    return [two["top1"]["int8"] - one["top1"]["int8"] for one, two in pairs], whole


def effects_table(row, found):
    lines = []
    for name, neighbour in row.effects:
        pairs = pairs_of(*(found.get(f"{row.network}-{one}", {}).get("runs", []) for one in (name, neighbour)))
        if pairs:
            points, counts = effect(pairs)
            alike = sum(one["chip"] == two["chip"] for one, two in pairs)
            lines.append([name, neighbour, str(len(points)), f"{alike} of {len(pairs)}", markdown.spread(points, sign="+"), interval_words(counts),
                          f"{counts[1]}, {counts[0]}" if counts else "-"])
    return markdown.table(["variant", "beside", "seeds", "on the same chip", "points", "paired 95 %", "right: it, the other alone"],
                          lines) if lines else None


def table(numbers, rows):
    """All tables, of final_table.rows()."""
    found, parts = {row["network"]: row for row in rows}, []
    for number in numbers:
        row = science_plan.ROWS[number]
        parts.append(f"## Row {number}: {row.title}\n\n" + (f"published: {row.published}\n\n" if row.published else "") + variants_table(row, found))
        effects = effects_table(row, found)
        if effects:
            parts.append(effects)
    return "\n\n".join(parts)
