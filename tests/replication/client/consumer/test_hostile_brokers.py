"""A broker that does not speak the protocol costs a consumer its patience, and nothing else."""

import random
from typing import Any

import pytest
from trio.testing import MockClock

from replication.client.consumer import Consumer
from replication.client.errors import KafkaTimeoutError
from replication.net import ThreadOffload
from replication.net.seams import Seams
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.client.hostile import HOSTILE
from tests.replication.client.scripted import CLIENT, CLOCK, PORT, Peers, open_peers

T0 = TopicPartition("t", 0)


def consumer_of(peers: Peers, **config: Any) -> Consumer:
    seams = Seams(
        clock=peers.clock,
        chance=random.Random(5),
        transport=peers.network.transport(CLIENT),
        file_system=FaultyFileSystem(random.Random(1)),
        offload=ThreadOffload(),
    )
    return Consumer(bootstrap_servers=f"b1:{PORT}", seams=seams, **config)


@pytest.mark.parametrize("behave", HOSTILE)
async def test_a_call_ends_in_time_and_says_why(autojump_clock: MockClock, behave: Any) -> None:
    async with open_peers() as peers:
        raw = peers.add_raw("b1", behave)
        await peers.nursery.start(raw.serve)
        async with consumer_of(peers, request_timeout_ms=2_000) as consumer:
            consumer.assign([T0])
            began = CLOCK.now()
            assert not await consumer.poll(timeout_ms=10_000)
            assert CLOCK.now() - began == pytest.approx(10, abs=0.2)
            with pytest.raises(KafkaTimeoutError, match="no offsets of t-0") as raised:
                await consumer.end_offsets([T0], timeout_ms=5_000)
            assert raised.value.__cause__ is not None
            assert CLOCK.now() - began == pytest.approx(15, abs=0.4)
