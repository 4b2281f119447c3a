"""Records, topics and a cluster for stock clients, and a look at what they wrote."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import attrs
import trio
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from replication.cluster.cluster import Cluster, open_cluster
from replication.events import ConnectionRefused, Event
from replication.wire.metadata import INTERNAL_TOPICS
from storage.batch.compression import Codec
from storage.batch.record_batch import walk

T = TypeVar("T")

TOPIC = "topic"
PARTITIONS = 3
COUNT = 300
PATIENCE_SECONDS = 60
"""For whatever a client waits for: a busy machine takes its time."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@attrs.frozen
class Sample:
    """A record as a client sends it, and must get it back."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


def samples() -> list[Sample]:
    """Return records with and without keys, values and headers.

    Each is compressible by itself: clients send a batch as it is where a codec saves nothing,
    and how many records a batch gets depends on how busy the machine is.
    """
    return [
        Sample(
            partition=index % PARTITIONS,
            key=None if index % 4 == 0 else f"key {index} ".encode() * 10,
            value=None if index % 50 == 49 else f"value {index} ".encode() * 10,
            timestamp=1_600_000_000_000 + index,
            headers=(("one", b"1"), ("empty", b"")) if index % 5 == 0 else (),
        )
        for index in range(COUNT)
    ]


@asynccontextmanager
async def cluster_for_clients(**properties: str) -> AsyncIterator[Cluster]:
    """Three brokers, at which nobody may have stumbled when the block ends."""
    refused: list[Event] = []

    def note(event: Event) -> None:
        if isinstance(event, ConnectionRefused):
            refused.append(event)

    # A client with a group.id has the offsets topic made: fifty times three logs, by default.
    named = {"offsets.topic.num.partitions": "3"}
    named |= {key.replace("_", "."): value for key, value in properties.items()}
    async with open_cluster(brokers=3, properties=named, make_sink=lambda _: note) as cluster:
        yield cluster
    assert not refused, refused


def create_topic(
    servers: str,
    name: str = TOPIC,
    partitions: int = PARTITIONS,
    *,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic that all three brokers have."""
    admin = AdminClient({"bootstrap.servers": servers})  # what is asked is forgotten with it
    topic = NewTopic(name, partitions, 3, config=dict(config or {}))
    admin.create_topics([topic])[name].result(PATIENCE_SECONDS)


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """A blocking client, away from the loop that serves it."""
    return await trio.to_thread.run_sync(partial(work, *args))


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)  # real clients, in real time: they are asked again, with a bound


def stored_codecs(cluster: Cluster) -> set[Codec]:
    """The codec bits of every batch on the disks of the brokers (KAFKA-18659)."""
    found: set[Codec] = set()
    for broker in cluster.brokers.values():
        for topic_partition in broker.replica_manager.hosted.describe():
            if topic_partition.topic in INTERNAL_TOPICS:
                continue
            log = broker.logs.get(topic_partition)
            assert log is not None
            data = log.read(
                0, 1 << 30, max_offset_exclusive=log.log_end_offset, min_one=True
            ).records
            assert data is not None
            found |= {header.codec for _, header in walk(data.read())}
    return found
