"""A replica that catches up at the rate that was set, and others that are not held back (KIP-73).

    leader    slow-0  [9 batches]  throttled, at RATE     free-0  a batch now and then, not throttled
    follower  slow-0  [          ] comes back             free-0  in sync

Each fetch brings one batch: the probe is for brokers whose fetches have few bytes. So the last
batch may not come before the others have taken their time at that rate, nor long after that, and
neither what is not throttled nor what is in sync makes any difference.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final

import attrs
import trio

from replication.wire.produce import ACKS_ALL
from scenarios.world.client import AckedBatch, SentRecords, StoryClient
from storage.types import Offset, TopicPartition

RATE: Final = 300
"""Bytes per second."""
MOST_BYTES: Final = 100
"""The largest `replica.fetch.max.bytes` that makes each fetch one batch."""
PRODUCED: Final = 9
AT_ONCE_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 60.0
TIMEOUT_MS: Final = 30_000


@attrs.frozen(kw_only=True)
class CatchingUp:
    """A follower that comes back, as its disk and its leader's show it."""

    story: StoryClient
    slow: TopicPartition
    free: TopicPartition
    log_end: Callable[[], Offset]
    """The end of the follower's log of `slow`; 0 while it is down."""
    sizes: tuple[int, ...]
    """The bytes of each batch that it lacks."""
    wait_seconds: float
    """How long its fetches wait for records."""

    async def until(self, offset: Offset) -> float:
        """Return the time at which the follower's log has reached that offset."""
        clock = self.story.seams.clock
        ends = clock.now() + PATIENCE_SECONDS
        while self.log_end() < offset and clock.now() < ends:
            await clock.sleep(0.01)
        return clock.now()

    async def write(self, partition: TopicPartition) -> bool:
        batch = SentRecords(partition, ("more",), ACKS_ALL)
        await self.story.send(batch, timeout_ms=TIMEOUT_MS)
        return isinstance(batch.outcome, AckedBatch)

    async def write_free(self) -> None:
        while True:
            await self.write(self.free)
            await self.story.seams.clock.sleep(0.15)


async def probe_throttle(catching_up: CatchingUp) -> AsyncIterator[str]:
    """Yield what is wrong with the time that a follower takes, and with what is written meanwhile."""
    began, ended = await _seconds(catching_up)
    took = ended - began
    least = sum(catching_up.sizes[:-1]) / RATE
    most = sum(catching_up.sizes) / RATE + 2 * catching_up.wait_seconds + AT_ONCE_SECONDS
    if not 0.9 * least <= took <= most:
        yield (
            f"{sum(catching_up.sizes)} bytes at {RATE} a second took {took:.2f} s, and not"
            f" {least:.2f} to {most:.2f}"
        )


async def _seconds(catching_up: CatchingUp) -> tuple[float, float]:
    """Return when the follower had the first and the last batch; others are written meanwhile."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catching_up.write_free)
        began = await catching_up.until(1)
        ended = await catching_up.until(len(catching_up.sizes))
        nursery.cancel_scope.cancel()
    return began, ended


async def probe_in_sync(catching_up: CatchingUp) -> AsyncIterator[str]:
    """Yield whether a replica in sync is held back, by the time that acks=all takes."""
    clock = catching_up.story.seams.clock
    began = clock.now()
    for _ in range(PRODUCED):
        if not await catching_up.write(catching_up.slow):
            return
    took = clock.now() - began
    if took > AT_ONCE_SECONDS:
        yield f"{PRODUCED} records with acks=all took {took:.2f} s: a replica in sync is held back"
