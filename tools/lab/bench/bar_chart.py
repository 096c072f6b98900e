# SPDX-License-Identifier: Apache-2.0
"""Grouped horizontal bars as a self-contained SVG."""
import html
import typing

WIDTH, LABEL, PITCH, HEADING = 720, 190, 20, 26
OURS, OTHERS, INK, FAINT = "#0072B2", "#999999", "#222222", "#666666"  # Okabe and Ito's blue beside greys


class Bar(typing.NamedTuple):
    label: str
    value: float | None  # None: not measured
    reason: str = ""  # why not


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(words)}</text>")


def bar_chart(title, unit, groups):
    """groups: heading -> [Bar]. Each group has a scale of its own, since networks differ by more than programs do."""
    parts, y = [text(0, 16, f"{title}: {unit}", 14, weight="bold")], 28
    for heading, bars in groups.items():
        parts.append(text(0, y + 16, heading, weight="bold"))
        y += HEADING
        largest = max((bar.value for bar in bars if bar.value), default=1)
        for bar in bars:
            parts.append(text(LABEL - 8, y + 14, bar.label, anchor="end"))
            if bar.value is None:
                parts.append(text(LABEL, y + 14, f"refused: {bar.reason}"[:80], 11, FAINT))
            else:
                width = (WIDTH - LABEL - 70) * bar.value / largest
                colour = OURS if bar.label.startswith("octet") else OTHERS
                parts.append(f'<rect x="{LABEL}" y="{y + 3}" width="{width:.1f}" height="{PITCH - 6}" fill="{colour}"/>')
                parts.append(text(LABEL + width + 5, y + 14, f"{bar.value:,.0f}"))
            y += PITCH
        y += 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
            f'font-family="sans-serif"><title>{html.escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
            + "".join(parts) + "</svg>\n")
