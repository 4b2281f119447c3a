"""`__consumer_offsets` both ways: groups that one broker wrote, loaded by the other.

Topic ids differ between the two clusters, so partitions that a member has by the files are of a
topic that the other cluster does not know: neither broker shows them, and both assign anew when
the member comes back.
"""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from replication.cli.isolated import IsolatedCluster
from storage.types import TopicPartition
from tests.interop import tools
from tests.interop.card.waiting import until
from tests.interop.kafka import SMALL, Kafka
from tests.interop.test_consumer_protocol import PARTITIONS, Broker, wait_for
from tests.interop.test_dump_log import files_of, kafkas_dump
from tests.interop.written import transplant

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC = GROUP = "grouped"
CLASSIC: Final = "classic-group"
# Nobody is missed between two brokers, however slow the machine is.
SESSIONS: Final = {
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
}
OURS: Final = {
    "offsets.topic.num.partitions": SMALL["offsets.topic.num.partitions"],
    "offsets.topic.replication.factor": "1",
    **SESSIONS,
}
MOVED: Final = [
    *(TopicPartition(TOPIC, number) for number in range(PARTITIONS)),
    *(
        TopicPartition("__consumer_offsets", n)
        for n in range(int(OURS["offsets.topic.num.partitions"]))
    ),
]


def write_groups(broker: Broker) -> None:
    """Leave a group of each protocol: offsets of both, and a static member of the new one."""
    count = len(broker.fill(TOPIC))
    reading = ["--topic", TOPIC, "--from-beginning", f"--max-messages={count}"]
    broker.ask(tools.CONSOLE_CONSUMER, *reading, f"--group={CLASSIC}", "--timeout-ms=60000")
    with member(broker) as running:
        wait_for(running, "offsets_committed")
        until(lambda: lags(broker, GROUP), lambda found: found == ["0"] * PARTITIONS)


def member(broker: Broker) -> AbstractContextManager[subprocess.Popen[str]]:
    return broker.verifiable(TOPIC, "--group-instance-id=one", "--reset-policy=earliest")


def lags(broker: Broker, group: str) -> list[str]:
    return [row[5] for row in broker.group(group, "--describe", "--offsets")]


def shown(broker: Broker, group: str) -> tuple[list[list[str]], ...]:
    """Return offsets, members and state, without addresses and partitions of a topic's id."""
    offsets = [row[1:4] for row in broker.group(group, "--describe", "--offsets")]
    members = [row[:5] + row[6:7] for row in broker.members(group)]
    state = [row[3:] for row in broker.group(group, "--describe", "--state", "--verbose")]
    return offsets, members, state


def assert_loaded(broker: Broker, before: dict[str, tuple[list[list[str]], ...]]) -> None:
    """The groups are as they were, and the static member comes back and reads on."""
    for group, (offsets, members, state) in before.items():
        now_offsets, now_members, now_state = shown(broker, group)
        assert [row[:3] for row in now_offsets] == offsets
        assert [row[:5] for row in now_members] == [row[:5] for row in members]
        assert [row[1:4] for row in now_state] == [row[1:4] for row in state]
    with member(broker) as running:
        wait_for(running, "partitions_assigned")
        (row,) = until(
            lambda: broker.members(GROUP), lambda found: [each[5] for each in found] == ["4"]
        )
        assert row[2] == "one"
        assert lags(broker, GROUP) == ["0"] * PARTITIONS


def all_shown(broker: Broker) -> dict[str, tuple[list[list[str]], ...]]:
    return {group: shown(broker, group) for group in (GROUP, CLASSIC)}


def test_our_coordinator_loads_what_kafka_wrote(tmp_path: Path) -> None:
    with IsolatedCluster(tmp_path / "ours", brokers=1, config=OURS) as ours:
        ours.wait_until_ready()
        write_groups(Broker(ours.bootstrap_servers))  # the topics, for their ids
    with Kafka(data_dir=tmp_path / "kafka", properties=SESSIONS) as kafka:
        write_groups(Broker(kafka.bootstrap_servers))
        before = all_shown(Broker(kafka.bootstrap_servers))
        kafka.stop(1)
        transplant(kafka.log_dirs[1], ours.log_dir(1), MOVED)
    with IsolatedCluster(tmp_path / "ours", brokers=1, config=OURS) as ours:
        ours.wait_until_ready()
        assert_loaded(Broker(ours.bootstrap_servers), before)


def test_kafkas_coordinator_loads_what_we_wrote(tmp_path: Path) -> None:
    with IsolatedCluster(tmp_path / "ours", brokers=1, config=OURS) as ours:
        ours.wait_until_ready()
        write_groups(Broker(ours.bootstrap_servers))
        before = all_shown(Broker(ours.bootstrap_servers))
    with Kafka(data_dir=tmp_path / "kafka", properties=SESSIONS) as kafka:
        write_groups(Broker(kafka.bootstrap_servers))  # the topics, for their ids
        kafka.stop(1)
        transplant(ours.log_dir(1), kafka.log_dirs[1], MOVED)
        kafka.start(1)
        assert_loaded(Broker(kafka.bootstrap_servers), before)
        said = kafka.output(1)
    assert not [line for line in said.splitlines() if "ERROR" in line and "__consumer" in line]
    logs = [
        file for file in files_of(ours.log_dir(1), "__consumer_offsets") if file.suffix == ".log"
    ]
    written = [file for file in logs if file.stat().st_size]
    dumped = kafkas_dump(written, "--offsets-decoder", "--print-data-log")
    assert dumped.errors == ""
    # The values of ConsumerGroupMetadata, CurrentMemberAssignment and TargetAssignmentMember.
    for text in ('"instanceId":"one"', '"assignedPartitions":', '"topicPartitions":', '"epoch":'):
        assert text in dumped.output, text
