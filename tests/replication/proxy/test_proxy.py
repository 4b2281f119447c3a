"""A proxy in front of brokers, on virtual time: where clients go, and what becomes of lost brokers."""

import itertools
from typing import Any

import pytest

from replication.client.consumer import Consumer
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import ConnectionRefused, UpstreamFound, UpstreamLost
from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection
from replication.proxy import open_proxy
from replication.proxy.proxy import UNKNOWN_BROKER, ProxyListenError
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import API, ApiKey
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.frames import decode_response, encode_request
from replication.wire.metadata import (
    MetadataRequest,
)
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from scenarios.world.world import World
from tests.replication.broker.stage import played, played_in
from tests.replication.broker.test_produce import batch
from tests.replication.faults.places import PORT, PROXY, ProxiedScene, proxied_scene
from tests.replication.faults.test_faults import events_of
from tests.replication.proxy.fakes import (
    TIMEOUT_MS,
    FakeBrokers,
    connected,
    connected_in,
    fake_behind_proxy,
)

CLIENTS = ("client", "producer", "consumer")


def cut_off(stage: ProxiedScene) -> None:
    """Leave the clients no way to the brokers but the proxy."""
    for client, broker in itertools.product(CLIENTS, stage.cluster.broker_names):
        stage.world.node(client)
        stage.world.network.cut(client, broker)


async def first_of(consumer: Consumer) -> Any:
    return (await anext(aiter(consumer))).value


# -- addresses


@played_in(proxied_scene, brokers=3, replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)))
async def test_clients_that_begin_at_the_proxy_stay_on_it(stage: ProxiedScene) -> None:
    cut_off(stage)
    for partition in range(3):
        await stage.produce("a", partition=partition)
    async with stage.consumer("t", group_id="g") as consumer:
        assert [await first_of(consumer) for _ in range(3)] == [b"a"] * 3
        await consumer.commit()


@played_in(proxied_scene, brokers=3, replicas=((1, 2, 3),))
async def test_clients_stay_on_it_when_the_leader_dies(stage: ProxiedScene) -> None:
    cut_off(stage)
    async with stage.producer() as producer, stage.consumer("t", group_id="g") as consumer:
        await producer.send("t", b"a")
        assert await first_of(consumer) == b"a"
        dead = stage.leader()
        await stage.cluster.kill(dead)
        await producer.send("t", b"b")
        assert await first_of(consumer) == b"b"
        assert stage.leader() != dead


@played_in(proxied_scene, brokers=3)
async def test_each_response_that_names_brokers_names_the_proxy(stage: ProxiedScene) -> None:
    await stage.produce("a")
    async with stage.consumer("t", group_id="g") as consumer:
        await first_of(consumer)  # the coordinator is there now
    client = await connected(stage)
    ports = {each.broker_id: each.port for each in stage.proxy.fronted}
    assert set(ports) == {1, 2, 3}
    assert ports[1] == PORT
    metadata = await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=TIMEOUT_MS)
    assert {each.node_id: (each.host, each.port) for each in metadata.brokers} == {
        broker: (PROXY, port) for broker, port in ports.items()
    }
    described = await client.call(DescribeClusterRequest(), version=1, timeout_ms=TIMEOUT_MS)
    assert {each.broker_id: (each.host, each.port) for each in described.brokers} == {
        broker: (PROXY, port) for broker, port in ports.items()
    }
    for version in (0, 6):
        asked = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        found = await client.call(asked, version=version, timeout_ms=TIMEOUT_MS)
        there = found.coordinators[0] if version else found
        assert (there.host, there.port) == (PROXY, ports[there.node_id])
    client.close()


@played_in(proxied_scene, brokers=2, replicas=((2,),))
async def test_the_new_leader_in_a_produce_response_is_behind_the_proxy(
    stage: ProxiedScene,
) -> None:
    client = await connected(stage)  # broker 1, which leads nothing
    topic = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))]
    )
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    response = await client.call(request, version=12, timeout_ms=TIMEOUT_MS)
    client.close()
    assert response.responses[0].partition_responses[0].error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    second = stage.proxy.to_broker(2)
    assert second is not None
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [
        (2, PROXY, second.port)
    ]


@played
async def test_a_broker_that_appears_gets_a_port_and_keeps_it_when_it_moves(world: World) -> None:
    fake = FakeBrokers(b1=("b1", 9092))
    async with fake_behind_proxy(world, fake) as proxy:
        client = await connected_in(world)

        async def listed() -> dict[int, int]:
            asked = MetadataRequest(topics=[])
            answer = await client.call(asked, version=9, timeout_ms=TIMEOUT_MS)
            assert {each.host for each in answer.brokers} <= {PROXY}
            return {each.node_id: each.port for each in answer.brokers}

        assert await listed() == {1: PORT}
        fake.brokers["b7"] = ("b7", 9092)
        assert await listed() == {1: PORT, 7: PORT + 1}
        del fake.brokers["b7"]
        assert await listed() == {1: PORT}
        fake.brokers |= {"b3": ("b3", 9092), "b7": ("elsewhere", 19092)}
        assert await listed() == {1: PORT, 3: PORT + 2, 7: PORT + 1}
        moved = proxy.to_broker(7)
        assert moved is not None
        assert str(moved.address) == "elsewhere:19092"
        client.close()


@played
async def test_a_port_that_is_in_use_is_passed_over_for_a_new_broker(world: World) -> None:
    fake = FakeBrokers(b1=("b1", 9092))
    async with fake_behind_proxy(world, fake) as proxy:
        mine = await proxy.seams.transport.listen(PROXY, PORT + 1)
        fake.brokers["b2"] = ("b2", 9092)
        client = await connected_in(world)
        await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=TIMEOUT_MS)
        client.close()
        mine.close()
        assert [each.port for each in proxy.fronted] == [PORT, PORT + 2]


@played
async def test_an_address_that_no_response_names_is_a_broker_without_an_id(world: World) -> None:
    fake = FakeBrokers(b1=("behind-a-balancer", 9092))
    async with fake_behind_proxy(world, fake) as proxy:
        assert [each.broker_id for each in proxy.fronted] == [UNKNOWN_BROKER, 1]


# -- bad input


@played
async def test_the_port_may_be_in_use(world: World) -> None:
    fake = FakeBrokers(b1=("b1", 9092))
    taken = await world.node(PROXY).transport.listen(PROXY, PORT)
    with pytest.raises(ProxyListenError, match=r"cannot listen on proxy:9092: .*in use"):
        async with fake_behind_proxy(world, fake):
            pass
    taken.close()


@played
async def test_an_upstream_that_is_not_there_is_refused(world: World) -> None:
    world.node("b1")
    with pytest.raises(PeerUnavailableError, match="b1:9092"):
        async with open_proxy("b1:9092", host=PROXY, seams=world.node(PROXY)):
            pass


@played_in(proxied_scene)
async def test_a_lost_broker_is_reported_once_and_so_is_its_return(stage: ProxiedScene) -> None:
    client = await connected(stage)
    asked = MetadataRequest(topics=[])
    await client.call(asked, version=9, timeout_ms=TIMEOUT_MS)
    await stage.cluster.kill("b1")
    for _ in range(3):
        with pytest.raises(PeerUnavailableError):
            await client.call(asked, version=9, timeout_ms=TIMEOUT_MS)
        client = await connected(stage)
    client.close()
    (lost,) = events_of(stage.world, UpstreamLost)
    assert (lost.broker, lost.address) == (1, "b1:9092")
    assert not events_of(stage.world, UpstreamFound)
    await stage.cluster.start("b1")
    client = await connected(stage)
    await client.call(asked, version=9, timeout_ms=TIMEOUT_MS)
    client.close()
    assert len(events_of(stage.world, UpstreamFound)) == 1


# -- versions


@played_in(proxied_scene)
async def test_a_newer_api_versions_is_answered_with_the_newest_that_is_known(
    stage: ProxiedScene,
) -> None:
    connection = await stage.world.node("client").transport.connect(PROXY, PORT)
    newest = API[ApiKey.API_VERSIONS].max_version
    response = await raw_answer(connection, ApiVersionsRequest(), newest + 1)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.max_version) for each in response.api_keys] == [
        (ApiKey.API_VERSIONS, newest)
    ]
    connection.close()


@played_in(proxied_scene)
async def test_a_version_whose_addresses_cannot_be_read_ends_the_connection(
    stage: ProxiedScene,
) -> None:
    connection = await stage.world.node("client").transport.connect(PROXY, PORT)
    newest = API[ApiKey.METADATA].max_version
    assert await raw_answer(connection, MetadataRequest(topics=[]), newest + 1) is None
    (refused,) = [
        each for each in events_of(stage.world, ConnectionRefused) if "may name" in each.cause
    ]
    assert refused.cause.startswith(f"API 3 version {newest + 1} may name brokers")


async def raw_answer(connection: Connection, request: object, version: int) -> object | None:
    """Return the answer to a request that claims to be of another version; None at the end."""
    key = next(each for each, api in API.items() if api.request is type(request))
    parts = encode_request(request, version=API[key].max_version, correlation_id=5, client_id="raw")
    frame = bytearray(b"".join(parts))  # type: ignore[arg-type] # nothing lies in a file
    frame[6:8] = version.to_bytes(2, "big")
    await send_parts(connection, [frame])
    answer = await FrameReader(connection).receive_frame()
    if answer is None:
        return None
    number, response = decode_response(answer, api_key=key, version=API[key].max_version)
    assert number == 5
    return response
