"""The consumer of a story continues where it was, and what it receives is judged."""

from typing import Any

import pytest

from scenarios.story.commands.judge import BrokenPromiseError
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.world.client import StoryClient
from storage.types import Offset, TopicPartition

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
    with pytest.raises(
        BrokenPromiseError, match="nonmonotonic poll: consumer 1 has received 0 of t-0 after 1"
    ) as e:
        run_story(parse(STORY))
    assert e.value.rule == "nonmonotonic poll"
