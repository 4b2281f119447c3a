"""The Spark source: a log of 2 GiB into nothing, `local[2]`, all in one session.

    ours            all columns into the noop sink, every CRC-32C checked
    Parquet         Spark's own read of the same rows, as its writer left them (zstd)
    rows            the same log through a source that yields tuples; an eighth of it
    value, offset   ours with a projected schema, against ours with all columns

    micro-batches   of few records into Parquet, against Spark's own rate source
    cold start      a process until its first row, with the class-data archive and without

SPARK_BENCH_MIB=256 makes the log smaller.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.session import get_session
from storage.compression import Codec
from storage.record_batch import stamp
from storage.records import Record, encode_batch
from tests.bench.figures import Figure, interleaved

MIB = 1024 * 1024
LOG_MIB = int(os.environ.get("SPARK_BENCH_MIB", "2048"))
SEGMENT_MIB = 64
BATCH_BYTES = 16 * 1024
ROUNDS = 3


def run() -> Iterator[Figure]:
    session = get_session(master="local[2]")
    from tests.bench.spark_rows import Rows

    session.dataSource.register(Rows)
    work = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
    try:
        for name, size, *goals in (("100 B", 100, 0.8, 8.0), ("1 KiB", 1024, None, None)):
            count = write_log(work / name, size)
            yield from scans(
                session, work / name, count, beside_parquet=goals[0], beside_rows=goals[1]
            )
            shutil.rmtree(work / name)
        yield micro_batches(session, work)
        session.stop()
        yield cold_starts(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        session.stop()


def write_log(directory: Path, size: int) -> int:
    """Segments of the same batch over and over, but for its offsets; how many records."""
    (directory / "t-0").mkdir(parents=True)
    per_batch = BATCH_BYTES // (size + 10)
    records = [
        Record(timestamp=1_700_000_000_000 + each, key=None, value=os.urandom(size))
        for each in range(per_batch)
    ]
    batch = bytearray(encode_batch(records, codec=Codec.NONE))
    offset = 0
    for _ in range(max(1, LOG_MIB // SEGMENT_MIB)):
        with (directory / "t-0" / f"{offset:020d}.log").open("wb") as file:
            for _ in range(SEGMENT_MIB * MIB // len(batch)):
                stamp(batch, base_offset=offset, leader_epoch=0)
                file.write(batch)
                offset += per_batch
    return offset


def scans(
    session: Any, log: Path, count: int, *, beside_parquet: float | None, beside_rows: float | None
) -> Iterator[Figure]:
    name = log.name

    def ours(schema: str | None = None) -> Callable[[], float]:
        reader = session.read.format("understudy")
        table = (reader.schema(schema) if schema else reader).load(str(log))
        return lambda: rate(table, count)

    parquet = log.with_name(f"{name}.parquet")
    session.read.format("understudy").load(str(log)).write.option("compression", "zstd").parquet(
        str(parquet)
    )
    table = session.read.parquet(str(parquet))
    pair = interleaved(ours(), lambda: rate(table, count), rounds=ROUNDS)
    yield Figure(f"all columns, {name}, beside Parquet", *pair, "M/s", goal=beside_parquet)
    shutil.rmtree(parquet)
    eighth = first_segments(log, max(1, LOG_MIB // SEGMENT_MIB // 8))
    rows = session.read.format("rows").load(str(eighth))
    part = rows.count()
    pair = interleaved(ours(), lambda: rate(rows, part), rounds=ROUNDS)
    yield Figure(f"all columns, {name}, beside rows", *pair, "M/s", goal=beside_rows)
    for column, schema in (("value", "value binary"), ("offset", "offset bigint")):
        pair = interleaved(ours(schema), ours(), rounds=ROUNDS)
        yield Figure(f"  {column} only, {name}, beside all columns", *pair, "M/s")


def first_segments(log: Path, count: int) -> Path:
    part = log.with_name(f"{log.name} part")
    (part / "t-0").mkdir(parents=True)
    for path in sorted((log / "t-0").glob("*.log"))[:count]:
        (part / "t-0" / path.name).hardlink_to(path)
    return part


def rate(table: Any, count: int) -> float:
    """Millions of records a second into the noop sink."""
    began = time.perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began) / 1e6


def micro_batches(session: Any, work: Path) -> Figure:
    """Ten micro-batches of a second each after the first: milliseconds that each took."""
    write_small_log(work / "stream")
    ours = (
        session.readStream.format("understudy")
        .option("startingOffsets", "earliest")
        .option("stopAtHighWatermark", "false")
        .option("maxOffsetsPerTrigger", "50")
        .load(str(work / "stream"))
    )
    floor = session.readStream.format("rate").option("rowsPerSecond", "50").load()
    ours_ms, floor_ms = durations(ours, work / "ours"), durations(floor, work / "floor")
    name = "micro-batches a second, beside the rate source"
    return Figure(name, 1000 / ours_ms, 1000 / floor_ms, "/s")


def write_small_log(directory: Path) -> None:
    (directory / "t-0").mkdir(parents=True)
    with (directory / "t-0" / f"{0:020d}.log").open("wb") as file:
        for number in range(100):
            records = [Record(timestamp=1000 + each, value=b"x" * 100) for each in range(10)]
            file.write(encode_batch(records, base_offset=10 * number))


def durations(table: Any, work: Path) -> float:
    query = (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime="1 second")
        .start(str(work / "table"))
    )
    while len(query.recentProgress) < 11:
        time.sleep(0.1)  # the query runs by itself: it tells nobody when a batch is done
    query.stop()
    taken = [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress[1:]]
    return statistics.median(taken)


FIRST_ROW = """
import sys
from pipeline.session import get_session
session = get_session(master="local[2]", quick=True)
assert session.read.format("understudy").load(sys.argv[1]).first() is not None
"""


def cold_starts(work: Path) -> Figure:
    """Starts a minute, each to the first row of a small log."""
    bare, laid_out = work / "bare", work / "laid out"
    python([str(work / "stream")], laid_out, "-m", "pipeline.class_data")

    def starts_a_minute(cache: Path) -> float:
        began = time.perf_counter()
        python([str(work / "stream")], cache, "-c", FIRST_ROW)
        return 60 / (time.perf_counter() - began)

    pair = interleaved(
        lambda: starts_a_minute(laid_out), lambda: starts_a_minute(bare), rounds=ROUNDS
    )
    return Figure("cold starts a minute, with class data", *pair, "/min")


def python(arguments: list[str], cache: Path, *what: str) -> None:
    """Run this interpreter as a machine would whose cache is `cache`."""
    subprocess.run(
        [sys.executable, *what, *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
