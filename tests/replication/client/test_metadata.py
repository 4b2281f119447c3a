"""Metadata is asked for when it is wanted or old, one at a time, and never in a tight loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from replication.client.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from replication.client.metadata import Metadata
from replication.errors import ErrorCode
from replication.wire.apis import ApiKey
from replication.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.types import TopicPartition
from tests.replication.client.scripted import CLOCK, PORT, Peers, open_peers

TP = TopicPartition("t", 0)


class Script:
    """The answers of both brokers."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.topic_error = ErrorCode.NONE
        self.partition_error = ErrorCode.NONE
        self.brokers = ["b1", "b2"]

    def __call__(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            leader_id=1, leader_epoch=1, error_code=self.partition_error
        )
        return MetadataResponse(
            error_code=self.error,
            brokers=[
                MetadataResponseBroker(node_id=int(name[1:]), host=name, port=PORT)
                for name in self.brokers
            ],
            topics=[
                MetadataResponseTopic(
                    name=each.name, error_code=self.topic_error, partitions=[partition]
                )
                for each in request.topics or []
            ],
        )


@asynccontextmanager
async def opened(*names: str, **config: Any) -> AsyncIterator[tuple[Peers, Script, Metadata]]:
    async with open_peers(*names) as peers:
        script = Script()
        for peer in peers.by_name.values():
            peer.on(ApiKey.METADATA, script)
        await peers.start()
        network = peers.network_client(**config)
        metadata = Metadata(network=network, topics_wanted=lambda: ["t"])
        peers.nursery.start_soon(metadata.run)
        yield peers, script, metadata


def asked(peers: Peers) -> int:
    return sum(len(peer.requests(ApiKey.METADATA)) for peer in peers.by_name.values())


async def test_the_first_view_comes_from_the_bootstrap_servers(autojump_clock: MockClock) -> None:
    async with opened("b1", "b2") as (_, _, metadata):
        await metadata.update(timeout_ms=1000)
        assert sorted(metadata.view.nodes) == [1, 2]
        assert metadata.view.partitions_of("t") == [0]
        assert [node.id for node in metadata.nodes_to_ask()] == [1, 2], "not by address any more"


async def test_metadata_is_requested_when_it_is_old(autojump_clock: MockClock) -> None:
    async with opened("b1", metadata_max_age_ms=10_000) as (peers, _, metadata):
        await metadata.update(timeout_ms=1000)
        before = asked(peers)
        await CLOCK.sleep(9)
        assert asked(peers) == before
        await CLOCK.sleep(2)
        assert asked(peers) == before + 1


async def test_many_waiting_tasks_share_one_metadata_request(autojump_clock: MockClock) -> None:
    async with opened("b1") as (peers, _, metadata):
        await metadata.update(timeout_ms=1000)
        before = asked(peers)
        start = CLOCK.now()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(lambda: metadata.update(timeout_ms=5000))
        assert asked(peers) == before + 1
        assert CLOCK.now() - start == pytest.approx(0.1, abs=0.03), "retry.backoff.ms"


async def test_metadata_of_an_election_is_requested_again(autojump_clock: MockClock) -> None:
    async with opened("b1") as (peers, script, metadata):
        script.partition_error = ErrorCode.LEADER_NOT_AVAILABLE
        await CLOCK.sleep(5)
        count = asked(peers)
        assert 5 <= count <= 12, "100 ms, 200, 400, 800, then every second"
        script.partition_error = ErrorCode.NONE
        await CLOCK.sleep(2)
        settled = asked(peers)
        await CLOCK.sleep(20)
        assert asked(peers) == settled
        assert metadata.view.leader(TP).node is not None


async def test_without_an_answer_the_wait_ends_with_the_reason(autojump_clock: MockClock) -> None:
    async with opened("b1") as (peers, _, metadata):
        peers["b1"].stop()
        with pytest.raises(KafkaTimeoutError, match="no metadata within 3000 ms") as raised:
            await metadata.update(timeout_ms=3000)
        assert raised.value.__cause__ is not None
        assert raised.value.retriable


async def test_a_client_whose_brokers_are_all_gone_begins_again(autojump_clock: MockClock) -> None:
    """KIP-899: b1 is the bootstrap server; it says that b2 is all there is; b2 goes."""
    async with opened("b1", "b2") as (peers, script, metadata):
        script.brokers = ["b2"]
        await metadata.update(timeout_ms=1000)
        assert [node.id for node in metadata.nodes_to_ask()] == [2]
        await metadata.update(timeout_ms=1000)
        peers["b2"].stop()
        script.brokers = ["b1"]
        await metadata.update(timeout_ms=60_000)
        assert sorted(metadata.view.nodes) == [1]


async def test_rebootstrapping_can_be_switched_off(autojump_clock: MockClock) -> None:
    async with opened("b1", "b2", metadata_recovery_strategy="none") as (peers, script, metadata):
        script.brokers = ["b2"]
        await metadata.update(timeout_ms=1000)
        await metadata.update(timeout_ms=1000)
        peers["b2"].stop()
        script.brokers = ["b1"]
        with pytest.raises(KafkaTimeoutError):
            await metadata.update(timeout_ms=60_000)


async def test_a_broker_can_request_a_rebootstrap(autojump_clock: MockClock) -> None:
    async with opened("b1", "b2") as (peers, script, metadata):
        script.brokers = ["b2"]
        await metadata.update(timeout_ms=1000)
        script.error = ErrorCode.REBOOTSTRAP_REQUIRED
        before = len(peers["b1"].requests(ApiKey.METADATA))
        metadata.request_update()
        await CLOCK.sleep(1)
        assert len(peers["b1"].requests(ApiKey.METADATA)) > before


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
    ],
)
async def test_errors_that_no_wait_would_mend_are_raised(
    autojump_clock: MockClock, code: ErrorCode, raised: type[Any]
) -> None:
    async with opened("b1") as (_, script, metadata):
        script.topic_error = code
        await metadata.update(timeout_ms=1000)
        metadata.raise_for_topics(["other"])
        with pytest.raises(raised) as error:
            metadata.raise_for_topics(["t", "other"])
        assert error.value.topics == {"t"}
        assert error.value.code is code
        assert not error.value.retriable
