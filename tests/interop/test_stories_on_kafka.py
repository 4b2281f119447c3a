"""Stories on Apache Kafka: the same script on its brokers as processes gives the same answers.

They run in real time, so that on a busy machine a story may differ: `make interop` runs them, and
not each submission.
"""

import json
import os
import re
from pathlib import Path

import pytest

from replication.cli import main
from replication.cli.kafka.running import run_on_kafka
from scenarios.story.script import find_story, read_story
from tests.interop.jars import class_path, kafka_version
from tests.interop.kafka import command_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SPEED = 3.0


@pytest.mark.parametrize(
    "name",
    [
        "a-broker-started-again-knows-the-last-batch",
        "a-change-of-the-isr-whose-answer-is-lost",
        "a-consumer-in-another-rack",
        "a-divergence-of-an-earlier-leader-epoch",
        "a-fetch-that-diverges-is-no-progress",
        "a-follower-comes-before-a-consumer",
        "a-log-that-begins-later-on-every-replica",
        "a-log-that-is-cut-where-its-segment-begins",
        "a-new-leader-that-does-not-know-yet-what-is-committed",
        "a-number-used-again-is-not-taken-for-the-old-one",
        "a-producer-nobody-knows-may-begin-anywhere",
        "a-producer-without-numbers-writes-twice",
    ],
)
def test_a_story_agrees(name: str) -> None:
    run = run_on_kafka(read_story(find_story(name)), command=command_of(None), speed=SPEED)
    assert run.agrees, "\n".join(run.lines("here"))


@pytest.fixture
def kafka_home(tmp_path: Path) -> Path:
    """A release as it is unpacked: its jars, in `libs`."""
    if "KAFKA_HOME" in os.environ:
        return Path(os.environ["KAFKA_HOME"])
    (tmp_path / "libs").mkdir()
    jars = [Path(jar) for jar in class_path().split(os.pathsep)]
    artifacts = {re.sub(r"-\d[\w.-]*$", "", jar.name): jar for jar in reversed(jars)}
    for jar in artifacts.values():  # of two versions the first, as in a class path
        (tmp_path / "libs" / jar.name).symlink_to(jar)
    return tmp_path


def test_the_command_runs_a_story_there(
    kafka_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = "a-request-of-another-leader-epoch-is-refused"
    given = ["--on", "kafka", "--kafka-home", str(kafka_home), "--speed", "3", "--output", "json"]
    with pytest.raises(SystemExit) as ended:
        main(["scenario", "run", story, *given])
    answer = json.loads(capsys.readouterr().out)
    assert (ended.value.code, answer["agrees"], answer["failure"]) == (0, True, None)
    assert (answer["name"], answer["kafka_version"]) == (story, kafka_version())
    assert all(each["agrees"] for each in answer["commands"])
