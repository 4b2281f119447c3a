"""The fetch session experiment (KIP-227): twelve kilobytes, or thirty-three bytes.

Two real brokers on TCP, and a topic `test` of 1000 partitions on both: each leads 500 and
follows 500. What a follower's fetch weighs is read from the wire, and from the broker's
RequestBytes metric; the two must agree.

    version     full                     incremental, nothing to say
    6           12,031 = 31 + 500 x 24   there are no sessions
    7           12,043 = 43 + 500 x 24   33
    12 to 14                             29
    15 and on                            40: ReplicaState travels as a tagged struct (KIP-903)
"""

from collections.abc import Sequence

import attrs
import pytest
import trio

from replication.cluster.cluster import Cluster, open_cluster
from replication.net import production_seams
from replication.net.rpc import RpcClient
from replication.net.seams import Connection, Listener, Seams, Transport
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from storage.log.file_region import FileRegion
from storage.types import Buffer

pytestmark = pytest.mark.slow

PARTITIONS = 1000
FEW = 50  # where a full fetch has been weighed already: one that says nothing names none
FETCH = 1
FULL = {6: 12_031, 7: 12_043}
INCREMENTAL = {7: 33, 12: 29, 14: 29, 15: 40, 17: 40}


@attrs.define
class RecordingConnection:
    """A connection that notes the body size of every Fetch sent over it."""

    inner: Connection
    bodies: list[int]

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
        return await self.inner.receive_into(buffer)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        frame = b"".join(buffers)
        if int.from_bytes(frame[4:6], "big") == FETCH:
            self.bodies.append(len(frame) - 4 - header_size(frame))
        await self.inner.send_buffers(buffers)

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return buffers

    async def send_region(self, region: FileRegion) -> None:
        await self.inner.send_region(region)

    def close(self) -> None:
        self.inner.close()


@attrs.define
class RecordingTransport:
    """Connections made to `port` are recorded: to the other broker, not to the controller."""

    inner: Transport
    bodies: dict[int, list[int]] = attrs.field(factory=dict)

    async def listen(self, host: str, port: int) -> Listener:
        return await self.inner.listen(host, port)

    async def connect(self, host: str, port: int) -> Connection:
        connection = await self.inner.connect(host, port)
        return RecordingConnection(connection, self.bodies.setdefault(port, []))


def header_size(frame: bytes) -> int:
    """Key, version, correlation id, client id; and a byte of tags in flexible versions."""
    version = int.from_bytes(frame[6:8], "big")
    return 10 + int.from_bytes(frame[12:14], "big") + (version >= 12)


async def create_topic(cluster: Cluster, partitions: int) -> None:
    host, port = cluster.bootstrap_list[0].split(":")
    seams = production_seams()
    client = await RpcClient.connect(
        seams.transport, host, int(port), client_id="test", clock=seams.clock, timeout_ms=10_000
    )
    topic = CreatableTopic(name="test", num_partitions=partitions, replication_factor=2)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    response = await client.call(request, version=7, timeout_ms=60_000)
    client.close()
    assert [one.error_code for one in response.topics] == [0]


@pytest.mark.parametrize(
    ("version", "partitions"),
    [
        *(pytest.param(each, PARTITIONS, marks=pytest.mark.deep) for each in (6, 7)),
        (12, FEW),
        (14, FEW),
        (15, FEW),
        (17, FEW),
    ],
)
async def test_a_fetch_says_only_what_has_changed(version: int, partitions: int) -> None:
    transports = {node: RecordingTransport(production_seams().transport) for node in range(3)}

    def make_seams(node: int) -> Seams:
        return attrs.evolve(production_seams(), transport=transports[node])

    properties = {
        "understudy.inter.broker.fetch.version": str(version),
        "replica.fetch.wait.max.ms": "100",
    }
    async with open_cluster(brokers=2, properties=properties, make_seams=make_seams) as cluster:
        await create_topic(cluster, partitions)
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        sent = transports[2].bodies.setdefault(leader.port, [])
        metric = leader.request_metrics.counts

        def settled() -> bool:
            wanted = FULL[6] if version == 6 else INCREMENTAL[version]
            return sent[-3:] == [wanted] * 3 and metric["FetchFollower"].body_bytes.last == wanted

        await cluster.until(settled, what=f"fetches settle at v{version}")
        assert follower.port != leader.port
        if version in FULL:
            assert max(sent) == metric["FetchFollower"].body_bytes.largest == FULL[version]
        await trio.lowlevel.checkpoint()
