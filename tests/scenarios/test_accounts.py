"""The checks of groups, transactions and copies: each finds the mistake that it is for."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from scenarios.checkers import client_accounts as accounts
from scenarios.checkers.anomalies import anomalies
from scenarios.checkers.client_accounts import (
    FinalRecords,
    mistakes_about_copy,
    mistakes_about_groups,
    with_a_failure,
)
from scenarios.story.observed import reader_operations
from scenarios.story.repeated import copied_twice
from scenarios.world.client import NoAnswer, SentRecords
from scenarios.world.clients import witness
from scenarios.world.clients.witness import (
    Began,
    Committed,
    Ending,
    Given,
    Happening,
    Lost,
    WitnessedTransaction,
)
from scenarios.world.history import History
from storage.types import Offset, TopicPartition

T0 = TopicPartition("t", 0)
ALL = {0: "a", 1: "b", 2: "c", 4: "d"}
THERE = FinalRecords(all=ALL, committed={0: "a", 2: "c", 4: "d"})
"""b is of a transaction that was aborted, and its marker is at 3."""

Check = Callable[[Sequence[Happening], FinalRecords], Iterator[str]]


def began(
    reader: str = "r",
    group: str | None = None,
    *,
    committed: bool = False,
    at: Offset | None = None,
) -> Began:
    return Began(reader=reader, group=group, read_committed=committed, at=at)


def given(*offsets: Offset, reader: str = "r") -> list[Happening]:
    return [Given(reader=reader, offset=each, value=ALL[each]) for each in offsets]


def written(offset: Offset, group: str = "g") -> Committed:
    return Committed(group=group, offset=offset)


SOUND: list[list[Happening]] = [
    [began(at=0), *given(0, 1, 2, 4)],
    [began(committed=True, at=0), *given(0, 2, 4), began(committed=True, at=2), *given(2, 4)],
    [
        began(group="g"),
        *given(0, 1),
        written(2),
        Lost(reader="r"),
        began("s", "g"),
        *given(2, reader="s"),
    ],
    # Handed over again, from what was committed; an ack that comes late says nothing.
    [
        began(group="g"),
        *given(0, 1),
        written(1),
        began("s", "g"),
        written(2),
        *given(1, 2, reader="s"),
    ],
    # A position past a marker, and past what is not seen.
    [began(group="g", committed=True), *given(0), written(2), *given(2), written(4)],
    [began(), *given(1, 2), Lost(reader="r"), began(), *given(0)],
]


@pytest.mark.parametrize("happened", SOUND)
def test_a_sound_account_is_found_sound(happened: list[Happening]) -> None:
    assert mistakes_about_groups(happened, THERE) == []


@pytest.mark.parametrize(
    ("check", "happened", "found"),
    [
        (
            accounts.passed_over,
            [began(group="g"), *given(0), Lost(reader="r"), began("s", "g"), *given(2, reader="s")],
            "s of g was handed 2, nobody 1",
        ),
        (
            accounts.too_far,
            [began(group="g"), *given(0), written(2), *given(1)],
            "g has committed 2, nobody was handed 1",
        ),
        (
            accounts.too_far,
            [began(group="h"), *given(0, 1), began("s", "g"), written(1)],
            "g has committed 1, nobody was handed 0",
        ),
        (
            accounts.forgotten,
            [began(group="g"), *given(0, 1), written(2), began("s", "g"), *given(1, reader="s")],
            "s of g began at 1, where 2 was committed",
        ),
    ],
)
def test_a_bad_account_is_found_by_its_check(
    check: Check, happened: list[Happening], found: str
) -> None:
    assert list(check(happened, THERE)) == [found]
    assert f"{check.__name__.replace('_', ' ')}: {found}" in mistakes_about_groups(happened, THERE)


def test_records_that_a_group_has_not_read_are_found() -> None:
    happened = [began(group="g", committed=True), *given(0, 2)]
    visible = THERE.committed
    assert list(accounts.unread(happened, visible, "g")) == ["unread: d at 4 by g"]
    assert list(accounts.unread([*happened, *given(4)], visible, "g")) == []
    assert len(list(accounts.unread(happened, visible, "h"))) == len(visible)


def transaction(*values: str, ending: Ending) -> WitnessedTransaction:
    batches = [SentRecords(T0, (value,), -1) for value in values]
    return WitnessedTransaction(producer="x", batches=batches, ending=ending)


COMMITTED, ABORTED = Ending.COMMITTED, Ending.ABORTED


@pytest.mark.parametrize(
    ("outcome", "ending", "found"),
    [
        (NoAnswer("REQUEST_TIMED_OUT"), COMMITTED, ["with a failure: x's a: a"]),
        (NoAnswer("REQUEST_TIMED_OUT"), ABORTED, []),
        (witness.THERE, COMMITTED, []),
        (witness.LEFT, COMMITTED, []),
    ],
)
def test_a_transaction_with_a_failed_record_is_not_committed(
    outcome: NoAnswer, ending: Ending, found: list[str]
) -> None:
    failed = transaction("a", ending=ending)
    failed.batches[0].outcome = outcome
    assert list(with_a_failure(failed)) == found


@pytest.mark.parametrize(
    ("copy", "found"),
    [
        (["c(a)", "c(x)", "c(b)", "c(gone)"], []),
        (["c(a)", "c(b)"], ["not copied: x of t-1"]),
        (["c(b)", "c(a)", "c(x)"], ["copied out of order: b before a, of t-0"]),
        (["c(a)", "c(x)", "c(b)", "c(z)"], ["copied from nowhere: c(z)"]),
    ],
)
def test_a_copy_has_each_record_once(copy: list[str], found: list[str]) -> None:
    source = {"t-0": ["a", "b"], "t-1": ["x"]}
    assert list(mistakes_about_copy(source, ["a", "b", "x", "gone"], copy)) == found


def test_a_record_sent_twice_may_be_copied_twice() -> None:
    source = {"t-0": ["a", "b", "a"]}
    assert list(mistakes_about_copy(source, "ab", ["c(a)", "c(b)", "c(a)"], repeated=["a"])) == []


@pytest.mark.parametrize(
    ("log_start", "found"), [(2, ["nonmonotonic poll"]), (3, [])], ids=["not deleted", "deleted"]
)
def test_a_reader_goes_back_only_from_where_records_were_deleted(
    log_start: Offset, found: list[str]
) -> None:
    """The next record, at 2, is deleted or not, and it receives the one at 0 again."""
    happened = [began(at=0), *given(0, 1, 0)]
    history = History(
        operations=list(reader_operations(T0, happened, log_start=log_start)),
        log_starts={T0: log_start},
        written_by_others=[T0],
    )
    assert [each.name for each in anomalies(history)] == found


def copying(*offsets: Offset, ending: Ending = COMMITTED) -> WitnessedTransaction:
    made = transaction(*(f"c({ALL[each]})" for each in offsets), ending=ending)
    made.copied += [(T0, each, ALL[each]) for each in offsets]
    return made


@pytest.mark.parametrize(
    ("transactions", "log_start", "found"),
    [
        ([copying(0, 1), copying(0, 1, 2)], 3, {"a", "b"}),
        ([copying(0, 1), copying(0, 1, 2)], 2, set()),
        ([copying(0, 1), copying(2), copying(4), copying(0)], 3, set()),
        ([copying(0, 1, ending=ABORTED), copying(0, 1)], 3, set()),
        ([transaction("a", ending=COMMITTED)], 3, set()),
    ],
    ids=["the next is deleted", "it is there", "it was read", "aborted", "no copy"],
)
def test_a_copier_copies_twice_only_what_lies_before_deleted_records(
    transactions: list[WitnessedTransaction], log_start: Offset, found: set[str]
) -> None:
    assert copied_twice(transactions, {T0: log_start}) == found
