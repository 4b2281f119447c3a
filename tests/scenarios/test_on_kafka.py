"""Which commands of stories Apache Kafka can carry out, and how answers are compared."""

import re
from pathlib import Path

import pytest

from scenarios.story import on_kafka
from scenarios.story.commands import table
from scenarios.story.on_kafka import ComparedAnswer, obstacle_in, why_not
from scenarios.story.script import parse, read_story, stories

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stories.md"
HEADING = "## On Apache Kafka"


def test_each_command_is_carried_out_or_passed_over_or_refused_with_a_reason() -> None:
    ways = [on_kafka.COMMANDS.keys(), on_kafka.UNSEEN.keys(), on_kafka.IMPOSSIBLE.keys()]
    for verb in table.COMMANDS:
        assert sum(verb in way for way in ways) == 1, verb
    assert set().union(*ways) == table.COMMANDS.keys()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("power-cut b1", "no power is cut"),
        ("lie b1", "a disk that fails or lies"),
        ("slow b1 disk=200ms", "a disk that fails or lies"),
        ("slow b1 cpu=5ms", "the processors of this machine"),
        ("speed b1 1.1", "the clock of this machine"),
        ("slow b1 network=200ms", None),
        ("jump b1 1h", "the clock of this machine"),
        ("cluster brokers=3 controllers=3", "one controller"),
        ("cluster brokers=3 combined=3", "one controller"),
        ("cluster understudy.transaction.version=1", "a key of our brokers"),
        ("cluster brokers=5 broker.session.timeout.ms=3000", None),
        ("wait controllers", "one controller"),
        ("wait isr t-0 b1,b2", None),
        ("kill b1", None),
    ],
)
def test_a_command_is_refused_for_a_reason(line: str, reason: str | None) -> None:
    found = why_not(line)
    assert (found is None) if reason is None else (reason in (found or ""))


def test_an_obstacle_names_its_place() -> None:
    script = parse("# A title.\n\ncluster brokers=2\nkill b1\nwipe b1\nstart b1\n")
    assert str(obstacle_in(script)) == (
        "line 5, wipe b1: Apache Kafka cannot do that: a disk of Apache Kafka's nodes cannot be"
        " exchanged here"
    )


def test_the_page_has_each_story_and_why_some_cannot_run_there() -> None:
    rows = re.findall(
        r"^\| `([a-z0-9-]+)` \| (.+) \|$", PAGE.read_text().partition(HEADING)[2], re.MULTILINE
    )
    assert [name for name, _ in rows] == [*stories()]
    for name, result in rows:
        found = obstacle_in(read_story(stories()[name]))
        if found is None:
            assert result.startswith(("agrees", "differs", "not compared")), name
        else:
            assert result == f"cannot run, `{found.command.split()[0]}`: {found.reason}", name


def test_most_stories_can_run_there() -> None:
    able = [name for name, path in stories().items() if obstacle_in(read_story(path)) is None]
    assert len(able) > len(stories()) / 2


@pytest.mark.parametrize(
    ("command", "story", "kafka", "agree"),
    [
        (
            "wait leader t-0",
            "t-0: b1 leads in epoch 1, isr b1 b3",
            "t-0: b1 leads in epoch 1, isr b3 b1",
            True,
        ),
        (
            "wait leader t-0",
            "t-0: b1 leads in epoch 1, isr b1 b3",
            "t-0: b1 leads in epoch 1, isr b3",
            False,
        ),
        (
            "wait leader t-0",
            "t-0: b1 leads in epoch 1, isr b1",
            "t-0: b1 leads in epoch 2, isr b1",
            False,
        ),
        ("answers", "one: no answer: lost b1:9092", "one: no answer: lost 127.20.0.1:15000", True),
        ("answers", "one: no answer: lost b1:9092", "one: acked at 0", False),
        (
            "elect t-0 unclean",
            "refused, ELECTION_NOT_NEEDED",
            "refused, PREFERRED_LEADER_NOT_AVAILABLE",
            False,
        ),
    ],
)
def test_answers_are_compared_as_clients_see_them(
    command: str, story: str, kafka: str, agree: bool
) -> None:
    assert ComparedAnswer(1, command, (story,), (kafka,)).agrees is agree


def test_of_a_drawing_the_leader_counts() -> None:
    story = ("t-0: b1 leads in epoch 0, isr b1", "b1  [e0: 0-1]  HW 2  LEO 2  leads")
    assert ComparedAnswer(1, "show t-0", story, story[:1]).agrees
    assert not ComparedAnswer(
        1, "show t-0", story, ("t-0: nobody leads in epoch 0, isr b1",)
    ).agrees


def test_what_is_passed_over_agrees() -> None:
    assert ComparedAnswer(1, "events leader_elected", ("c: leader_elected",), None).agrees
