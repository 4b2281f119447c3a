"""The applications of the conformance card: its rows are those of the code, and verdicts can fail."""

from pathlib import Path

import pytest

from tests.interop.card.applications import table
from tests.interop.card.applications.stage import (
    LINES,
    Verdict,
    each_at_least_once,
    each_counted_once,
    each_once,
    in_capitals,
    none_undercounted,
    values_of,
)

CARD = (Path(__file__).parents[2] / "docs" / "conformance-card.md").read_text()


def test_the_rows_of_the_card_are_those_of_the_list() -> None:
    """`make card ARGS="--only NAME"` writes the rows of an application."""
    assert [*table.rows_in(CARD)] == table.keys()


def test_a_card_that_is_written_again_keeps_the_other_rows() -> None:
    title, promise = table.keys()[0]
    row = table.Row(title, promise, "9.9", "is run", "yes", "all | found", "2026-01-02")
    rows = {**table.rows_in(CARD), (title, promise): row.line}
    again = table.with_section(CARD, rows)
    assert table.rows_in(again) == rows
    assert table.with_section(again, table.rows_in(CARD)) == CARD


def test_a_card_without_applications_gets_them() -> None:
    before, _, rest = CARD.partition(f"\n{table.HEADING}\n")
    bare = f"{before}\n## {rest.partition(chr(10) + '## ')[2]}"
    assert table.with_section(bare, table.rows_in(CARD)) == CARD


@pytest.mark.parametrize(
    ("result", "missing", "mark"),
    [
        ({"found": "600 sent"}, None, table.KEPT),
        ({"failed": "AssertionError: 3 are missing"}, None, table.BROKEN),
        ({}, None, table.BROKEN),
        ({}, "pip says no", table.NOT_HERE),
    ],
)
def test_a_run_is_judged_by_what_it_said(
    result: dict[str, str], missing: str | None, mark: str
) -> None:
    assert table.judged(result, missing)[0] == mark


COPIED = [(None, line) for line in LINES]
COUNTED = [("one", "1"), ("two", "1"), ("one", "2")]


@pytest.mark.parametrize(
    ("verdict", "sent", "found"),
    [
        pytest.param(values_of(each_once), LINES, COPIED, id="each is there once"),
        pytest.param(values_of(each_at_least_once), LINES, COPIED * 2, id="all are there twice"),
        pytest.param(
            in_capitals(each_once), LINES, [(None, each.upper()) for each in LINES], id="capitals"
        ),
        pytest.param(each_counted_once, ["one two", "one"], COUNTED, id="each is counted once"),
        pytest.param(
            none_undercounted, ["one two", "one"], [*COUNTED, ("one", "3")], id="one counted twice"
        ),
    ],
)
def test_a_right_result_is_accepted(
    verdict: Verdict, sent: list[str], found: list[tuple[str | None, str]]
) -> None:
    assert verdict(sent, found)


@pytest.mark.parametrize(
    ("verdict", "sent", "found"),
    [
        pytest.param(values_of(each_at_least_once), LINES, COPIED[1:], id="one is missing"),
        pytest.param(
            values_of(each_at_least_once), LINES, [*COPIED, (None, "?")], id="one was never sent"
        ),
        pytest.param(values_of(each_once), LINES, [*COPIED, COPIED[7]], id="one is there twice"),
        pytest.param(none_undercounted, ["one two", "one"], COUNTED[:2], id="one is not counted"),
        pytest.param(
            each_counted_once, ["one two", "one"], [*COUNTED, ("one", "2")], id="a count again"
        ),
        pytest.param(
            each_counted_once, ["one two", "one"], [*COUNTED, ("one", "3")], id="a count too high"
        ),
    ],
)
def test_a_wrong_result_is_refused(
    verdict: Verdict, sent: list[str], found: list[tuple[str | None, str]]
) -> None:
    with pytest.raises(AssertionError):
        verdict(sent, found)
