"""Reading a log again after a crash, against reading it once with the CRC; and the loop meanwhile.

    ours     every segment of a log of 1 GiB is read, checked and indexed, as after a crash
             that came before anything was synced (recovery point 0)
    floor    the same files, 1 MiB at a time into one buffer, with a CRC-32C of each megabyte

    Both are counted in seconds of CPU, the kernel's copying included: nothing else is waited
    for, and a busy machine makes wall time say nothing.

    stall    a broker's loop, which wakes every millisecond, while a worker thread recovers:
             the longest it was late; the goal is that of a heartbeat

The log is in the page cache for both. Batches of 16 KiB and of 1 MiB, from no producer and
from an idempotent one.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import crc32c
import trio

from replication.events import ignore
from replication.net import ThreadOffload
from replication.replica_manager.log_loading import load_logs
from storage.batch.records import Record, encode_batch
from storage.config import LogConfig
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import TopicPartition
from tests.bench.figures import Figure, interleaved

MIB = 1 << 20
TOTAL_BYTES = 1024 * MIB
SEGMENT_BYTES = 256 * MIB
ROUNDS = 7
SHARES = 4  # partitions, for the loop and for several workers
HEARTBEAT_MS = 2000.0
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, max_message_bytes=2 * MIB)


def run() -> Iterator[Figure]:
    for size, name in ((16 * 1024, "16 KiB"), (MIB, "1 MiB")):
        for idempotent in (False, True):
            with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
                fill(Path(scratch), 1, batch_bytes=size, idempotent=idempotent)
                yield against_one_read(Path(scratch), name, idempotent=idempotent)
        with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
            fill(Path(scratch), SHARES, batch_bytes=size, idempotent=True)
            yield from beside_a_loop(Path(scratch), name)


def fill(log_dir: Path, partitions: int, *, batch_bytes: int, idempotent: bool) -> None:
    """A killed broker's directory: no marker, no checkpoint, every index as appending left it."""
    for number in range(partitions):
        partition = TopicPartition("bench", number)
        log = Log.open(OsFileSystem(), str(log_dir / str(partition)), partition, config=CONFIG)
        for sequence in range(TOTAL_BYTES // partitions // batch_bytes):
            batch = encode_batch(
                [Record(timestamp=sequence, key=None, value=os.urandom(batch_bytes - 80))],
                base_offset=sequence,
                leader_epoch=1,
                producer_id=7 if idempotent else -1,
                producer_epoch=0 if idempotent else -1,
                base_sequence=sequence if idempotent else -1,
            )
            log.append_as_follower(memoryview(batch))
        log.close_uncleanly()


def against_one_read(log_dir: Path, name: str, *, idempotent: bool) -> Figure:
    recovered(log_dir)  # what is read first meets cold memory: it does not count
    ours, floor = interleaved(lambda: recovered(log_dir), lambda: read_once(log_dir), rounds=ROUNDS)
    kind = "idempotent" if idempotent else "no producer"
    return Figure(f"recovery, {name} batches, {kind}", ours, floor, "MiB/s", goal=0.7)


def recovered(log_dir: Path) -> float:
    """MiB/s at which the log is opened after a crash."""
    forget_snapshots(log_dir)
    partition = TopicPartition("bench", 0)
    began = time.process_time()
    log = Log.open(OsFileSystem(), str(log_dir / str(partition)), partition, config=CONFIG)
    rate = log.size / MIB / (time.process_time() - began)
    if log.recovery.bytes_truncated or not log.recovery.segments_recovered:
        raise RuntimeError(f"that was no recovery of a sound log: {log.recovery}")
    log.close_uncleanly()
    return rate


def forget_snapshots(log_dir: Path) -> None:
    for path in log_dir.glob("*/*.snapshot"):
        path.unlink()


def read_once(log_dir: Path) -> float:
    """MiB/s of reads of a megabyte into one buffer, with its CRC."""
    buffer = memoryview(bytearray(MIB))
    paths = sorted(log_dir.glob("*/*.log"))
    began = time.process_time()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                crc32c.crc32c(buffer[:count])
    size = sum(path.stat().st_size for path in paths)
    return size / MIB / (time.process_time() - began)


def beside_a_loop(log_dir: Path, name: str) -> Iterator[Figure]:
    """The longest stall of a loop, and what a second worker is worth."""
    rounds = [
        trio.run(load_beside_a_watch, log_dir, threads) for _ in range(3) for threads in (1, 2)
    ]
    stall_ms = max(stall for _, stall in rounds)
    yield Figure(f"longest stall of the loop, {name} (at most 1)", stall_ms, HEARTBEAT_MS, "ms")
    one, two = ([rate for rate, _ in rounds[which::2]] for which in (0, 1))
    ours, floor = sorted(two)[1], sorted(one)[1]
    yield Figure(f"{SHARES} logs, two workers against one, {name}", ours, floor, "MiB/s")


async def load_beside_a_watch(log_dir: Path, threads: int) -> tuple[float, float]:
    """MiB/s with so many workers, and how late a task of the loop was at most, in ms."""
    forget_snapshots(log_dir)
    logs = LogManager(OsFileSystem(), [str(log_dir)], node_id=1, config=CONFIG)
    latest = 0.0

    async def watch() -> None:
        nonlocal latest
        while True:
            due = time.perf_counter() + 0.001
            await trio.sleep(0.001)
            latest = max(latest, time.perf_counter() - due)

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await load_logs(logs, ThreadOffload(), ignore, threads_per_directory=threads)
        took = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    size = sum(log.size for log in logs.logs())
    logs.close_uncleanly()
    return size / MIB / took, latest * 1000
