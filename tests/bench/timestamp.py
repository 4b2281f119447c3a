"""Offsets by time in a log of a thousand segments, against one look where the answer lies.

    ours    Log.offset_for_timestamp of times all over the log
    floor   the batch that holds the answer is read from its file and its record found

Ours has been opened after a clean stop and has answered each question once before: the first
answer reads the last entry of each time index, later ones find it in memory.
"""

import random
import tempfile
import time
from collections.abc import Iterator

from storage.config import LogConfig
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX
from storage.types import TopicPartition
from tests.bench.append import follower_batches
from tests.bench.figures import Figure, interleaved
from tests.storage.logs import outlined

ROUNDS = 9
SEGMENTS, BATCHES_EACH, BATCH_BYTES = 1000, 20, 1000
STEP_MS = 10
QUESTIONS = 2000

Place = tuple[str, int, int]  # a file, the batch's position in it, its size


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        config = LogConfig(
            segment_bytes=BATCHES_EACH * BATCH_BYTES, segment_index_bytes=4096, segment_ms=2**62
        )
        fill(scratch, config)
        log = opened(scratch, config)
        times = random.Random(1).choices(range(SEGMENTS * BATCHES_EACH * STEP_MS), k=QUESTIONS)
        yield first_answer(log, times[0])
        places = {asked: place_of(log, asked) for asked in times}
        ours, floor = interleaved(
            lambda: answer_all(log, times), lambda: look_at_all(places, times), rounds=ROUNDS
        )
        log.close_uncleanly()
        yield Figure(f"offset by time, {len(log.segments)} segments", ours, floor, "/s")


def fill(scratch: str, config: LogConfig) -> None:
    log = Log.open(OsFileSystem(), f"{scratch}/t-0", TopicPartition("t", 0), config=config)
    for number in range(SEGMENTS * BATCHES_EACH):
        (batch,) = follower_batches(BATCH_BYTES, 1, first_offset=number, timestamp=number * STEP_MS)
        log.append_as_follower(batch)
    log.close()


def opened(scratch: str, config: LogConfig) -> Log:
    end = SEGMENTS * BATCHES_EACH
    where = f"{scratch}/t-0"
    return Log.open(
        OsFileSystem(), where, TopicPartition("t", 0), config=config, clean=True, recovery_point=end
    )


def first_answer(log: Log, asked: int) -> Figure:
    began = time.perf_counter()
    log.offset_for_timestamp(asked)
    first = time.perf_counter() - began
    began = time.perf_counter()
    log.offset_for_timestamp(asked)
    again = time.perf_counter() - began
    return Figure("the first such question, and again", first * 1e6, again * 1e6, "us")


def place_of(log: Log, asked: int) -> Place:
    found = log.offset_for_timestamp(asked)
    assert found is not None, "no question is about the time after the last record"
    segment = log.segments.floor(found.offset)
    assert segment is not None, "an offset that was found lies in a segment"
    batch = segment.locate(found.offset)
    assert batch is not None, "and in a batch"
    return segment.path(LOG_SUFFIX), batch.position, batch.size


def answer_all(log: Log, times: list[int]) -> float:
    """Questions a second."""
    began = time.perf_counter()
    for asked in times:
        log.offset_for_timestamp(asked)
    return len(times) / (time.perf_counter() - began)


def look_at_all(places: dict[int, Place], times: list[int]) -> float:
    """Questions a second."""
    system = OsFileSystem()
    files = {path: system.open_for_reading(path) for path, _, _ in places.values()}
    began = time.perf_counter()
    for asked in times:
        path, position, size = places[asked]
        for record in outlined(files[path].read(position, size)):
            if record.timestamp >= asked:
                break
    took = time.perf_counter() - began
    for file in files.values():
        file.close()
    return len(times) / took
