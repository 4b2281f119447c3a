"""Topics with everything in them that a partition's files can hold, written to whatever cluster.

PREFIX-codecs         a batch of each codec; headers, null keys and values
PREFIX-transactions   committed, aborted and none, by two producers
PREFIX-compacted      three segments, of which a cleaner has seen all but the last
PREFIX-trimmed        its first records deleted
"""

import random
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from replication import open_cluster
from replication.client.admin import Admin, NewTopic
from replication.client.consumer import Consumer
from replication.client.producer import Producer
from storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from storage.filesystem import OsFileSystem
from storage.types import Offset, TopicPartition
from tests.interop.own_clients import SECONDS, asked_until, leaders_of

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TRIMMED: Final = 7
OFFSET_CHECKPOINTS: Final = (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
# What both clusters need, so that a cleaner comes soon.
PROPERTIES: Final = {"log.cleaner.backoff.ms": "200", "log.cleaner.enable": "true"}

_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # Kafka 4 takes no less
    "min.cleanable.dirty.ratio": "0.01",
}


def topics_of(prefix: str) -> dict[str, TopicPartition]:
    names = ("codecs", "transactions", "compacted", "trimmed")
    return {name: TopicPartition(f"{prefix}-{name}", 0) for name in names}


async def make_topics(servers: str, prefix: str) -> None:
    topics = topics_of(prefix)
    async with Admin(servers) as admin:
        await admin.create_topics(
            NewTopic(
                name=tp.topic,
                partitions=1,
                replication_factor=1,
                configs=_COMPACTED if name == "compacted" else {},
            )
            for name, tp in topics.items()
        )
        for tp in topics.values():
            await asked_until(partial(leaders_of, admin, tp.topic), _all_led)


def _all_led(leaders: list[int]) -> bool:
    return min(leaders) >= 0


async def write(servers: str, prefix: str, log_dir: Path) -> None:
    """Into the topics that are there; `log_dir` tells when the cleaner has been."""
    topics = topics_of(prefix)
    await _codecs(servers, topics["codecs"].topic)
    await _transactions(servers, topics["transactions"].topic)
    await _trimmed(servers, topics["trimmed"])
    async with producer_at(servers, compression_type="lz4") as producer:
        for number in range(30):
            value = None if number % 10 == 9 else random_text(number)
            await producer.send(
                topics["compacted"].topic, value, key=b"%d" % (number % 6), partition=0
            )
    async with Consumer(
        topics["codecs"].topic, bootstrap_servers=servers, group_id=prefix
    ) as group:
        await group.getmany(timeout_ms=5000)
        await group.commit()
    await until_cleaned(log_dir, topics["compacted"])


def producer_at(servers: str, **config: Any) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers=servers, **config)


def random_text(seed: int) -> bytes:
    """Return a value that a codec makes half as large, and that is the same in each run."""
    return random.Random(seed).randbytes(100_000).hex().encode()


async def _codecs(servers: str, topic: str) -> None:
    for codec in CODECS:
        async with producer_at(servers, compression_type=codec, linger_ms=50) as producer:
            await producer.send_many(
                topic,
                [f"{codec} {number} ".encode() * 20 for number in range(20)],
                partition=0,
            )
            headers = [("one", b"1"), ("none", None)]
            await producer.send(topic, None, key=b"key", headers=headers, partition=0)


async def _transactions(servers: str, topic: str) -> None:
    async with (
        producer_at(servers, transactional_id=f"{topic}-1") as one,
        producer_at(servers, transactional_id=f"{topic}-2") as other,
        producer_at(servers) as none,
    ):
        for number in range(4):
            one.begin_transaction()
            other.begin_transaction()
            for producer in (one, other, none):
                await producer.send(topic, b"%d" % number, key=b"k", partition=0)
            await one.commit_transaction()
            await (other.abort_transaction if number % 2 else other.commit_transaction)()


async def _trimmed(servers: str, partition: TopicPartition) -> None:
    async with producer_at(servers) as producer, Admin(servers) as admin:
        for number in range(20):
            await producer.send(partition.topic, b"%d" % number, partition=0)
        await admin.delete_records({partition: TRIMMED})


def cleaned(log_dir: Path, partition: TopicPartition) -> Offset:
    checkpoint = OffsetCheckpoint(OsFileSystem(), str(log_dir / CLEANER_CHECKPOINT))
    return checkpoint.read().get(partition, 0)


async def until_cleaned(log_dir: Path, partition: TopicPartition) -> None:
    with trio.fail_after(SECONDS):
        while not cleaned(log_dir, partition):  # noqa: ASYNC110 - a file tells
            await trio.sleep(0.1)


def transplant(source: Path, target: Path, partitions: list[TopicPartition]) -> None:
    """Partitions' files into another cluster's directory, where they keep its topics' ids; and
    what the checkpoints of theirs say of them.
    """
    for partition in partitions:
        directory = target / str(partition)
        metadata = (directory / "partition.metadata").read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(source / str(partition), directory)
        (directory / "partition.metadata").write_bytes(metadata)
    for name in OFFSET_CHECKPOINTS:
        ours = OffsetCheckpoint(OsFileSystem(), str(source / name)).read()
        theirs = OffsetCheckpoint(OsFileSystem(), str(target / name))
        theirs.write(theirs.read() | {each: ours[each] for each in partitions if each in ours})


def copy_of_running(log_dir: Path, copy: Path) -> Path:
    """Copy the files as a crash would leave them, while they are being written."""
    for _ in range(5):
        try:
            shutil.copytree(log_dir, copy)
        except shutil.Error:  # a file went away in between
            shutil.rmtree(copy, ignore_errors=True)
            time.sleep(0.2)  # the broker is at work on these files: tried again, five times
        else:
            return copy
    raise AssertionError(f"{log_dir} does not keep still")


@attrs.frozen
class Written:
    """A broker's log directory: after its shutdown, and as a crash would have left it."""

    clean: Path
    unclean: Path


async def write_ours(directory: Path) -> Written:
    """Write the topics with a broker of ours."""
    log_dir = directory / "data" / "broker-1" / "log"
    async with open_cluster(
        brokers=1, data_dir=str(directory / "data"), properties=PROPERTIES
    ) as cluster:
        await make_topics(cluster.bootstrap_servers, "ours")
        await write(cluster.bootstrap_servers, "ours", log_dir)
        return Written(log_dir, copy_of_running(log_dir, directory / "unclean"))
