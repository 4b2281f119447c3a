"""Compaction, against reading the same segments once with their CRC-32C.

    ours    a gigabyte of dirty segments goes through the cleaner: read twice, looked up,
            written again where a record has been replaced
    floor   each batch of the same segments is read and its checksum computed: nothing more

Four of five records have been replaced by a later one of the same key: much to look up, whole
batches that go, and a fifth of the batches copied as they are. Records of 40 to 160 bytes have keys
in no order, so that nearly every batch loses some of its records and is written anew. Without
numpy, records are looked at one by one. Where there is numpy, it has been imported before: a broker
imports it once, in its first compaction. The longest stall is that of a loop that wants a turn
every 5 ms while the cleaner runs beside it in a worker thread, as it does in a broker: what the
interpreter's lock and the loop's own part (planning, putting in place) cost everybody else.
"""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import trio

from replication.net import ThreadOffload
from replication.replica_manager.compaction import TURN_BYTES
from storage.batch.record_batch import check_crc
from storage.batch.records import Record, encode_batch
from storage.cleaner.cleaner import Cleaning
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.record_walk import MakeWalk, OneByOne, best_walk
from storage.config import LogConfig
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.log.segment_file import read_batches
from storage.types import TopicPartition
from tests.bench.figures import Figure
from tests.storage.cleaning import begin as cleaning_of, finish
from tests.storage.logs import WALL_MS

MIB = 1024 * 1024
HEARTBEAT_SECONDS = 2.0
TURN_SECONDS = 0.005
SEGMENT_BYTES = 128 * MIB
BATCH_BYTES = 64 * 1024
MAP_BYTES = 128 * MIB


@attrs.frozen
class Content:
    """The records that fill the log of one measurement."""

    record_bytes: int
    total_bytes: int
    # Values are so many bytes longer or shorter, at most, and keys are in no order.
    spread: int = 0


SMALL = Content(100, 128 * MIB)
LOGS: dict[str, tuple[Content, MakeWalk]] = {
    "100-byte records": (SMALL, best_walk),
    "1 KiB records": (Content(1024, 512 * MIB), best_walk),
    "records of 40 to 160 bytes": (attrs.evolve(SMALL, spread=60), best_walk),
    "100-byte records, without numpy": (SMALL, OneByOne),
}


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        best_walk(OffsetMap(MAP_BYTES))
        for name, (content, walk) in LOGS.items():
            log = filled(Path(scratch) / "t-0", content)
            size = sum(each.size for each in list(log.segments)[:-1])
            floor = size / MIB / timed(partial(read_once, log))
            ours = size / MIB / timed(partial(clean, log, walk))
            log.close_uncleanly()
            shutil.rmtree(Path(scratch) / "t-0")
            yield Figure(f"compaction, {name}", ours, floor, "MiB/s")
        log = filled(Path(scratch) / "t-0", Content(1024, 1024 * MIB))
        stall = trio.run(longest_stall, log)
        left = (HEARTBEAT_SECONDS - stall) * 1000
        yield Figure(
            "heartbeat left by a 1 GiB compaction", left, HEARTBEAT_SECONDS * 1000, "ms", goal=0.9
        )


def filled(directory: Path, content: Content) -> Log:
    """Closed segments, and an empty active one."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=frozenset({"compact"}))
    log = Log.open(OsFileSystem(), str(directory), TopicPartition("t", 0), config=config)
    size, spread, chance = content.record_bytes, content.spread, random.Random(0)
    count = BATCH_BYTES // size
    keys = max(content.total_bytes // size // 5, 1)
    value = os.urandom(size + spread)
    number = 0
    while log.size < content.total_bytes:
        records = [
            Record(
                timestamp=WALL_MS,
                key=b"%016d" % (chance.randrange(keys) if spread else 7919 * (number + n) % keys),
                value=value[: size + chance.randint(-spread, spread)],
            )
            for n in range(count)
        ]
        batch = encode_batch(records, base_offset=number, leader_epoch=0)
        log.append_as_follower(memoryview(bytearray(batch)))
        number += count
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return log


def timed(work: partial[None]) -> float:
    """Seconds of processor time: both are bound by it, and files lie in the page cache."""
    began = time.process_time()
    work()
    return time.process_time() - began


def read_once(log: Log) -> None:
    for segment in list(log.segments)[:-1]:
        for batch in read_batches(segment.pins.file, 0, segment.size):
            if not check_crc(batch.data):
                raise RuntimeError("a batch that nobody has touched is damaged")


def begin(log: Log, walk: MakeWalk = best_walk) -> Cleaning:
    return cleaning_of(log, memory=MAP_BYTES, walk=walk)


def clean(log: Log, walk: MakeWalk = best_walk) -> None:
    finish(begin(log, walk), budget=TURN_BYTES)


async def longest_stall(log: Log) -> float:
    """Seconds by which a task that wants a turn every few milliseconds was late, at worst."""
    worst = 0.0

    async def want_turns(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal worst
        task_status.started()
        while True:
            due = time.perf_counter() + TURN_SECONDS
            await trio.sleep(TURN_SECONDS)
            worst = max(worst, time.perf_counter() - due)

    async with trio.open_nursery() as nursery:
        await nursery.start(want_turns)
        offload = ThreadOffload()
        cleaning = begin(log)
        while not cleaning.done:
            await offload(partial(cleaning.advance, TURN_BYTES))
            if cleaning.ready:
                cleaning.commit()
        cleaning.close()
        nursery.cancel_scope.cancel()
    return worst
