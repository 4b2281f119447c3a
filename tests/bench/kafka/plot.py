"""How many times better we are, as bars on a scale of powers of two; below 1 they go left."""

import math
from collections.abc import Sequence

from tests.bench.kafka.comparison import Comparison

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
            *(_row(number, name, gain) for number, (name, gain) in enumerate(rows)),
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


def _row(number: int, name: str, gain: float) -> str:
    top = TOP + ROW * number
    doublings = max(-MOST_DOUBLINGS, min(MOST_DOUBLINGS, math.log2(gain)))
    left, width = ONE + min(0.0, doublings * PIXELS), abs(doublings * PIXELS)
    return (
        f'<text x="{LABELS - 10}" y="{top + BAR - 2}" text-anchor="end">{name}</text>'
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"'
        f' fill="{AHEAD if gain >= 1 else BEHIND}"/>'
        f'<text x="{WIDTH - 10}" y="{top + BAR - 2}" text-anchor="end">{gain:.2f}</text>'
    )
