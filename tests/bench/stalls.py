"""The longest time for which one request, or a job of its own, holds the loop of a broker.

    hostile      each request of `tests/replication/server/hostile.py`
    lists        one request for each list that a request can have (`long_lists.py`)
    everything   each request of `filled.py`, to a broker with 9,999 partitions
    jobs         what that broker does by itself, with the least intervals
    compaction   the cleaning of a log, and the opening of logs after a kill
    and recovery

Each goes to a broker and its controller in this process, which answer a neighbour meanwhile. What
is measured is the longest turn of the loop, in processor time; beside it the longest that the
neighbour waited, which other work on the machine makes longer. While logs are opened there is no
neighbour.
"""

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from functools import partial

import attrs
import trio

from storage.batch.records import Record, encode_batch
from storage.types import TopicPartition
from tests.replication.server.attacked import (
    TOPIC,
    Attacked,
    Cost,
    Hostile,
    attacked,
    frame_of,
    timed,
)
from tests.replication.server.filled import FILLED, filled
from tests.replication.server.hostile import ACCEPTED, HOSTILE, produce
from tests.replication.server.long_lists import long_lists

MOST_MS = 50.0
PARTITIONS = 9_999
OTHERS = 20_000
"""The groups, transactional ids and producers of the broker that has much of everything."""
QUICK_JOBS = {
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "log.flush.scheduler.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "producer.id.expiration.check.interval.ms": "1000",
    "offsets.retention.check.interval.ms": "1000",
    "log.cleanup.policy": "compact,delete",
}
JOBS_SECONDS = 5.0
COMPACTED = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "5000",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
COMPACTED_BATCHES, BATCH_RECORDS = 100, 5_000


@attrs.frozen
class Stall:
    """The longest stall that one request or job has caused."""

    name: str
    cost: Cost

    def __str__(self) -> str:
        stall_ms = self.cost.seconds * 1000
        return (
            f"{self.name:<48} {self.cost.frame_bytes:>10,} bytes  stall {stall_ms:>8.1f} ms"
            f"  neighbour waited {self.cost.neighbours_wait * 1000:>8.1f} ms"
            f"{'' if stall_ms <= MOST_MS else '  TOO LONG'}"
        )


def run() -> Iterator[Stall]:
    for name, hostile in (HOSTILE | ACCEPTED | dict(long_lists())).items():
        yield Stall(name, trio.run(partial(measure, hostile)))
    for rows in (about_everything, of_logs):
        yield from trio.run(partial(listed, rows))


async def listed(rows: Callable[[], AsyncIterator[Stall]]) -> list[Stall]:
    return [each async for each in rows()]


async def measure(hostile: Hostile) -> Cost:
    async with attacked(sender=hostile.sender) as stage:
        await stage.prepare(hostile, hostile.measured)
        freeze()
        return await stage.send(hostile.frame(hostile.measured), timed())


def freeze() -> None:
    """Collect garbage; collecting the tests' own modules again is no work of a request."""
    gc.collect()
    gc.freeze()


async def about_everything() -> AsyncIterator[Stall]:
    async with filled(partitions=PARTITIONS, others=OTHERS, properties=QUICK_JOBS) as stage:
        freeze()
        jobs = await stage.endured(partial(trio.sleep, JOBS_SECONDS), timed())
        yield Stall("A broker's own jobs", jobs)
        for name, request in FILLED.items():
            freeze()
            yield Stall(name, await request.sent_to(stage, timed()))


async def of_logs() -> AsyncIterator[Stall]:
    """Compact a log, and open it again after a kill."""
    async with attacked(properties=COMPACTED) as stage:
        for number in range(COMPACTED_BATCHES):
            await stage.send(frame_of(produce(keyed(number))), nullcontext({}))
        freeze()
        yield Stall("Compaction", await stage.endured(partial(until_cleaned, stage), timed()))
        await stage.cluster.kill_broker(1)
        freeze()
        with timed() as recovery:
            await stage.cluster.start_broker(1)
        yield Stall("Recovery", Cost(seconds=recovery["seconds"]))


def keyed(number: int) -> bytes:
    """Return a batch of which each record replaces one of the batch before."""
    return encode_batch(
        [
            Record(timestamp=0, key=b"%d" % each, value=b"%099d" % number)
            for each in range(BATCH_RECORDS)
        ]
    )


async def until_cleaned(stage: Attacked) -> None:
    log = stage.cluster.brokers[1].replica_manager.hosted.get(TopicPartition(TOPIC, 0)).log
    size = log.size
    await stage.cluster.until(lambda: log.size <= size // 2, what="the log is cleaned")
