"""Somebody who produces in the background: until all is acked, or until it makes no sense."""

import pytest

from scenarios.story.commands.judge import MANY, loss_ledger
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.world.client import AckedBatch, ReadRecord, SentRecords
from storage.types import TopicPartition

BEGINS = "cluster brokers=1\ntopic t replicas=b1"


@pytest.mark.parametrize(
    ("story", "last_line"),
    [
        (f"{BEGINS}\nload t-0 p1 records=3\nloaded p1 within=1s", "p1: 3 acked, each within 1s"),
        (
            f"{BEGINS}\nload t-0 p1 records=2 every=2s\nrun 1s\npause b1\nrun 5s\nresume b1\nloaded p1 within=1s",
            "p1: 2 acked, not each within 1s",
        ),
        (
            f"{BEGINS} max.message.bytes=20\nload t-0 p1\nloaded p1",
            "p1: 0 acked; p1-1 was not acked: Refused(error=<ErrorCode.MESSAGE_TOO_LARGE: 10>)",
        ),
    ],
)
def test_what_it_has_to_say_at_the_end(story: str, last_line: str) -> None:
    assert run_story(parse(story)).actual.steps[-1].answer[-1] == last_line


def test_the_ledger_names_a_few_of_many_values() -> None:
    values = tuple(f"v{number}" for number in range(MANY + 1))
    batch = SentRecords(TopicPartition("t", 0), values, 1, AckedBatch(0))
    there = [ReadRecord(offset, value) for offset, value in enumerate(values)]
    assert loss_ledger([batch], there).lines()[0] == f"acked and committed  21  v0 v1 ... v{MANY}"
