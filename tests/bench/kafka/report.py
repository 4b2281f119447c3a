"""The table and the plot, for people and for docs/benchmarks.md."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.kafka.comparison import SIDES, Comparison

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, PLOT = DOCS / "benchmarks.md", DOCS / "bench-kafka.svg"
BEGIN, END = "<!-- bench-kafka -->", "<!-- end of bench-kafka -->"


def line(comparison: Comparison) -> str:
    sides = ", ".join(
        f"{side} {shown(comparison.median(side))}" for side in SIDES if comparison.rounds.get(side)
    )
    return f"{comparison.name:<66} {comparison.unit:<12} {sides}{_times(comparison)}"


def _times(comparison: Comparison) -> str:
    return "" if comparison.gain is None else f"  {comparison.gain:.2f} times better"


def shown(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(comparisons: Iterable[Comparison]) -> str:
    """Return a table in Markdown, with the rounds."""
    head = ["| | unit | ours | Apache Kafka | ours is better | rounds of ours | of Kafka's |"]
    head += ["|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, comparisons)]) + "\n"


def _row(comparison: Comparison) -> str:
    cells = [comparison.name, comparison.unit]
    cells += [shown(comparison.median(side)) for side in SIDES]
    cells.append("" if comparison.gain is None else f"{comparison.gain:.2f} times")
    cells += [", ".join(map(shown, comparison.rounds.get(side, ()))) for side in SIDES]
    return f"| {' | '.join(cells)} |"


def write_page(comparisons: Sequence[Comparison], *, ran: str) -> None:
    """Between the marks of docs/benchmarks.md, and the plot beside it; `ran` says what and when."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    written = f"{ran}\n\n![How many times better ours is]({PLOT.name})\n\n{table(comparisons)}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{written}\n{END}{after}")
    PLOT.write_text(plot(comparisons))


# How many times better we are, as bars on a scale of powers of two; below 1 they go left.

ROW, BAR, TOP = 22, 14, 30
LABELS, WIDTH = 400, 860
MOST_DOUBLINGS = 5
PIXELS = (WIDTH - LABELS - 60) / (2 * MOST_DOUBLINGS)
ONE = LABELS + MOST_DOUBLINGS * PIXELS
AHEAD, BEHIND = "#2a7f62", "#b5482f"


def plot(comparisons: Sequence[Comparison]) -> str:
    """An SVG of those that both sides ran."""
    rows = [(each.name, each.gain) for each in comparisons if each.gain is not None]
    height = TOP + ROW * len(rows) + 10
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
                ' font-family="sans-serif" font-size="12">'
            ),
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *(_scale(doubling, height) for doubling in range(-MOST_DOUBLINGS, MOST_DOUBLINGS + 1)),
            *(_bar(number, name, gain) for number, (name, gain) in enumerate(rows)),
            "</svg>\n",
        ]
    )


def _scale(doubling: int, height: int) -> str:
    at = ONE + doubling * PIXELS
    label = f"{2**doubling}" if doubling >= 0 else f"1/{2**-doubling}"
    stroke = "#444" if doubling == 0 else "#ddd"
    return (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{height - 8}" stroke="{stroke}"/>'
        f'<text x="{at:.1f}" y="{TOP - 14}" text-anchor="middle" fill="#444">{label}</text>'
    )


def _bar(number: int, name: str, gain: float) -> str:
    top = TOP + ROW * number
    doublings = max(-MOST_DOUBLINGS, min(MOST_DOUBLINGS, math.log2(gain)))
    left, width = ONE + min(0.0, doublings * PIXELS), abs(doublings * PIXELS)
    return (
        f'<text x="{LABELS - 10}" y="{top + BAR - 2}" text-anchor="end">{name}</text>'
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"'
        f' fill="{AHEAD if gain >= 1 else BEHIND}"/>'
        f'<text x="{WIDTH - 10}" y="{top + BAR - 2}" text-anchor="end">{gain:.2f}</text>'
    )
