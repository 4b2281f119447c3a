"""Whatever becomes of members and brokers: nothing is skipped, and nothing is committed early."""

import random
from typing import Any

import pytest
import trio

from replication.client.consumer import Consumer
from replication.errors import KafkaError
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.client.scene import Scene, play, scene

PARTITIONS = [TopicPartition("t", each) for each in range(3)]
SENT = 36


class MishapError(Exception):
    """The program's own."""


class Ledger:
    """The records that were handed over, and the furthest position of each partition."""

    def __init__(self) -> None:
        self.handed: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}

    @property
    def count(self) -> int:
        return sum(map(len, self.handed.values()))

    async def check_committed(self, consumer: Consumer) -> None:
        for tp in PARTITIONS:
            committed = await consumer.committed(tp)
            if committed is not None:
                assert set(range(committed.offset)) <= self.handed[tp], (
                    "committed, never handed over"
                )


async def one_life(stage: Scene, chance: random.Random, ledger: Ledger, config: Any) -> None:
    """A member that is cancelled at any checkpoint, until it ends well or badly."""
    clock = stage.world.clock("consumer")
    async with stage.consumer("t", group_id="g", **config) as consumer:
        for _ in range(chance.randrange(5, 25)):
            with clock.move_on_after(chance.choice([0.001, 0.05, 1.0]) * chance.random()):
                if chance.random() < 0.5:
                    record = await consumer.getone()
                    ledger.handed[record.topic_partition].add(record.offset)
                else:
                    for record in await consumer.poll(timeout_ms=200, max_records=4):
                        ledger.handed[record.topic_partition].add(record.offset)
                if chance.random() < 0.1:
                    await consumer.commit()
        await ledger.check_committed(consumer)
        if chance.random() < 0.5:
            raise MishapError


# Seed 24: a member hears that it is out while it waits for its part.
@pytest.mark.parametrize(("strategy", "seed"), [("range", 24), ("cooperative-sticky", 1)])
def test_nothing_is_skipped_and_nothing_committed_that_was_not_handed_over(
    strategy: str, seed: int
) -> None:
    async def story(world: World) -> None:
        chance, ledger = world.chance("members"), Ledger()
        world.node("consumer")
        quick: dict[str, Any] = {
            "group_initial_rebalance_delay_ms": "0",
            "offsets_topic_num_partitions": "1",
            "offsets_topic_replication_factor": "2",
        }
        async with (
            scene(world, brokers=2, replicas=((1, 2), (2, 1), (1, 2)), **quick) as stage,
            trio.open_nursery() as nursery,
        ):

            async def write() -> None:
                async with stage.producer() as producer:
                    for each in range(SENT):
                        await producer.send("t", b"%d" % each, partition=each % 3)
                        await world.clock("producer").sleep(0.1)

            async def take_part() -> None:
                while ledger.count < SENT:
                    config = {
                        "partition_assignment_strategy": strategy,
                        "auto_commit_interval_ms": 100,
                        "session_timeout_ms": 10_000,
                    }
                    try:
                        await one_life(stage, chance, ledger, config)
                    except (MishapError, KafkaError):
                        continue

            nursery.start_soon(write)
            async with trio.open_nursery() as members:
                for _ in range(2):
                    members.start_soon(take_part)
            async with stage.consumer(group_id="g") as after:
                await ledger.check_committed(after)
        assert ledger.handed == {tp: set(range(SENT // 3)) for tp in PARTITIONS}

    play(story, seed=seed)
