"""The table, for people and for docs/benchmarks.md."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.kafka.comparison import SIDES, Comparison
from tests.bench.kafka.plot import plot

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
    """In Markdown, rounds and all."""
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
