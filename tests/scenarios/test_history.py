"""Each check finds the history that it is for, and nothing in one that is as it should be."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest

from scenarios.story.commands.judge import BrokenPromiseError
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.world import history
from scenarios.world.client import StoryClient
from scenarios.world.history import At, History, Polled, Sent, anomalies
from storage.types import Offset, TopicPartition

Check = Callable[[History], Iterator[str]]

A, B, C = (0, "a"), (1, "b"), (2, "c")


def sent(*values: str, at: Offset | None, then: float = 0.0, refused: bool = False) -> Sent:
    return Sent(values=values, sent_at=then, answered_at=then + 1, base_offset=at, refused=refused)


def polled(*records: At, session: int = 1) -> Polled:
    return Polled(session=session, records=records)


def by_one(value: str, producer: str | None = "p1/1") -> Sent:
    """Never answered."""
    return Sent(values=(value,), sent_at=0.0, answered_at=9.0, producer=producer)


SOUND = History(
    sends=[
        sent("a", "b", at=0),
        sent("c", at=2, then=2.0),
        sent("x", at=None, refused=True),
        by_one("a"),
        by_one("y"),
        by_one("c"),
        by_one("b", producer="p1/2"),
        by_one("a", producer=None),
    ],
    polls=[polled(A, B), polled(), polled(B, C, session=2), polled(C)],
    final=[A, B, C],
)


def made(
    sends: Sequence[Sent] = (),
    polls: Sequence[Polled] = (),
    final: Sequence[At] = (A, B, C),
    log_start: Offset = 0,
) -> History:
    return History(sends=sends or SOUND.sends, polls=polls, final=final, log_start=log_start)


@pytest.mark.parametrize(
    ("check", "bad", "found"),
    [
        (history.inconsistent, made(polls=[polled(A, (1, "z"))]), "offset 1 has b and z"),
        (history.inconsistent, made(final=[A, (1, "z"), C]), "offset 1 has b and z"),
        (history.duplicate, made(final=[A, B, C, (3, "a")]), "a is at 0 and 3"),
        (history.duplicate, made(sends=[sent("c", at=1)]), "c is at 1 and 2"),
        (
            history.refused,
            made(final=[A, B, C, (3, "x")]),
            "x was refused before it was written, and read",
        ),
        (history.unseen, made(final=[A, C]), "b was acked at 1 and is not there"),
        (
            history.unseen,
            made(polls=[polled(A, B, C)], final=[A, B]),
            "c was acked at 2 and is not",
        ),
        (history.unseen, made(final=[B, C], log_start=0), "a was acked at 0 and is not there"),
        (
            history.skipped,
            made(polls=[polled(A), polled(C)]),
            "consumer 1 was given 0 to 2 without 1",
        ),
        (
            history.backwards,
            made(polls=[polled(A, B), polled(B)]),
            "consumer 1 was given 1 after 1",
        ),
        (history.backwards, made(polls=[polled(B, A)]), "consumer 1 was given 0 after 1"),
        (
            history.out_of_order,
            made(sends=[sent("b", at=1), sent("a", at=0, then=2.0)]),
            "a at 0 was sent after b was acked at 1",
        ),
        (
            history.reordered,
            made(sends=[by_one("b"), by_one("a"), by_one("c")]),
            "a at 0 was sent after b at 1",
        ),
    ],
)
def test_a_bad_history_is_found_by_its_check(check: Check, bad: History, found: str) -> None:
    assert [each[: len(found)] for each in check(bad)] == [found]


def test_a_sound_history_has_no_anomalies() -> None:
    assert anomalies(SOUND) == []


@pytest.mark.parametrize(
    "sound",
    [
        made(final=[B, C], log_start=1),  # a was deleted
        made(polls=[polled(A), polled(C, session=2)], final=[C], log_start=2),
        made(sends=[sent("b", at=1), sent("a", at=0, then=0.5)]),  # both were on their way
        made(sends=[sent("q", at=None)]),  # had no answer, and is not there
        made(sends=[sent("a", at=None)]),  # had no answer, and is
    ],
)
def test_allowed_histories_have_no_anomaly(sound: History) -> None:
    assert anomalies(sound) == []


def test_every_check_is_asked() -> None:
    everything = attrs.evolve(
        SOUND, polls=[polled(A), polled(C), polled(A, (1, "z"))], final=[A, C, (3, "x")]
    )
    found = {line.partition(":")[0] for line in anomalies(everything)}
    assert found == {"inconsistent", "refused", "unseen", "backwards"}


# The consumer of a story.

STORY = """\
cluster brokers=3 min.insync.replicas=2
topic t replicas=b1,b2,b3
produce t-0 a b
poll t-0
produce t-0 c
kill b1
wait leader t-0
poll t-0
delete-records t-0 2
produce t-0 d
poll t-0
recover
wait isr t-0 b1,b2,b3
wait equal t-0
judge t-0
"""


def test_a_consumer_goes_on_where_it_was() -> None:
    (step,) = run_story(parse(STORY)).actual.steps
    assert [line for line in step.answer if line.startswith("polled")] == [
        "polled: a b",
        "polled: c",
        "polled: d",
    ]


def test_a_consumer_whose_next_record_was_deleted_begins_anew() -> None:
    story = """\
cluster brokers=1
topic t replicas=b1
produce t-0 a b
poll t-0
produce t-0 c d
delete-records t-0 3
poll t-0
poll t-0
judge t-0
"""
    (step,) = run_story(parse(story)).actual.steps
    assert step.answer[-2:] == ("polled:", "polled: d")


def test_a_consumer_that_is_given_the_same_again_is_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = StoryClient.poll

    async def from_the_beginning(
        client: StoryClient, partition: TopicPartition, _: Offset, **how: Any
    ) -> object:
        return await honest(client, partition, 0, **how)

    monkeypatch.setattr(StoryClient, "poll", from_the_beginning)
    with pytest.raises(BrokenPromiseError, match="backwards: consumer 1 was given 0 after 1") as e:
        run_story(parse(STORY))
    assert e.value.rule == "backwards"
