"""README's dated tables repeat what two pages say, which runs have made."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CARD = (ROOT / "docs" / "conformance-card.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
FIGURE = re.compile(r"\d+(?:[.,]\d+)*(?= (?:ms|s|MiB|MiB/s|records/s)\b)")


def rows_under(heading: str) -> list[list[str]]:
    part = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_clients_are_those_of_the_card() -> None:
    rows = [row for row in rows_under("Clients and versions") if not row[0].startswith("Spark")]
    assert len(rows) == 5
    for _, versions, _ in rows:
        for version in re.findall(r"\d+\.\d+\.\d+", versions):
            assert version in CARD, version


def test_the_figures_are_those_of_the_benchmarks() -> None:
    rows = rows_under("Figures")
    assert len(rows) == 10
    for what, ours, beside in rows:
        for figure in FIGURE.findall(f"{ours} {beside}"):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", BENCHMARKS), (what, figure)
