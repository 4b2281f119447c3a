"""What Spark takes before there is much to do: micro-batches and cold starts.

    micro-batches   of few records into Parquet, beside Spark's own rate source
    cold starts     a process until its first row, with the class-data archive and without

About two minutes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.session import get_session
from storage.batch.records import Record, encode_batch
from tests.bench.figures import Figure, in_turn

BATCHES = 10
PATIENCE_SECONDS = 120.0
ROUNDS = 3
SECONDS = 90.0


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        write_small_log(Path(scratch) / "log")
        session = get_session(master="local[2]")
        try:
            yield micro_batches(session, Path(scratch))
        finally:
            session.stop()
        yield cold_starts(Path(scratch))


def write_small_log(directory: Path) -> None:
    (directory / "t-0").mkdir(parents=True)
    with (directory / "t-0" / f"{0:020d}.log").open("wb") as file:
        for number in range(100):
            records = [Record(timestamp=1000 + each, value=b"x" * 100) for each in range(10)]
            file.write(encode_batch(records, base_offset=10 * number))


def micro_batches(session: Any, work: Path) -> Figure:
    """A micro-batch each second, after the first: how many a second there could be."""
    options = {
        "startingOffsets": "earliest",
        "stopAtHighWatermark": "false",
        "maxOffsetsPerTrigger": "50",
    }
    ours = session.readStream.format("understudy").options(**options).load(str(work / "log"))
    floor = session.readStream.format("rate").option("rowsPerSecond", "50").load()
    ours_ms, floor_ms = milliseconds(ours, work / "ours"), milliseconds(floor, work / "floor")
    name = f"micro-batches a second ({ours_ms:.0f} ms), beside `rate`"
    return Figure(name, 1000 / ours_ms, 1000 / floor_ms, "/s")


def milliseconds(table: Any, work: Path) -> float:
    """The median of what a micro-batch with rows takes, but for the first."""
    query = (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime="1 second")
        .start(str(work / "table"))
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    taken: list[float] = []
    while len(taken) <= BATCHES and query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)  # the query runs by itself: it tells nobody when a batch is done
        done = [each for each in query.recentProgress if each["numInputRows"]]
        taken = [float(each["durationMs"]["triggerExecution"]) for each in done]
    query.stop()
    if len(taken) < 2:
        raise RuntimeError(f"{len(taken)} micro-batches in time: {query.exception()}")
    return statistics.median(taken[1:])


FIRST_ROW = """
import sys
from pipeline.session import get_session
session = get_session(master="local[2]", quick=True)
assert session.read.format("understudy").load(sys.argv[1]).first() is not None
"""


def cold_starts(work: Path) -> Figure:
    """Starts a minute, each to the first row of a small log."""
    bare, laid_out = work / "bare", work / "laid-out"  # Java takes its options apart at spaces
    python(laid_out, "-m", "pipeline.class_data")

    def starts_a_minute(cache: Path) -> float:
        began = time.perf_counter()
        python(cache, "-c", FIRST_ROW, str(work / "log"))
        return 60 / (time.perf_counter() - began)

    works = {
        "laid out": lambda: starts_a_minute(laid_out),
        "bare": lambda: starts_a_minute(bare),
    }
    took = in_turn(works, rounds=ROUNDS, seconds=SECONDS)
    name = f"cold starts ({60 / took['laid out']:.1f} s), beside no class data"
    return Figure(name, took["laid out"], took["bare"], "/min")


def python(cache: Path, *arguments: str) -> None:
    """Run this interpreter as a machine would whose cache is `cache`."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} failed: {done.stderr[-1000:]}")
