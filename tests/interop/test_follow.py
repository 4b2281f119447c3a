"""`understudy follow` of Apache Kafka: what its brokers have on disk is what the copy has."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition as At

from replication import open_cluster
from replication.client.admin import Admin
from replication.verify import verify_directories
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.clients.sample import CODECS
from tests.interop.kafka import CLUSTER_ID, Kafka
from tests.interop.own_clients import leaders_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SECONDS = 120.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    cleaning = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "0"}
    directory = tmp_path_factory.mktemp("followed")
    with Kafka(data_dir=directory, brokers=3, properties=cleaning) as kafka:
        yield kafka


def produce(kafka: Kafka, topic: str, count: int, **config: str) -> None:
    """Produce `count` records with each codec, with headers."""
    for codec in CODECS:
        given = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
        producer = Producer(given | {key.replace("_", "."): v for key, v in config.items()})
        for number in range(count):
            value = f"{codec} {number} ".encode() * 20
            key = b"%d" % (number % 5)
            producer.produce(topic, value, key, headers={"codec": codec.encode()})
        assert producer.flush(SECONDS) == 0


def transact(kafka: Kafka, topic: str) -> None:
    """One transaction that is committed, one that is aborted, and one more."""
    given = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "followed"}
    producer = Producer(given)
    producer.init_transactions(SECONDS)
    for round_number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"%d/%d" % (round_number, number))
        if commits:
            producer.commit_transaction(SECONDS)
        else:
            assert producer.flush(SECONDS) == 0
            producer.abort_transaction(SECONDS)


def until(what: str, seconds: float = SECONDS) -> Iterator[None]:
    """Yield once for each look; fail when the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.2)  # Kafka tells nobody: it is looked at again
    pytest.fail(f"not within {seconds:g} s: {what}")


def compact(kafka: Kafka, topic: str) -> None:
    """Values for few keys, until the cleaner of every broker has taken most of them."""
    for _ in until(f"{topic} is compacted"):
        produce(kafka, topic, 20)  # also what makes the segment before it old enough to be closed
        time.sleep(1)  # segment.ms has to pass, and then the cleaner's back-off
        marks = [d / "cleaner-offset-checkpoint" for d in kafka.log_dirs.values()]
        if all(mark.exists() and f"{topic} 0" in mark.read_text() for mark in marks):
            return


def understudy(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "replication.cli", *arguments]


def follow_until_caught_up(kafka: Kafka, copy: Path, *arguments: str) -> None:
    command = understudy("follow", "--to", str(copy), "--until-caught-up", *arguments)
    command += ["--bootstrap-server", kafka.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def ends_of(copy: Path) -> dict[str, int]:
    """Return the log end offsets in `mirror.json`."""
    path = copy / "mirror.json"
    if not path.exists():
        return {}
    topics = json.loads(path.read_text())["topics"]
    return {
        f"{name}-{number}": each["log_end_offset"]
        for name, topic in topics.items()
        for number, each in topic["partitions"].items()
    }


async def leader_of(kafka: Kafka, topic: str) -> int:
    async with Admin(kafka.bootstrap_servers) as admin:
        (leader,) = await leaders_of(admin, topic)
    return leader


def differences(kafka: Kafka, leaders: dict[str, int], copy: Path) -> list[str]:
    """Return the partitions whose bytes differ between the copy and a leader's log directory."""
    found = []
    for topic, leader in leaders.items():
        directories = [str(kafka.log_dirs[leader]), str(copy / "broker-1/log")]
        compared = verify_directories(OsFileSystem(), directories, copies=2)
        [each] = [r for r in compared.partitions if r.partition == TopicPartition(topic, 0)]
        found += [] if ": same in 2 copies" in str(each) else [str(each)]
    return found


def test_a_copy_is_what_the_brokers_have_whatever_dies(three: Kafka, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    topics = ("plain", "transactional", "compacted")
    three.create_topic("plain", replicas=3)
    three.create_topic("transactional", replicas=3)
    three.create_topic(
        "compacted",
        replicas=3,
        cleanup_policy="compact",
        segment_ms="500",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="1000",
    )
    produce(three, "plain", 50)
    transact(three, "transactional")
    compact(three, "compacted")
    named = [argument for topic in topics for argument in ("--topic", topic)]
    servers = ["--bootstrap-server", three.bootstrap_servers]
    follower = subprocess.Popen(understudy("follow", "--to", str(copy), *servers, *named))
    try:
        for _ in until("all is copied"):
            if min((ends_of(copy).get(f"{topic}-0", 0) for topic in topics), default=0) > 0:
                break
    finally:
        follower.kill()
        follower.wait()
    victim = trio.run(leader_of, three, "plain")
    three.kill(victim)
    produce(three, "plain", 50, acks="all")
    follow_until_caught_up(three, copy, *named)
    leaders = {topic: trio.run(leader_of, three, topic) for topic in topics}
    assert victim not in leaders.values()
    assert differences(three, leaders, copy) == []
    assert ends_of(copy)["plain-0"] == 2 * 50 * len(CODECS)
    three.start(victim)


def test_groups_offsets_are_copied_and_a_promoted_copy_has_them(
    three: Kafka, tmp_path: Path
) -> None:
    three.create_topic("read", replicas=3)
    produce(three, "read", 20)
    given = {"bootstrap.servers": three.bootstrap_servers, "group.id": "readers"}
    reader = Consumer(given | {"auto.offset.reset": "earliest"})
    reader.subscribe(["read"])
    for _ in until("the group has read"):
        if (read := reader.poll(1)) is not None and read.offset() == 41:
            break
    reader.commit(offsets=[At("read", 0, 42)], asynchronous=False)
    reader.close()
    copy = tmp_path / "copy"
    follow_until_caught_up(three, copy, "--topic", "read", "--groups")
    promote = understudy("promote", str(copy), "--execute", "--offline")
    subprocess.run(promote, timeout=SECONDS, check=True)
    assert trio.run(goes_on_reading_at, copy) == (42, 42)


async def goes_on_reading_at(copy: Path) -> tuple[int, int]:
    """Return what the group has committed, and what it reads next, from a cluster of ours."""
    own = {"cluster.id": CLUSTER_ID}
    async with open_cluster(brokers=1, data_dir=str(copy), properties=own) as cluster:
        async with cluster.admin() as admin:
            offsets = await admin.list_group_offsets("readers")
        async with cluster.consumer("read", group_id="readers") as consumer:
            first = await anext(aiter(consumer))
    return offsets[TopicPartition("read", 0)].offset, first.offset
