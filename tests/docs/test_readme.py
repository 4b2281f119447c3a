"""The tables of README.md and CONTRIBUTING.md agree with the code and with what runs have made."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from replication.cli import group
from tests.cli.tree import LEAVES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CARD = (ROOT / "docs" / "conformance-card.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
FIGURE = re.compile(r"\d+(?:[.,]\d+)*(?= (?:ms|s|MiB|MiB/s|records/s)\b)")
# The columns of the card, by the words with which README's rows begin.
COLUMNS = {
    "confluent-kafka": "librdkafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
    "Apache": "java",
    "kcat": "kcat",
}


def part(heading: str, page: str = README) -> str:
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table's rows, without its head and the line below that."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_readme_has_every_command() -> None:
    named = {
        name for row in rows(part("Commands")) for name in re.findall(r"understudy (\S+)`", row[0])
    }
    assert named == {name.split()[0] for name in LEAVES}


def test_the_options_of_the_commands_are_there() -> None:
    for row in rows(part("Commands")):
        (name, *_) = re.findall(r"understudy (\S+)`", row[0])
        if named := set(re.findall(r"`(--[\w-]+)", row[1])):
            assert named <= {option for each in LEAVES[name].params for option in each.opts}


def test_the_report_is_written_by_the_command_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"`understudy (.+)` writes this page", README)
    done = CliRunner().invoke(group, command.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "<html" in (tmp_path / command.split()[-1]).read_text()


def test_the_clients_are_those_of_the_card() -> None:
    text = part("Clients")
    (date,) = re.findall(r"\d{4}-\d\d-\d\d", text)
    assert f"on {date}" in CARD
    clients = {row[0].split()[0]: row for row in rows(text) if not row[0].startswith("Spark")}
    assert clients.keys() == COLUMNS.keys()
    for _, versions, _ in clients.values():
        for version in re.findall(r"\d+\.\d+\.\d+", versions):
            assert version in CARD, version
    failed = {row[0] for row in rows(part("What fails", CARD))}
    for client, (*_, fails) in clients.items():
        assert bool(fails) == (COLUMNS[client] in failed), client


def test_the_figures_are_those_of_the_benchmarks() -> None:
    figures = rows(part("Figures"))
    assert len(figures) == 4
    for what, ours, beside in figures:
        for figure in FIGURE.findall(f"{ours} {beside}"):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", BENCHMARKS), (what, figure)


def test_the_table_of_targets_is_the_makefile() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    named = re.findall(r"^\| `make ([\w-]+)`", part("Make targets", CONTRIBUTING), re.MULTILINE)
    inner = {"run_processes", "run_spark"}  # the parts of `make test`
    assert {*named, "help", "setup", "clean"} == set(phony.split()) - inner


def test_links_lead_somewhere() -> None:
    for name, page in (("README.md", README), ("CONTRIBUTING.md", CONTRIBUTING)):
        for link in re.findall(r"\]\(([^)]+)\)", page):
            target, _, anchor = link.partition("#")
            file = ROOT / (target or name)
            assert file.is_file(), (name, link)
            assert not anchor or anchor in anchors(file.read_text()), (name, link)


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub gives to headings, of which all here are plain words."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {heading.lower().replace(" ", "-") for heading in headings}
