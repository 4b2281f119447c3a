"""The audit on Spark, beside reading the same files once with their CRC in as many processes.

    ours      three replicas of a 2 GiB log: batches audited a second, in one warm session
    floor     the same files read by as many processes, a CRC-32C of all bytes computed

The growth: the time of an audit of 10,000 partitions of one small segment, a replica each on
two directories, beside 100 of them; per partition it should not become more.

How large the log is: `spark_logs`. A figure's rounds end when its time is up; on a quiet machine
of two cores 2 GiB take about three minutes.
"""

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import crc32c

from pipeline.audit.job import audit, of_directories
from pipeline.session import get_session
from storage.batch.records import Record, encode_batch
from tests.bench.figures import Figure, in_turn
from tests.bench.spark_logs import MIB, SIZES, write_log

CORES = 2
ROUNDS = 3
SECONDS = 45.0
SMALL, LARGE = 100, 10_000


def run() -> Iterator[Figure]:
    session = get_session(master=f"local[{CORES}]")
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        for name, value_size in SIZES:
            with tempfile.TemporaryDirectory() as scratch:
                directories = replicas(Path(scratch), value_size)
                yield from against_reading(session, pool, name, directories)
    with tempfile.TemporaryDirectory() as scratch:
        yield growth(session, Path(scratch))
    session.stop()


def against_reading(
    session: Any, pool: Any, name: str, directories: dict[str, str]
) -> Iterator[Figure]:
    size = sum(path.stat().st_size for each in directories.values() for path in logs_in(each))
    works = {
        "headers": partial(audited, session, directories, check_crcs=False),
        "every CRC": partial(audited, session, directories, check_crcs=True),
        "reading": partial(read_once, pool, directories),
    }
    timed = {what: partial(rate, size, work) for what, work in works.items()}
    timed["headers"]()  # what is compiled on the way does not count
    took = in_turn(timed, rounds=ROUNDS, seconds=SECONDS)
    for what, goal in (("headers", None), ("every CRC", 0.7)):
        name_of_it = f"audit by {what}, {name}, beside reading"
        yield Figure(name_of_it, took[what], took["reading"], "MiB/s", goal=goal)


def growth(session: Any, scratch: Path) -> Figure:
    """Partitions a second, of many beside few."""
    rates: list[float] = []
    for count in (SMALL, SMALL, LARGE):  # the first one compiles what is on the way
        directories = small_partitions(scratch / f"{len(rates)}", count)
        began = time.monotonic()
        audited(session, directories, check_crcs=False)
        rates.append(count / (time.monotonic() - began))
    _, few, many = rates
    return Figure(f"audit of {LARGE:,} partitions, beside {SMALL}", many, few, "1/s", goal=1)


def rate(size: int, work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return size / MIB / (time.monotonic() - began)


def audited(session: Any, directories: dict[str, str], *, check_crcs: bool) -> None:
    found = audit(of_directories(session, directories, check_crcs=check_crcs))
    assert all(each.result == "same" for each in found), "the benchmark's own replicas are alike"


def read_once(pool: Any, directories: dict[str, str]) -> None:
    paths = [str(path) for each in directories.values() for path in logs_in(each)]
    for _ in pool.imap_unordered(checksum, paths):
        pass


def checksum(path: str) -> int:
    """Return the CRC of a file, each byte of which is read once."""
    crc = 0
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as bare as it gets
        while data := file.read(4 * MIB):
            crc = crc32c.crc32c(data, crc)
    return crc


def logs_in(directory: str) -> list[Path]:
    return sorted(Path(directory).rglob("*.log"))


def replicas(scratch: Path, value_size: int) -> dict[str, str]:
    """One partition on three brokers."""
    write_log(scratch / "b1", value_size)
    for name in ("b2", "b3"):
        shutil.copytree(scratch / "b1", scratch / name)
    return {name: str(scratch / name) for name in ("b1", "b2", "b3")}


def small_partitions(scratch: Path, count: int) -> dict[str, str]:
    batch = encode_batch([Record(timestamp=1, value=b"v" * 100)])
    for name in ("b1", "b2"):
        for number in range(count):
            directory = scratch / name / f"t-{number}"
            directory.mkdir(parents=True)
            (directory / f"{0:020d}.log").write_bytes(batch)
    return {name: str(scratch / name) for name in ("b1", "b2")}
