"""A copy whose source and whose own process die at random has, in the end, what the source has."""

import contextlib
import random
from collections.abc import Awaitable, Callable

import attrs
import pytest

from replication.errors import UnderstudyError
from scenarios.world.world import World
from storage.log.log import Log
from tests.replication.client.scene import T0, play
from tests.replication.mirror.scene import Following, following

SEEDS = 3
MOVES = 12
PAUSES = (0.0, 0.3, 12.0)  # in the last of them somebody is missed
# Committed records may be lost there, and epochs have to tell the copy.
UNCLEAN = {"unclean.leader.election.enable": "true"}
BROKERS = ("b1", "b2")
IMPATIENT = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "max_block_ms": 2000}

Move = Callable[[], Awaitable[None]]


@attrs.define
class Story:
    copy: Following
    chance: random.Random
    mirrors: bool = False
    sent: int = 0

    async def tell(self) -> None:
        for _ in range(MOVES):
            await self.chance.choice(self.possible())()
            await self.copy.scene.cluster.clock.sleep(self.chance.choice(PAUSES))

    def possible(self) -> list[Move]:
        running = self.running()
        moves: list[Move] = [self.toggle_mirror]
        if running:
            moves += [self.produce, self.produce, self.kill_one]
        if len(running) < len(BROKERS):
            moves += [self.start_one, self.start_one]
        return moves

    def running(self) -> list[str]:
        return [name for name in BROKERS if self.copy.scene.cluster.is_running(name)]

    async def produce(self) -> None:
        """One that may be lost, or never be sent."""
        self.sent += 1
        acks = self.chance.choice(("1", "all"))
        with contextlib.suppress(UnderstudyError):  # what became of it the logs will show
            await self.copy.scene.produce(f"record {self.sent}", acks=acks, **IMPATIENT)

    async def kill_one(self) -> None:
        await self.copy.scene.cluster.kill(self.chance.choice(self.running()))

    async def start_one(self) -> None:
        missing = [name for name in BROKERS if name not in self.running()]
        await self.copy.scene.cluster.start(self.chance.choice(missing))

    async def toggle_mirror(self) -> None:
        if self.mirrors:
            await (self.copy.kill if self.chance.random() < 0.7 else self.copy.stop)()
        elif self.running():
            await self.copy.start()
        else:
            return  # it would wait, and so should we
        self.mirrors = not self.mirrors

    async def end(self) -> None:
        """All are well, and one more record is committed."""
        cluster = self.copy.scene.cluster
        while len(self.running()) < len(BROKERS):
            await self.start_one()
        if not self.mirrors:
            await self.copy.start()
        await self.copy.scene.produce("the last", acks="all")
        leader = cluster.brokers[self.copy.scene.leader()].replica_manager.hosted.get(T0)
        await self.copy.until(lambda: self.ends_with(leader.log), "the copy ends with its source")
        self.copy.assert_same(self.copy.scene.leader())

    def ends_with(self, source: Log) -> bool:
        """Return whether both logs end at the same offset of the same leader epoch."""
        assert self.copy.mirror.logs is not None, "it follows"
        log = self.copy.mirror.logs.get(T0)
        if log is None:
            return False
        end = (source.log_end_offset, source.latest_epoch)
        return (log.log_end_offset, log.latest_epoch) == end


@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_any_crash_the_copy_becomes_equal_to_its_source(seed: int) -> None:
    async def run(world: World) -> None:
        async with following(world, brokers=2, replicas=((1, 2),), topic=UNCLEAN) as copy:
            story = Story(copy, world.chance("moves"))
            await story.tell()
            await story.end()

    play(run, seed=seed)
