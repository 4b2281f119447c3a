"""What a proxy holds, and in which order: sessions, delays, links that are cut, and its limits."""

from typing import Any

import pytest
import trio

from replication.errors import ErrorCode, PeerUnavailableError
from replication.faults import FaultRule, once
from replication.net.framing import FrameReader, send_parts
from replication.net.rpc import RpcClient
from replication.proxy.proxy import open_relays
from replication.server.server import Handler, RequestContext
from replication.wire.apis import ApiKey
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from replication.wire.frames import encode_request
from replication.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from replication.wire.metadata import (
    MetadataRequest,
)
from scenarios.world.world import World
from tests.replication.broker.stage import played, played_in
from tests.replication.client.scene import now
from tests.replication.faults.places import PORT, PROXY, ProxiedScene, proxied_scene
from tests.replication.proxy.fakes import (
    TIMEOUT_MS,
    FakeBrokers,
    connected,
    connected_in,
    fake_behind_proxy,
    serving,
)

# -- rules that need more than one request


def fetch(session_id: int = 0, epoch: int = 0, *partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition=each, partition_max_bytes=1_000) for each in partitions]
    return FetchRequest(
        max_wait_ms=10,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
    )


@played_in(proxied_scene, replicas=((1,), (1,)))
async def test_a_session_older_than_the_rule_is_begun_anew(stage: ProxiedScene) -> None:
    client = await connected(stage)

    async def ask(request: FetchRequest) -> Any:
        return await client.call(request, version=12, timeout_ms=TIMEOUT_MS)

    session_id = (await ask(fetch(0, 0, 0, 1))).session_id
    assert session_id
    assert (await ask(fetch(session_id, 1))).error_code == ErrorCode.NONE
    rule = stage.faults.add(FaultRule(api="FETCH", topic="t", partition=1, effect="observe"))
    assert (await ask(fetch(session_id, 2))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rule.calls == 0
    session_id = (await ask(fetch(session_id, 0, 0, 1))).session_id
    assert (await ask(fetch(session_id, 1))).error_code == ErrorCode.NONE
    assert (await ask(fetch(session_id, -1))).error_code == ErrorCode.NONE
    assert [sorted(map(str, hit.parts)) for hit in rule.observed] == [["t-0", "t-1"]] * 2
    client.close()


@played_in(proxied_scene)
async def test_requests_behind_one_that_a_rule_delays_wait_for_it(stage: ProxiedScene) -> None:
    stage.faults.add(FaultRule(api="METADATA", delay_ms=2_000, trigger=once()))
    client = await connected(stage)
    answered: list[str] = []

    async def ask(name: str, request: object, version: int) -> None:
        await client.call(request, version=version, timeout_ms=TIMEOUT_MS)
        answered.append(f"{name} {now(stage.world) - began:.1f}")

    began = now(stage.world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "delayed", MetadataRequest(topics=[]), 9)
        await stage.world.clock("client").sleep(0.1)
        nursery.start_soon(ask, "behind", DescribeClusterRequest(), 0)
    assert answered == ["delayed 2.0", "behind 2.0"]
    client.close()


# -- links


@played_in(proxied_scene)
async def test_what_is_sent_on_a_cut_link_arrives_when_it_heals(stage: ProxiedScene) -> None:
    links = stage.proxy.links
    ours, other = await connected(stage, client_id="app-1"), await connected(stage)
    cut = links.cut(client_id="app-*", broker=1)
    answered: list[float] = []

    async def ask(client: RpcClient) -> None:
        await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=60_000)
        answered.append(round(now(stage.world) - began, 1))

    began = now(stage.world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, ours)
        nursery.start_soon(ask, other)
        await stage.world.clock("client").sleep(20.0)
        links.heal(cut)
        links.heal(cut)
    assert answered == [0.0, 20.0]
    ours.close()
    other.close()


@played_in(proxied_scene)
async def test_a_link_that_is_cut_one_way_has_its_requests_handled(stage: ProxiedScene) -> None:
    stage.proxy.links.cut(client_id="producer", requests=False)
    producer = stage.producer(
        client_id="producer", request_timeout_ms=500, delivery_timeout_ms=600, linger_ms=0
    )
    with stage.world.clock("client").move_on_after(5):
        async with producer:
            await producer.send("t", b"a")
    assert await stage.values() == []
    stage.proxy.links.heal_all()
    assert not stage.proxy.links.cuts


@played_in(proxied_scene)
async def test_responses_are_held_and_requests_are_not(stage: ProxiedScene) -> None:
    client = await connected(stage)
    seen = stage.faults.add(FaultRule(client_id="raw", effect="observe"))
    cut = stage.proxy.links.cut(client_id="raw", requests=False)
    with pytest.raises(PeerUnavailableError, match="within 1000 ms"):
        await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=1_000)
    assert seen.hits == 1
    stage.proxy.links.heal(cut)


@played
async def test_relays_without_rewriting_leave_addresses_and_versions_alone(world: World) -> None:
    fake = FakeBrokers(b1=("b1", 9092), b2=("b2", 9092))
    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: fake.metadata}
    async with (
        serving(world, "b1", 9092, handlers),
        open_relays(host=PROXY, seams=world.node(PROXY)) as proxy,
    ):
        fronted = await proxy.front("b1:9092", broker_id=1, port=PORT)
        client = await connected_in(world)
        asked = MetadataRequest(topics=[])
        answer = await client.call(asked, version=9, timeout_ms=TIMEOUT_MS)
        assert [each.host for each in answer.brokers] == ["b1", "b2"]
        assert proxy.fronted == [fronted]
        rule = proxy.faults.add(FaultRule(broker=1, error="BROKER_NOT_AVAILABLE"))
        proxy.faults.add(FaultRule(api="METADATA", effect="close-before"))
        with pytest.raises(PeerUnavailableError):
            await client.call(asked, version=13, timeout_ms=TIMEOUT_MS)
        assert rule.hits == 1


# -- limits


@played
async def test_a_client_that_does_not_read_stops_what_it_sends(world: World) -> None:
    """One that pipelines requests and reads no response is not read from any more."""
    fake = FakeBrokers(b1=("b1", 9092))
    answered = 0

    async def heartbeat(_: RequestContext, __: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal answered
        answered += 1
        return HeartbeatResponse()

    fake.heartbeat = heartbeat  # type: ignore[method-assign]
    async with fake_behind_proxy(world, fake) as proxy:
        connection = await world.node("client").transport.connect(PROXY, PORT)
        proxy.links.cut(requests=False)  # as if the client's buffer were full
        request = encode_request(
            HeartbeatRequest(group_id="g"), version=4, correlation_id=1, client_id="c"
        )
        await send_parts(connection, request * 3_000)
        await world.clock("client").sleep(5.0)
        assert answered == 1_000
        proxy.links.heal_all()
        reader = FrameReader(connection)
        for _ in range(3_000):
            assert await reader.receive_frame() is not None
        connection.close()
    assert answered == 3_000
