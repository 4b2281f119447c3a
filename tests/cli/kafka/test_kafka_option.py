"""`understudy scenario run --on kafka`: what is refused, in one line, before anything starts."""

from pathlib import Path

import pytest

from replication.cli import main
from replication.cli.kafka.cluster import scaled
from replication.cli.kafka.running import KafkaWords


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["scenario", "run", *arguments])
    assert ended.value.code != 0
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.strip().splitlines()[-1]


def test_a_fault_that_kafka_cannot_have_is_named_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refusal(capsys, "a-torn-write", "--on", "kafka").startswith("understudy: line ")


def test_a_story_that_is_not_there_has_a_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "two-logs-of-one-lenght", "--on", "kafka")
    assert "did you mean two-logs-of-one-length?" in said


def test_no_kafka_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    asked = ["swizzled", "--on", "kafka"]
    assert "set KAFKA_HOME or --kafka-home" in refusal(capsys, *asked)
    assert "it is no Apache Kafka" in refusal(capsys, *asked, "--kafka-home", str(tmp_path))


@pytest.mark.parametrize("option", ["--seed=3", "--record", "--trace", "--report=a.html"])
def test_options_of_the_simulator_are_refused(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert "needs the simulator" in refusal(capsys, "swizzled", "--on", "kafka", option)


def test_options_of_kafka_are_refused_in_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--speed needs --on kafka" in refusal(capsys, "swizzled", "--speed", "2")


def test_times_are_divided_by_the_speed() -> None:
    given = {"a.ms": "9000", "b.ms": "-1", "c.ms": "0", "d.ms": "1", "e.bytes": "9000"}
    assert scaled(given, 3) == {**given, "a.ms": "3000", "d.ms": "1"}
    assert scaled(given, 1) == given


def test_small_segments_are_topics_alone() -> None:
    words = KafkaWords(2)
    assert words.of("cluster brokers=2 log.segment.bytes=100") == "cluster brokers=2"
    assert words.of("topic t replicas=b1") == "topic t replicas=b1 internal.segment.bytes=100"
    assert words.of("topic u replicas=b1 segment.bytes=200 retention.ms=500") == (
        "topic u replicas=b1 retention.ms=250 internal.segment.bytes=200"
    )
    assert words.of("alter t retention.ms=500") == "alter t retention.ms=250"
    assert words.of("produce t-0 timeout.ms=500 one") == "produce t-0 timeout.ms=500 one"
