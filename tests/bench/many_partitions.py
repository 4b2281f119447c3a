"""Opening ten thousand partitions after a clean stop: how long, how much heap, how many files.

    ours    LogManager.startup over a directory that LogManager.shutdown left
    floor   every partition's directory is listed, and one small file in each is read

Each partition has one segment with a record, a leader epoch and a topic id. The files are in
the page cache for both. Heap is what tracemalloc counts for the open logs, in a start of its
own: counting makes everything slower.
"""

import gc
import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from storage.batch.records import Record, encode_batch
from storage.checkpoint import LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition
from tests.bench.figures import Figure, interleaved

PARTITIONS = 10_000
ROUNDS = 5
WALL_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
DESCRIPTORS = Path("/proc/self/fd")  # Linux; elsewhere that figure is left out


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        log_dir = f"{scratch}/logs"
        fill(log_dir)
        ours, floor = interleaved(
            lambda: open_all(log_dir), lambda: bare_look(log_dir), rounds=ROUNDS
        )
        yield Figure(f"open {PARTITIONS:,} partitions", ours, floor, "ms")
        yield Figure("heap for each of them", heap_of_one(log_dir) / 1024, 4, "KiB")
        if DESCRIPTORS.exists():
            yield Figure(
                "descriptors while they are open", descriptors(log_dir), PARTITIONS, "files"
            )


def fill(log_dir: str) -> None:
    """One partition as a broker leaves it, and copies of it."""
    logs = LogManager(OsFileSystem(), [log_dir], node_id=1, cluster_id="bench")
    logs.startup()
    record = encode_batch([Record(timestamp=WALL_MS, value=b"x" * 100)])
    log = logs.get_or_create(TopicPartition("bench", 0), TOPIC_ID)
    log.append_as_leader(memoryview(bytearray(record)), leader_epoch=0, wall_ms=WALL_MS)
    logs.shutdown()
    for partition in range(1, PARTITIONS):
        shutil.copytree(f"{log_dir}/bench-0", f"{log_dir}/bench-{partition}")
    recovery_points = OffsetCheckpoint(OsFileSystem(), f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}")
    recovery_points.write({TopicPartition("bench", each): 1 for each in range(PARTITIONS)})


def opened(log_dir: str) -> LogManager:
    logs = LogManager(OsFileSystem(), [log_dir], node_id=1, cluster_id="bench")
    logs.startup()
    if not logs.clean or len(logs.logs()) != PARTITIONS:
        raise RuntimeError("that was no clean start of all of them")
    return logs


def open_all(log_dir: str) -> float:
    """Milliseconds."""
    gc.collect()
    began = time.perf_counter()
    logs = opened(log_dir)
    took = (time.perf_counter() - began) * 1000
    logs.shutdown()
    return took


def bare_look(log_dir: str) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    for entry in os.scandir(log_dir):
        if entry.is_dir():
            os.listdir(entry.path)  # noqa: PTH208 - the least that it can cost
            fd = os.open(f"{entry.path}/{LEADER_EPOCH_CHECKPOINT}", os.O_RDONLY)
            os.read(fd, 4096)
            os.close(fd)
    return (time.perf_counter() - began) * 1000


def heap_of_one(log_dir: str) -> float:
    """Bytes."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    logs = opened(log_dir)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    logs.shutdown()
    return (after - before) / PARTITIONS


def descriptors(log_dir: str) -> int:
    before = len(list(DESCRIPTORS.iterdir()))
    logs = opened(log_dir)
    held = len(list(DESCRIPTORS.iterdir())) - before
    logs.shutdown()
    return held
