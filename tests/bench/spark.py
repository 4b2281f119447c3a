"""The Spark source, `local[2]`, all in one session, records of 100 bytes and of 1 KiB.

    all columns     into the noop sink, every CRC-32C checked; the floor of what follows:
      Parquet       Spark's own read of the same rows, as its writer left them (zstd)
      rows          an eighth of the log through a source that yields tuples
    value, offset   ours with a projected schema, beside ours with all columns
    export          to Parquet in the workers, beside Spark's writer, both zstd
    decoder alone   one core, all columns, in its own time, beside the rate that was asked for

How large the log is: `spark_logs`. A figure's rounds end when its time is up; on a quiet
machine of two cores 2 GiB take about five minutes.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from pipeline.export.deserialisers import Deserialiser
from pipeline.export.job import export
from pipeline.export.parquet import ParquetTarget
from pipeline.export.writing import Format
from pipeline.session import get_session
from storage.batch.columns import columnar
from storage.filesystem import OsFileSystem
from tests.bench.figures import Figure, in_turn
from tests.bench.spark_logs import LOG_MIB, SEGMENT_MIB, SIZES, write_log

ROUNDS = 3
SECONDS = 60.0
# What is asked of the decoder, thousands of records a second.
DECODED = {"100 B": 6000.0, "1 KiB": 2000.0}
BESIDE_PARQUET = {"100 B": 0.8, "1 KiB": None}
BESIDE_ROWS = 8.0
BESIDE_WRITER = 2.5


def run() -> Iterator[Figure]:
    session = get_session(master="local[2]")
    from tests.bench.spark_rows import Rows

    session.dataSource.register(Rows)
    try:
        for name, size in SIZES:
            with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
                log = Path(scratch) / "log"
                count = write_log(log, size)
                print(f"{name}: {count:,} records, {LOG_MIB} MiB", flush=True)
                yield decoder_alone(log, name)
                bench = Bench(session, Path(scratch), log, count, name)
                yield from bench.writing()
                yield from bench.reading()
    finally:
        session.stop()


@attrs.frozen
class Bench:
    """One log of `count` records; what Spark wrote of it stays for reading."""

    session: Any
    scratch: Path
    log: Path
    count: int
    name: str

    @property
    def parquet(self) -> str:
        return str(self.scratch / "parquet")

    def writing(self) -> Iterator[Figure]:
        works = {"ours": self._export, "Spark's": self._spark_writes}
        took = in_turn(works, rounds=2, seconds=SECONDS)
        name = f"export to Parquet, {self.name}, beside Spark's"
        yield Figure(name, took["ours"], took["Spark's"], "k/s", goal=BESIDE_WRITER)

    def reading(self) -> Iterator[Figure]:
        rows, part = self._rows()
        works = {
            "all": self._ours(),
            "parquet": lambda: rate(self.session.read.parquet(self.parquet), self.count),
            "rows": lambda: rate(rows, part),
            "value": self._ours("value binary"),
            "offset": self._ours("offset bigint"),
        }
        works["all"]()  # what is compiled on the way does not count
        took = in_turn(works, rounds=ROUNDS, seconds=SECONDS)
        all_columns = took["all"]
        for floor, goal in (("parquet", BESIDE_PARQUET[self.name]), ("rows", BESIDE_ROWS)):
            name = f"all columns, {self.name}, beside {floor}"
            yield Figure(name, all_columns, took[floor], "k/s", goal=goal)
        for column in ("value", "offset"):
            name = f"  {column} only, {self.name}, beside all columns"
            yield Figure(name, took[column], all_columns, "k/s")

    def _export(self) -> float:
        target = self.scratch / "exported"
        made = Format(
            key=Deserialiser("bytes"),
            value=Deserialiser("bytes"),
            headers=False,
            compression="zstd",
        )
        began = on_a_clean_disk()
        done = export(self.session, {"path": str(self.log)}, ParquetTarget(target), made)
        took = time.perf_counter() - began
        assert done.records == self.count, "all of the log is exported"
        shutil.rmtree(target)
        return self.count / took / 1e3

    def _spark_writes(self) -> float:
        table = self.session.read.format("understudy").load(str(self.log))
        began = on_a_clean_disk()
        table.write.mode("overwrite").option("compression", "zstd").parquet(self.parquet)
        return self.count / (time.perf_counter() - began) / 1e3

    def _ours(self, schema: str | None = None) -> Callable[[], float]:
        reader = self.session.read.format("understudy")
        table = (reader.schema(schema) if schema else reader).load(str(self.log))
        return lambda: rate(table, self.count)

    def _rows(self) -> tuple[Any, int]:
        """An eighth of the log, as tuples."""
        part = self.scratch / "part"
        (part / "t-0").mkdir(parents=True)
        segments = sorted((self.log / "t-0").glob("*.log"))
        for path in segments[: max(1, LOG_MIB // SEGMENT_MIB // 8)]:
            (part / "t-0" / path.name).hardlink_to(path)
        table = self.session.read.format("rows").load(str(part))
        return table, table.count()


def on_a_clean_disk() -> float:
    """Now, once nothing waits to be written that somebody else's round has left."""
    os.sync()
    return time.perf_counter()


def rate(table: Any, count: int) -> float:
    """Thousands of records a second into the noop sink."""
    began = time.perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began) / 1e3


def decoder_alone(log: Path, name: str) -> Figure:
    """The first segment, in the time of this process: thousands of records a second."""
    path = min((log / "t-0").glob("*.log"))

    def decoded() -> float:
        file = OsFileSystem().open_for_reading(str(path))
        began = time.process_time()
        count: int = sum(batch.num_rows for batch in columnar.read(file, reuse_buffer=True))
        took = time.process_time() - began
        file.close()
        return count / took / 1e3

    took = in_turn({"ours": decoded}, rounds=5, seconds=SECONDS)["ours"]
    return Figure(
        f"decoder alone, {name}, beside what was asked", took, DECODED[name], "k/s", goal=1
    )
