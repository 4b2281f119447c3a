"""A commit that is tried again after its partitions have gone to another member."""

from typing import Any

import pytest
import trio

from replication.client.consumer import Consumer
from replication.errors import ErrorCode, KafkaError
from replication.wire.apis import ApiKey
from scenarios.world.world import World
from tests.replication.client.consumer.test_consumer_protocol import pass_time, served
from tests.replication.client.consumer.test_group_member import ALL
from tests.replication.client.scene import played
from tests.replication.client.tampering import Tampering, says, tampered


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@played
async def test_a_commit_that_is_tried_again_does_not_overwrite_the_next_owners(
    world: World, protocol: str
) -> None:
    not_yet = says(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    tampering = Tampering(ApiKey.OFFSET_COMMIT, [], for_ever=not_yet)
    config: dict[str, Any] = {
        "bootstrap_servers": ["b1:9092"],
        "group_id": "g",
        "group_protocol": protocol,
        "enable_auto_commit": False,
        **({"heartbeat_interval_ms": 500} if protocol == "classic" else {}),
    }
    failed: list[KafkaError] = []
    async with served(world) as stage:
        seams = tampered(world.node("first"), tampering)
        first = Consumer("t", seams=seams, auto_offset_reset="earliest", **config)
        second = stage.consumer("t", **config)
        async with first:
            while first.assignment() != ALL:
                await first.poll(timeout_ms=200)

            async def commit() -> None:
                try:
                    await first.commit(dict.fromkeys(ALL, 1))
                except KafkaError as error:
                    failed.append(error)

            async with second, trio.open_nursery() as nursery:
                nursery.start_soon(commit)
                await pass_time(world, 1, first)
                while not second.assignment():
                    await pass_time(world, 0.2, first, second)
                taken = min(second.assignment())
                await second.commit({taken: 5})
                await pass_time(world, 5, first, second)
                tampering.for_ever = None
                await pass_time(world, 3, first, second)
                committed = await second.committed(taken)
                assert committed is not None
                assert committed.offset == 5
                assert failed
