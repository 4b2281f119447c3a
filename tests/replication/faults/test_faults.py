"""Fault rules on virtual time, at brokers and at a proxy: what clients see, and what is in the log."""

from typing import Any

import pytest
import trio

from replication.client.consumer import Consumer
from replication.errors import ErrorCode, PeerUnavailableError
from replication.events import ConnectionRefused, FaultApplied
from replication.faults import FaultRule, on_call, once, times
from replication.faults.node_faults import NotHitError
from replication.net.rpc import RpcClient
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.metadata import MetadataRequest
from scenarios.world.client import AckedBatch, NoAnswer, Outcome, Refused, SentRecords
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene, now, scene
from tests.replication.faults.places import at_each_place

LATER = 60_000


async def send(stage: Scene, value: str, *, acks: int = -1, timeout_ms: int = 1_000) -> Outcome:
    """Send one batch without a retry; return its outcome."""
    batch = SentRecords(T0, (value,), acks=acks)
    await stage.client.send(batch, timeout_ms=timeout_ms)
    assert batch.outcome is not None
    return batch.outcome


async def connected(stage: Scene) -> RpcClient:
    seams = stage.world.node("client")
    host, _, port = stage.bootstrap_servers[0].partition(":")
    return await RpcClient.connect(
        seams.transport, host, int(port), client_id="raw", clock=seams.clock, timeout_ms=LATER
    )


def events_of(world: World, kind: type) -> list[Any]:
    return [entry.event for entry in world.trace.entries if isinstance(entry.event, kind)]


@at_each_place()
async def test_an_error_is_answered_instead_of_the_work_as_often_as_the_rule_says(
    stage: Scene,
) -> None:
    rule = stage.faults.add(
        FaultRule(api="PRODUCE", topic="t", error="NOT_ENOUGH_REPLICAS", trigger=times(2))
    )
    outcomes = [await send(stage, value) for value in "abc"]
    refused = Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert outcomes == [refused, refused, AckedBatch(0)]
    assert await stage.values() == ["c"]
    assert (rule.calls, rule.hits) == (3, 2)
    assert {hit.answer for hit in rule.observed} == {"NOT_ENOUGH_REPLICAS"}
    assert {hit.client_id for hit in rule.observed} == {"client"}
    first, second = events_of(stage.world, FaultApplied)
    assert first == second
    assert (first.rule, first.api, first.client) == (1, "PRODUCE", "client")
    assert (first.parts, first.fault) == (("t-0",), "NOT_ENOUGH_REPLICAS")


@at_each_place(replicas=((1,), (1,)))
async def test_the_other_parts_of_a_request_are_handled(stage: Scene) -> None:
    await stage.produce("a", partition=1)
    stage.faults.add(
        FaultRule(api="LIST_OFFSETS", topic="t", partition=0, error="UNKNOWN_LEADER_EPOCH")
    )
    client = await connected(stage)
    asked = [ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in range(2)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    answer = await client.call(request, version=7, timeout_ms=LATER)
    client.close()
    (topic,) = answer.topics
    assert {each.partition_index: (each.error_code, each.offset) for each in topic.partitions} == {
        0: (ErrorCode.UNKNOWN_LEADER_EPOCH, -1),
        1: (ErrorCode.NONE, 1),
    }


@pytest.mark.parametrize(
    ("effect", "written"),
    [
        ("close-before", []),
        ("close-after", ["a"]),
        ("cut-answer", ["a"]),
        ("drop-request", []),
        ("drop-answer", ["a"]),
    ],
)
@at_each_place()
async def test_a_request_without_an_answer_may_have_been_handled(
    stage: Scene, effect: str, written: list[str]
) -> None:
    rule = stage.faults.add(FaultRule(api="PRODUCE", effect=effect, trigger=once()))
    before = now(stage.world)
    outcome = await send(stage, "a", timeout_ms=1_000)
    waited = now(stage.world) - before
    assert isinstance(outcome, NoAnswer)
    assert (waited >= 1.0) == effect.startswith("drop"), "closed is heard of at once"
    assert await stage.values() == written
    assert (rule.calls, rule.hits) == (1, 1)
    assert [event.fault for event in events_of(stage.world, FaultApplied)] == [effect]


@at_each_place()
async def test_an_idempotent_producer_writes_once_what_it_sent_twice(stage: Scene) -> None:
    rule = FaultRule(api="PRODUCE", effect="close-after", trigger=once())
    added = stage.faults.add(rule)
    await stage.produce("a", enable_idempotence=True)
    assert await stage.values() == ["a"]
    assert (added.calls, added.hits) == (2, 1)
    stage.faults.remove(added)
    stage.faults.add(rule)
    await stage.produce("b", enable_idempotence=False)
    assert await stage.values() == ["a", "b", "b"]


@at_each_place()
async def test_a_delay_is_on_the_brokers_clock_and_ends_with_its_rule(stage: Scene) -> None:
    faults = stage.faults
    added = faults.add(FaultRule(api="PRODUCE", delay_ms=700, throttle_ms=5))
    before = now(stage.world)
    assert await send(stage, "a") == AckedBatch(0)
    assert 0.7 <= now(stage.world) - before < 0.8
    faults.remove(added)
    added = faults.add(FaultRule(api="PRODUCE", delay_ms=LATER))
    before = now(stage.world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, stage, "b")
        await faults.wait_for_hits(added)
        faults.clear()
    assert now(stage.world) - before < 0.1
    assert await stage.values() == ["a", "b"]


@at_each_place()
async def test_a_silent_connection_is_closed_when_its_rule_is_removed(stage: Scene) -> None:
    faults = stage.faults
    added = faults.add(FaultRule(client_id="raw*", effect="drop-request"))
    client = await connected(stage)
    before = now(stage.world)

    async def ask() -> None:
        with pytest.raises(PeerUnavailableError):
            await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=LATER)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await faults.wait_for_hits(added)
        await stage.cluster.clock.sleep(3.0)
        faults.clear()
    assert 3.0 <= now(stage.world) - before < 3.1
    (hit,) = added.observed
    assert hit.answer is not None
    assert "not handled" in hit.answer


@at_each_place()
async def test_waiting_for_hits_that_do_not_come(stage: Scene) -> None:
    faults = stage.faults
    added = faults.add(FaultRule(api="PRODUCE", effect="observe"))
    await send(stage, "a")
    await faults.wait_for_hits(added, 1)
    before = now(stage.world)
    with pytest.raises(NotHitError, match=r"within 2 s: rule 1 .*was hit 1 of 2 times"):
        await faults.wait_for_hits(added, 2, timeout=2.0)
    assert now(stage.world) - before == pytest.approx(2.0)
    assert [hit.answer for hit in added.observed] == ["NONE"]
    assert not events_of(stage.world, FaultApplied), "who only looks has done nothing"


@at_each_place()
async def test_a_rule_that_is_removed_is_waited_for_no_longer(stage: Scene) -> None:
    faults = stage.faults
    added = faults.add(FaultRule(api="PRODUCE", effect="observe"))

    async def wait() -> None:
        with pytest.raises(NotHitError, match=r"was removed: rule 1 .*was hit 0 of 1 times"):
            await faults.wait_for_hits(added)

    before = now(stage.world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await faults.clock.sleep(1)
        faults.remove(added)
    await wait()
    assert now(stage.world) - before == pytest.approx(1), "and not the 30 s that it may take"


@at_each_place()
async def test_a_wait_for_hits_raises_the_exception_of_when(stage: Scene) -> None:
    faults = stage.faults
    added = faults.add(FaultRule(effect="observe", when=lambda request: request.nothing))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, stage, "a")
        with pytest.raises(AttributeError, match="nothing"):
            await faults.wait_for_hits(added)
    assert await stage.values() == ["a"]


@at_each_place()
async def test_a_client_sees_the_throttle_time(stage: Scene) -> None:
    stage.faults.add(FaultRule(api="METADATA", throttle_ms=250))
    client = await connected(stage)
    answer = await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=LATER)
    client.close()
    assert answer.throttle_time_ms == 250


@at_each_place(replicas=((1,), (1,)))
async def test_a_consumer_sees_the_error_of_a_partition_in_its_session(stage: Scene) -> None:
    await stage.produce("a")
    async with stage.consumer() as consumer:
        consumer.assign([T0, TopicPartition("t", 1)])
        assert await value_of(consumer) == b"a"
        rule = FaultRule(
            api="FETCH",
            topic="t",
            partition=0,
            error="OFFSET_NOT_AVAILABLE",
            trigger=times(3),
        )
        added = stage.faults.add(rule)

        async def produce() -> None:
            await stage.faults.wait_for_hits(added, 3)
            await stage.produce("b")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            assert await value_of(consumer) == b"b"
        assert {hit.answer for hit in added.observed} == {"OFFSET_NOT_AVAILABLE"}
        assert {str(part) for hit in added.observed for part in hit.parts} == {"t-0", "t-1"}


async def value_of(consumer: Consumer) -> bytes | None:
    record = await anext(aiter(consumer))
    value = record.value
    assert value is None or isinstance(value, bytes)
    return value


@played_in(scene, brokers=2, replicas=((1, 2),))
async def test_followers_and_heartbeats_are_matched_by_rules_for_brokers(stage: Scene) -> None:
    faults = stage.faults
    fetches = faults.add(
        FaultRule(api="FETCH", topic="t", error="NOT_LEADER_OR_FOLLOWER", sender="brokers")
    )
    heartbeats = faults.add(FaultRule(api="BROKER_HEARTBEAT", broker=0, effect="observe"))
    elsewhere = faults.add(FaultRule(api="BROKER_HEARTBEAT", broker=1, effect="observe"))
    await send(stage, "a")
    await faults.wait_for_hits(fetches)  # the one that was there before is gone
    assert await send(stage, "b") == Refused(ErrorCode.REQUEST_TIMED_OUT)
    await faults.wait_for_hits(heartbeats, 2)
    assert elsewhere.calls == 0
    assert {hit.broker for hit in heartbeats.observed} == {0}
    faults.clear()
    assert await send(stage, "c", timeout_ms=10_000) == AckedBatch(2)


@at_each_place()
async def test_an_error_where_no_answer_is_wanted_closes_the_connection_as_kafka_does(
    stage: Scene,
) -> None:
    stage.faults.add(FaultRule(api="PRODUCE", error=6, trigger=on_call(1)))
    await send(stage, "a", acks=0)
    await send(stage, "b", acks=1)
    assert await stage.values() == ["b"]
    assert [event for event in events_of(stage.world, ConnectionRefused) if "acks=0" in event.cause]


@at_each_place()
async def test_an_unsupported_version_is_answered_in_version_0(stage: Scene) -> None:
    stage.faults.add(FaultRule(api="API_VERSIONS", client_id="raw", error="UNSUPPORTED_VERSION"))
    client = await connected(stage)
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = await client.call(request, version=3, timeout_ms=LATER)
    client.close()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
