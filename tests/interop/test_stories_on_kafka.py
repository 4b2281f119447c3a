"""Stories on Apache Kafka: the same script on its brokers as processes gives the same answers."""

import pytest

from replication.cli.kafka.running import run_on_kafka
from scenarios.story.script import find_story, read_story
from tests.interop.kafka import command_of

pytestmark = pytest.mark.interop

SPEED = 3.0


@pytest.mark.parametrize(
    "name",
    [
        "a-change-of-the-isr-whose-answer-is-lost",
        "a-consumer-in-another-rack",
        "a-divergence-of-an-earlier-leader-epoch",
    ],
)
def test_a_story_agrees(name: str) -> None:
    run = run_on_kafka(read_story(find_story(name)), command=command_of(None), speed=SPEED)
    assert run.agrees, "\n".join(run.lines("here"))
