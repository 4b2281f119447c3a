"""A broker that is flooded with connections refuses them, writes its files, and loses nothing."""

import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from replication.broker.nodes import HOST
from replication.cli.isolated import free_ports
from replication.cli.probe import broker_ids
from replication.cli.running import FILES_OF_A_NODE
from replication.errors import ErrorCode
from replication.net import production_seams
from replication.net.rpc import RpcClient
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.records import Record, encode_batch
from storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.cli.test_up import TIMEOUT, running, table_of
from tests.replication.broker.clients import Client

pytestmark = pytest.mark.slow

LIMIT = 2 * FILES_OF_A_NODE  # of a broker and its controller
TOPIC = TopicPartition("t", 0)
OFTEN = ("-X", "replica.high.watermark.checkpoint.interval.ms=100")


@contextmanager
def many_descriptors_here() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def is_refused(connection: socket.socket) -> bool:
    """Return whether the broker has closed it; an accepted connection is silent until it is used."""
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def flood(port: int) -> list[socket.socket]:
    """Connect until the broker refuses, and as often again: it keeps refusing."""
    held: list[socket.socket] = []
    while len(held) < LIMIT:
        held += [socket.create_connection((HOST, port), timeout=TIMEOUT) for _ in range(100)]
        if is_refused(held[-1]):
            return held
    raise AssertionError(f"{LIMIT} connections, and none was refused")


async def produced(client: RpcClient, value: bytes) -> None:
    batch = encode_batch([Record(offset=-1, timestamp=1, key=None, value=value)])
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=TOPIC.topic, partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    answer = await client.call(request, version=9, timeout_ms=10_000)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def checkpointed(directory: Path, offset: int) -> None:
    """Wait until the high watermark that a start would begin with is `offset`."""
    checkpoint = OffsetCheckpoint(OsFileSystem(), str(directory / HIGH_WATERMARK_CHECKPOINT))
    with trio.fail_after(TIMEOUT):
        while True:
            if checkpoint.read().get(TOPIC) == offset:
                return
            await trio.sleep(0.05)


@pytest.mark.deep
async def test_a_flood_of_connections_leaves_the_descriptors_kept_for_files(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    few = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh"]
    arguments = ["up", "-n", "1", "--base-port", str(port), "--data-dir", str(tmp_path), *OFTEN]
    logs = tmp_path / "broker-1" / "log"
    seams = production_seams()
    client = Client(seams)
    address = f"{HOST}:{port}"
    values = [f"value {number}".encode() for number in range(20)]
    with many_descriptors_here(), running(*arguments, before=few) as process:
        table_of(process, 1)
        topic_id = await client.create_topic(
            address, TOPIC.topic, replicas=1, segment_bytes="200", retention_ms="-1"
        )
        async with client.connected(address) as producer:
            await produced(producer, values[0])
            held = await trio.to_thread.run_sync(flood, port)
            assert len(held) >= LIMIT // 2
            for value in values[1:]:
                await produced(producer, value)
            await checkpointed(logs, len(values))
        assert process.poll() is None
        for connection in held:
            connection.close()
        with trio.fail_after(TIMEOUT):
            while True:  # until it has seen them end
                with suppress(OSError):
                    if await trio.to_thread.run_sync(broker_ids, HOST, port) == {1}:
                        break
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
    with running(*arguments) as process:
        table_of(process, 1)
        assert await client.read_all(address, topic_id) == values
