"""What foreign bytes can do to a broker: nothing.

A real broker on TCP; each case is sent on a connection of its own while a well-behaved
one goes on asking. Kafka's error where the protocol has one, else the connection is closed.
"""

import resource
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio

from replication.cluster.cluster import Cluster, open_cluster
from replication.errors import ErrorCode
from replication.net import production_seams
from replication.net.rpc import RpcClient
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.frames import encode_request
from replication.wire.metadata import MetadataRequest
from replication.wire.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from storage.batch.records import Record, encode_batch

TOPIC = "t"
MAX_BYTES = 2000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(brokers=1, data_dir=str(tmp_path)) as cluster:
        client = await connect(cluster)
        config = CreatableTopicConfig(name="max.message.bytes", value=str(MAX_BYTES))
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=[config])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response = await client.call(request, version=7, timeout_ms=10_000)
        assert [one.error_code for one in response.topics] == [0]
        client.close()
        yield cluster


async def connect(cluster: Cluster) -> RpcClient:
    host, port = cluster.bootstrap_list[0].split(":")
    seams = production_seams()
    return await RpcClient.connect(
        seams.transport, host, int(port), client_id="test", clock=seams.clock, timeout_ms=10_000
    )


@asynccontextmanager
async def raw(cluster: Cluster) -> AsyncIterator[trio.SocketStream]:
    host, port = cluster.bootstrap_list[0].split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield stream


async def closes(stream: trio.SocketStream) -> bool:
    """Return whether the broker closes this connection without an answer."""
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, 1) + b"x" + (b"\0" if flexible else b"")


HOSTILE = {
    "garbage": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "a frame of 2 GiB": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "a negative frame length": struct.pack(">i", -5),
    "an array of two billion": frame(header(3, 4) + struct.pack(">i", 2_000_000_000)),
    "a truncated body": frame(header(3, 4) + struct.pack(">ih", 1, 50) + b"short"),
    "an unknown API": frame(header(999, 0)),
    "an unknown version": frame(header(3, 99)),
    "a string that is no UTF-8": frame(header(3, 4) + struct.pack(">ih", 1, 2) + b"\xff\xfe\0"),
    "an empty frame": frame(b""),
}


@pytest.mark.parametrize("bytes_sent", HOSTILE.values(), ids=HOSTILE)
async def test_the_connection_closes_and_the_others_notice_nothing(
    cluster: Cluster, bytes_sent: bytes
) -> None:
    neighbour = await connect(cluster)
    ends = log_ends(cluster)
    async with raw(cluster) as stream:
        await stream.send_all(bytes_sent)
        assert await closes(stream)
    answer = await neighbour.call(MetadataRequest(topics=None), version=9, timeout_ms=10_000)
    assert [topic.name for topic in answer.topics] == [TOPIC]
    assert log_ends(cluster) == ends
    neighbour.close()


async def test_memory_does_not_move_for_what_is_only_announced(cluster: Cluster) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with trio.open_nursery() as nursery:
        for announced in range(50):
            nursery.start_soon(announce, cluster, 100 * 1024 * 1024 - announced)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 50 * 1024  # 5 GB were announced


async def announce(cluster: Cluster, size: int) -> None:
    async with raw(cluster) as stream:
        await stream.send_all(struct.pack(">i", size) + b"x" * 1000)


@pytest.mark.parametrize(
    "sent", [2, 4, 20, None], ids=["in the length", "after it", "in the body", "whole"]
)
async def test_a_client_that_is_gone_in_the_middle_of_a_request_is_nobodys_trouble(
    cluster: Cluster, sent: int | None
) -> None:
    """Its fetch may wait for bytes meanwhile; the reset is found when there is an answer."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    waiting = FetchRequest(
        max_wait_ms=100, min_bytes=1 << 20, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
    )
    parts = encode_request(waiting, version=11, correlation_id=1, client_id="x")
    request = b"".join(map(bytes, cast("list[bytes]", parts)))
    async with raw(cluster) as stream:
        await stream.send_all(request[:sent])
        reset = struct.pack("ii", 1, 0)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    neighbour = await connect(cluster)
    # It waits as long, and is answered after the one that is gone would have been.
    answer = await neighbour.call(waiting, version=11, timeout_ms=10_000)
    assert [data.error_code for data in answer.responses[0].partitions] == [ErrorCode.NONE]
    neighbour.close()


async def test_an_unknown_tag_is_skipped(cluster: Cluster) -> None:
    """A newer peer may send tags that we do not know (KIP-482)."""
    tags = b"\x01\x63\x02hi"  # one tag, number 99, two bytes
    body = b"\0" + b"\0" + b"\0" + tags  # no topics, no auto creation, no authorised operations
    async with raw(cluster) as stream:
        await stream.send_all(frame(header(3, 11)[:-1] + b"x" + b"\0" + body))
        assert (await stream.receive_some())[4:8] == struct.pack(">i", 1)


def produce(records: bytes, *, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )


def sound() -> bytes:
    return encode_batch([Record(timestamp=1, value=b"v")])


def with_bad_crc() -> bytes:
    return sound()[:-1] + b"\xff"


def with_wrong_offset() -> bytes:
    return encode_batch([Record(timestamp=1, value=b"v")], base_offset=7)


def too_large() -> bytes:
    return encode_batch([Record(timestamp=1, value=b"v" * MAX_BYTES)])


def two_batches() -> bytes:
    return sound() + sound()


REFUSED: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "a bad CRC": (with_bad_crc, ErrorCode.CORRUPT_MESSAGE),
    "a base offset that is not zero": (with_wrong_offset, ErrorCode.INVALID_RECORD),
    "a batch over max.message.bytes": (too_large, ErrorCode.MESSAGE_TOO_LARGE),
    "more than one batch": (two_batches, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("make", "code"), REFUSED.values(), ids=REFUSED)
async def test_a_batch_that_breaks_a_rule_gets_kafkas_error(
    cluster: Cluster, make: Callable[[], bytes], code: ErrorCode
) -> None:
    client = await connect(cluster)
    assert await error_of(client.call(produce(make()), version=9, timeout_ms=10_000)) == code
    assert log_ends(cluster) == {0}
    assert await error_of(client.call(produce(sound()), version=9, timeout_ms=10_000)) == 0
    assert log_ends(cluster) == {1}
    client.close()


async def error_of(call: Awaitable[ProduceResponse]) -> int:
    (topic,) = (await call).responses
    (partition,) = topic.partition_responses
    return partition.error_code


def log_ends(cluster: Cluster) -> set[int]:
    """The log end offsets of the topic's only replica."""
    described = cluster.brokers[1].replica_manager.hosted.describe()
    return {state.log_end_offset for tp, state in described.items() if tp.topic == TOPIC}
