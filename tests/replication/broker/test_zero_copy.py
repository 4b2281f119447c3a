"""Record bytes go from the socket to the file, and from the file to the socket, untouched.

Two brokers on TCP, each behind a transport and a file system that note which memory the
bytes of a batch were received into, and which memory was written to a log.
"""

import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from replication.cluster.cluster import Cluster, open_cluster
from replication.net import production_seams
from replication.net.seams import Connection, Listener, Seams, Transport
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.records import Record, encode_batch
from storage.filesystem import File, FileSystem
from storage.log.file_region import FileRegion
from storage.types import Buffer, TopicPartition
from tests.replication.broker.clients import Client

TOPIC = "t"
MIB = 1024 * 1024
LARGE = 64 * 1024  # what is smaller than this is no batch of these tests


@attrs.define
class Notes:
    """The memory that large pieces of bytes lay in; identities of the objects behind views."""

    received_into: set[int] = attrs.field(factory=set)
    written_from: list[object] = attrs.field(factory=list)
    regions_sent: list[int] = attrs.field(factory=list)
    buffers_sent: list[int] = attrs.field(factory=list)


@attrs.define
class NotedConnection:
    inner: Connection
    notes: Notes

    @property
    def peer(self) -> str:
        return self.inner.peer

    @property
    def moved(self) -> int:
        return self.inner.moved

    @property
    def gathers_up_to(self) -> int:
        return self.inner.gathers_up_to

    async def receive_into(self, buffer: memoryview) -> int:
        if len(buffer) >= LARGE:
            self.notes.received_into.add(id(buffer.obj))
        return await self.inner.receive_into(buffer)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.notes.buffers_sent += [len(buffer) for buffer in buffers if len(buffer) >= LARGE]
        await self.inner.send_buffers(buffers)

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return buffers

    async def send_region(self, region: FileRegion) -> None:
        assert region.file.descriptor() is not None  # sendfile has what it needs
        self.notes.regions_sent.append(region.size)
        await self.inner.send_region(region)

    def close(self) -> None:
        self.inner.close()


@attrs.define
class NotedListener:
    inner: Listener
    notes: Notes

    @property
    def host(self) -> str:
        return self.inner.host

    @property
    def port(self) -> int:
        return self.inner.port

    async def accept(self) -> Connection:
        return NotedConnection(await self.inner.accept(), self.notes)

    def close(self) -> None:
        self.inner.close()


@attrs.define
class NotedTransport:
    inner: Transport
    notes: Notes

    async def listen(self, host: str, port: int) -> Listener:
        return NotedListener(await self.inner.listen(host, port), self.notes)

    async def connect(self, host: str, port: int) -> Connection:
        return NotedConnection(await self.inner.connect(host, port), self.notes)


class NotedFile:
    """A file whose large writes are noted; all else is the file's own."""

    def __init__(self, inner: File, notes: Notes) -> None:
        self._inner, self._notes = inner, notes

    def write(self, position: int, buffer: Buffer) -> None:
        if len(buffer) >= LARGE:
            assert isinstance(buffer, memoryview)
            self._notes.written_from.append(buffer.obj)
        self._inner.write(position, buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class NotedFileSystem:
    def __init__(self, inner: FileSystem, notes: Notes) -> None:
        self._inner, self._notes = inner, notes

    def open(self, path: str, *, create: bool = False) -> Any:
        return NotedFile(self._inner.open(path, create=create), self._notes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@asynccontextmanager
async def noted_cluster() -> AsyncIterator[tuple[Cluster, dict[int, Notes]]]:
    notes = {node: Notes() for node in range(3)}

    def make_seams(node: int) -> Seams:
        seams = production_seams()
        return attrs.evolve(
            seams,
            transport=NotedTransport(seams.transport, notes[node]),
            file_system=NotedFileSystem(seams.file_system, notes[node]),
        )

    properties = {"message.max.bytes": str(64 * MIB), "default.replication.factor": "2"}
    async with open_cluster(brokers=2, properties=properties, make_seams=make_seams) as cluster:
        yield cluster, notes


def request_of(size: int) -> ProduceRequest:
    data = PartitionProduceData(
        index=0, records=encode_batch([Record(timestamp=1, value=b"v" * size)])
    )
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )


async def leader_of(cluster: Cluster) -> int:
    """Who leads the only partition, once it knows that it does and its follower is in sync."""

    def leads() -> bool:
        leader = cluster.leader(TOPIC, 0)
        if leader is None:
            return False
        held = (
            cluster.brokers[leader].replica_manager.hosted.describe().get(TopicPartition(TOPIC, 0))
        )
        return held is not None and held.is_leader and len(held.isr) == 2

    await cluster.until(leads, what="the leader leads")
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    return leader


async def test_what_is_written_is_a_view_of_the_receive_buffer() -> None:
    async with noted_cluster() as (cluster, notes):
        client = Client(production_seams())
        await client.create_topic(cluster.bootstrap_list[0], TOPIC, replicas=2)
        leader = await leader_of(cluster)
        follower = 3 - leader
        response = await client.ask(cluster.bootstrap_list[leader - 1], request_of(MIB))
        assert response.responses[0].partition_responses[0].error_code == 0
        # acks=all: both have written it. The leader received it from us, the follower from it.
        for node in (leader, follower):
            assert len(notes[node].written_from) == 1
            assert id(notes[node].written_from[0]) in notes[node].received_into
        # The leader sent it from the file, and no buffer of that size.
        assert [size for size in notes[leader].regions_sent if size > MIB]
        assert notes[leader].buffers_sent == []


async def test_peak_memory_does_not_grow_with_the_batch() -> None:
    async with noted_cluster() as (cluster, notes):
        client = Client(production_seams())
        await client.create_topic(cluster.bootstrap_list[0], TOPIC, replicas=2)
        leader = await leader_of(cluster)
        peaks = []
        for size in (MIB, 16 * MIB):
            request = request_of(size)
            tracemalloc.start()
            response = await client.ask(cluster.bootstrap_list[leader - 1], request)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert response.responses[0].partition_responses[0].error_code == 0
        assert peaks[1] < peaks[0] + MIB / 2
        assert sum(len(each.written_from) for each in notes.values()) == 4
