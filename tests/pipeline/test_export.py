"""Exports: each record once, wherever a run was killed; most of it without Spark."""

import contextlib
import io
import itertools
import json
import os
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.export.deserialisers import DeserialiseError, Deserialiser
from pipeline.export.parquet import STATE, ParquetTarget
from pipeline.export.source import RESERVED
from pipeline.export.target import ExportError, Target
from pipeline.source.columns import formats_for
from pipeline.source.options import parse_read_options
from storage.batch.records import Record, encode_batch
from storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, OffsetCheckpoint
from storage.filesystem import OsFileSystem
from storage.tools.standalone import open_log_directory
from tests.pipeline.exports import exported, made, run
from tests.pipeline.failover_run import RECORDS, TOPIC, FailoverRun
from tests.pipeline.logs import FIRST_MS, SMALL, TP, append, every_record, write_log

DAY_MS = 24 * 3_600_000


def log_of(directory: Path, batches: int = 40) -> Path:
    """A log directory all of whose records are committed."""
    write_log(directory, batches)
    return commit(directory)


def add(directory: Path, *batches: list[Record]) -> None:
    """Append to the log there, and have it committed."""
    with open_log_directory(directory, config=SMALL, node_id=1) as logs:
        log = logs.get_or_create(TP)
        for records in batches:
            append(log, encode_batch(records))
    commit(directory)


def commit(directory: Path) -> Path:
    """As a broker's checkpoint of high watermarks has it."""
    with open_log_directory(directory, config=SMALL, node_id=1) as logs:
        end = logs.get_or_create(TP).log_end_offset
    OffsetCheckpoint(OsFileSystem(), str(directory / HIGH_WATERMARK_CHECKPOINT)).write({TP: end})
    return directory


def offsets(directory: Path) -> list[int]:
    return [row["offset"] for row in exported(directory)]


def parquet(directory: Path) -> Target:
    return ParquetTarget(directory)


def delta(directory: Path) -> Target:
    pytest.importorskip("deltalake", reason="the delta extra is not installed: understudy[delta]")
    from pipeline.export.delta import DeltaTarget

    return DeltaTarget(directory, made())


def in_delta(directory: Path) -> list[int]:
    from deltalake import DeltaTable

    found = DeltaTable(directory).to_pyarrow_dataset().to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())


def iceberg(directory: Path) -> Target:
    pytest.importorskip("pyiceberg", reason="the iceberg extra is not installed")
    from pipeline.export.iceberg import IcebergTarget

    return IcebergTarget(directory, attrs.evolve(made(), partition_columns=True))


def in_iceberg(directory: Path) -> list[int]:
    return sorted(row["offset"] for row in iceberg_rows(directory))


def iceberg_rows(directory: Path, **scan: Any) -> list[dict[str, Any]]:
    from pipeline.export.iceberg import TABLE, open_catalog

    with open_catalog(directory) as catalog:
        rows: list[dict[str, Any]] = catalog.load_table(TABLE).scan(**scan).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def forms(*iceberg_marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("target", "found"),
        [
            pytest.param(parquet, offsets, id="parquet"),
            pytest.param(delta, in_delta, id="delta"),
            pytest.param(iceberg, in_iceberg, id="iceberg", marks=iceberg_marks),
        ],
    )


FORMS = forms()
Make = Callable[[Path], Target]
Find = Callable[[Path], list[int]]


def test_the_files_hold_what_the_log_holds_by_topic_and_date(tmp_path: Path) -> None:
    log_dir = log_of(tmp_path / "log")
    add(log_dir, [Record(timestamp=FIRST_MS - DAY_MS, value=b"late"), Record(timestamp=-1)])
    done = run({"path": str(log_dir)}, parquet(tmp_path / "out"), made(headers=True))
    rows = exported(tmp_path / "out")
    records = [record for _, record in every_record(log_dir)]
    assert done.records == len(rows) == len(records)
    assert [(row["key"], row["value"]) for row in rows] == [(r.key, r.value) for r in records]
    assert [row["headers"] for row in rows] == [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in records
    ]
    assert {row["topic"] for row in rows} == {TP.topic}
    assert {file.date for file in done.files} == {"2023-11-14", "2023-11-13", None}
    assert str(rows[-2]["date"]) == "2023-11-13"


def test_no_dictionary_is_tried_of_what_is_hardly_there_twice(tmp_path: Path) -> None:
    options = {"path": str(log_of(tmp_path / "log"))}
    others = {"key", "partition", "timestampType"}
    nested = {"headers.list.element.key", "headers.list.element.value"}
    own = {"value.size", "value.first"}
    for format_, expected in (
        (made(headers=True), others | nested),
        (made(value="tests.pipeline.test_export:structs"), others | own),
    ):
        out = tmp_path / format_.value.name[-7:]
        run(options, parquet(out), format_)
        group = pq.ParquetFile(next(out.glob("topic=*/*/*.parquet"))).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        found = {each.path_in_schema for each in columns if each.has_dictionary_page}
        assert found == expected
        without = {each.path_in_schema for each in columns if not each.is_stats_set}
        assert without == {"value"} - {name.split(".")[0] for name in expected}


@FORMS
def test_a_second_run_adds_what_is_new_and_nothing_twice(
    tmp_path: Path, target: Make, found: Find
) -> None:
    log_dir, out = log_of(tmp_path / "log"), tmp_path / "out"
    options = {"path": str(log_dir)}
    run(options, target(out))
    first = found(out)
    again = run(options, target(out))
    assert (again.records, again.files, found(out)) == (0, (), first)
    add(log_dir, [Record(timestamp=5, value=b"new")] * 3)
    assert run(options, target(out)).records == 3
    assert found(out) == list(range(len(first) + 3))


class Killed(BaseException):
    """As SIGKILL: no clean-up of the run's own is done."""


@contextlib.contextmanager
def killed_at(step: int) -> Iterator[None]:
    """Dies before the `step`-th change to names on the disk, of which a commit is one."""
    done: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if len(done) >= step:
                raise Killed
            done.append(name)
            return real(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", counted("rename", Path.rename))
        patch.setattr(Path, "replace", counted("replace", Path.replace))
        patch.setattr(Path, "mkdir", counted("mkdir", Path.mkdir))
        patch.setattr(os, "rename", counted("os.rename", os.rename))
        patch.setattr(os, "replace", counted("os.replace", os.replace))
        patch.setattr(shutil, "rmtree", counted("rmtree", shutil.rmtree))
        with contextlib.suppress(ImportError):
            from deltalake import DeltaTable

            real = DeltaTable.create_write_transaction
            patch.setattr(DeltaTable, "create_write_transaction", counted("commit", real))
        with contextlib.suppress(ImportError):
            from pyiceberg.catalog.sql import SqlCatalog

            patch.setattr(SqlCatalog, "commit_table", counted("commit", SqlCatalog.commit_table))
        yield


@forms(pytest.mark.deep)
def test_killed_at_any_point_and_run_again_each_record_is_there_once(
    tmp_path: Path, target: Make, found: Find
) -> None:
    log_dir = log_of(tmp_path / "log", batches=8)
    wanted = [record.offset for _, record in every_record(log_dir)]
    options = {"path": str(log_dir)}
    for step in itertools.count():
        out, was_killed = tmp_path / f"out-{step}", False
        with killed_at(step):
            try:
                run(options, target(out))
            except Killed:
                was_killed = True
        run(options, target(out))
        assert found(out) == wanted, f"killed before change {step}"
        if not was_killed:
            break
    assert step >= 3, "there are some places to be killed at"


def test_what_a_killed_run_wrote_is_removed_and_never_read(tmp_path: Path) -> None:
    log_dir, out = log_of(tmp_path / "log", batches=8), tmp_path / "out"
    left = out / STATE / "run-00000001" / "topic=t"
    left.mkdir(parents=True)
    (left / "half.parquet").write_bytes(b"half")
    run({"path": str(log_dir)}, parquet(out))
    assert not list((out / STATE).glob("run-*"))
    assert len(offsets(out)) == 24


def test_two_exports_at_once_are_refused(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path / "out")
    log_dir = log_of(tmp_path / "log", batches=1)
    with target.held(), pytest.raises(ExportError, match="another export to"):
        run({"path": str(log_dir)}, target)


@FORMS
def test_a_topic_that_was_made_again_is_refused(tmp_path: Path, target: Make, found: Find) -> None:
    log_dir, out = log_of(tmp_path / "log", batches=2), tmp_path / "out"
    run({"path": str(log_dir)}, target(out))
    shutil.rmtree(log_dir)
    with open_log_directory(log_dir, config=SMALL, node_id=1) as logs:
        log = logs.get_or_create(TP, topic_id=b"2" * 16)
        append(log, encode_batch([Record(timestamp=1, value=b"x")]))
    commit(log_dir)
    with pytest.raises(ExportError, match="topic t is not the one that was exported before"):
        run({"path": str(log_dir)}, target(out))
    assert len(found(out)) == 6


def test_what_was_deleted_before_it_was_exported_is_said(tmp_path: Path) -> None:
    log_dir, out = log_of(tmp_path / "log", batches=2), tmp_path / "out"
    options = {"path": str(log_dir)}
    run(options, parquet(out))
    add(log_dir, [Record(timestamp=5, value=b"gone")], [Record(timestamp=6, value=b"kept")])
    checkpoint = log_dir / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n1\n{TP.topic} {TP.partition} 7\n")
    with pytest.raises(ExportError, match="begins at offset 7 now, and was exported up to 6"):
        run(options, parquet(out))
    run({**options, "failOnDataLoss": "false"}, parquet(out))
    assert offsets(out) == [0, 1, 2, 3, 4, 5, 7]


def nothing(row: int) -> str:
    return f"row {row}"


@pytest.mark.parametrize(
    ("name", "packed", "value"),
    [
        ("bytes", b"\x00", b"\x00"),
        ("string", "è".encode(), "è"),
        ("string", b"a\xff", "a�"),
        ("short", struct.pack(">h", -2), -2),
        ("int", struct.pack(">i", -3), -3),
        ("long", struct.pack(">q", 1 << 40), 1 << 40),
        ("float", struct.pack(">f", 0.5), 0.5),
        ("double", struct.pack(">d", 0.1), 0.1),
        ("boolean", b"\x01", True),
        ("uuid", str(uuid.UUID(int=7)).encode(), str(uuid.UUID(int=7))),
        ("tests.pipeline.test_export:lengths", b"abc", 3),
    ],
)
def test_deserialisers_are_kafkas_and_null_stays_null(name: str, packed: bytes, value: Any) -> None:
    deserialiser = Deserialiser(name)
    deserialiser.check()
    found = deserialiser.convert(pa.array([packed, None], pa.binary()), nothing)
    assert found.to_pylist() == [value, None]
    assert found.type == deserialiser.type


def lengths(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_length(values)


def structs(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    fields = [pc.binary_length(values), pc.binary_slice(values, 0, 1)]
    return pa.StructArray.from_arrays(fields, ["size", "first"])


def test_what_is_none_of_the_kind_is_said_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(DeserialiseError, match="row 1: 3 bytes are no long"):
        Deserialiser("long").convert(pa.array([b"12345678", b"123"]), nothing)
    for wrong in ("lnog", "no_such_module:f", "tests.pipeline.test_export:no_such"):
        with pytest.raises(DeserialiseError, match="deserialiser"):
            Deserialiser(wrong).check()
    log_dir = log_of(tmp_path / "log", batches=1)
    with pytest.raises(DeserialiseError, match="t-0 offset 1, its value: 1 bytes are no long"):
        run({"path": str(log_dir)}, parquet(tmp_path / "out"), made(value="long"))


@pytest.mark.spark
@pytest.mark.client
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_command_exports_what_a_failover_left_each_record_once(
    spark: Any, failed_over: FailoverRun, tmp_path: Path, kind: str
) -> None:
    from click.testing import CliRunner

    from replication.cli import group

    arguments = ["pipeline", "export", *failed_over.log_dirs, "--to", str(tmp_path / "out")]
    arguments += ["--format", kind, "--key", "string", "--value", "string", "--output", "json"]
    first = CliRunner().invoke(group, arguments)
    assert first.exit_code == 0, first.output
    printed = json.loads(first.stdout)
    again = json.loads(CliRunner().invoke(group, arguments).stdout)
    assert (again["records"], again["files"]) == (0, [])
    rows = (iceberg_rows if kind == "iceberg" else exported)(tmp_path / "out")
    keys = [row["key"] for row in rows]
    assert {file["topic"] for file in printed["files"]} == {TOPIC}
    assert printed["records"] == failed_over.acked == RECORDS
    assert sorted(keys) == sorted(f"key-{number}" for number in range(RECORDS))
    if kind == "parquet":  # whose encodings Spark reads too
        read = spark.read.parquet(str(tmp_path / "out")).select("offset", "value").collect()
        values = [(row["offset"], row["value"]) for row in exported(tmp_path / "out")]
        assert sorted(map(tuple, read)) == sorted(values)


def test_an_iceberg_table_has_partitions_and_every_column(tmp_path: Path) -> None:
    log_dir, out = log_of(tmp_path / "log", batches=8), tmp_path / "out"
    add(log_dir, [Record(timestamp=FIRST_MS - DAY_MS, value=b"late"), Record(timestamp=-1)])
    wider = attrs.evolve(made(headers=True, value="string"), partition_columns=True)
    table: Any = iceberg(out)
    done = run({"path": str(log_dir)}, attrs.evolve(table, format=wider))
    rows = iceberg_rows(out)
    records = [record for _, record in every_record(log_dir)]
    assert done.records == len(rows) == len(records)
    assert [(row["key"], row["offset"]) for row in rows] == [(r.key, r.offset) for r in records]
    assert [str(row["date"]) for row in rows[-2:]] == ["2023-11-13", "None"]
    assert rows[-2]["value"] == "late"
    assert [r["offset"] for r in iceberg_rows(out, row_filter="date = '2023-11-13'")] == [24]
    assert [r["offset"] for r in iceberg_rows(out, row_filter="date is null")] == [25]
    # pyiceberg reads a list that is null as an empty one.
    assert [len(row["headers"] or ()) for row in rows] == [len(r.headers) for r in records]


def test_another_commit_to_the_iceberg_table_is_not_overtaken(tmp_path: Path) -> None:
    log_dir, out = log_of(tmp_path / "log", batches=2), tmp_path / "out"
    target = iceberg(out)
    run({"path": str(log_dir)}, target)
    begun = target.begin([TP], {})
    add(log_dir, [Record(timestamp=5, value=b"new")])
    run({"path": str(log_dir)}, target)
    with pytest.raises(ExportError, match=r"another export to .* was faster"):
        target.commit(begun, [], begun.position)
    assert in_iceberg(out) == list(range(7))
    left = out / "data" / "run-00000003"
    left.mkdir()
    (left / "half.parquet").write_bytes(b"half")
    run({"path": str(log_dir)}, target)
    assert not left.exists(), "and the files of a run that died are gone"


def test_fields_of_a_format_are_columns_of_the_files(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro", reason="the formats extra is not installed")
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"}, {"name": "date", "type": "string"}]}  # fmt: skip
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(schema))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, {"id": 1, "date": "today"})
    log_dir = log_of(tmp_path / "log", batches=0)
    values = [b"\0\0\0\0\7" + stream.getvalue(), b"none"]
    add(log_dir, [Record(timestamp=FIRST_MS, value=value) for value in values])
    options = {"path": str(log_dir), "value.format": "avro", "value.schema.id": "7"}
    options |= {"schema.directory": str(tmp_path / "schemas")}
    formats = formats_for(parse_read_options(options, streaming=False), reserved=RESERVED)
    for target, rows_of in ((parquet, exported), (delta, exported), (iceberg, iceberg_rows)):
        wide = attrs.evolve(made(), formats=formats, partition_columns=target is iceberg)
        place: Any = target(tmp_path / target.__name__)
        place = place if target is parquet else attrs.evolve(place, format=wide)
        run(options, place, wide)
        rows = rows_of(tmp_path / target.__name__)
        assert [(row["id"], row["value_date"], row["valueBytes"]) for row in rows] == [
            (1, "today", None),
            (None, None, b"none"),
        ]
        assert [str(row["date"]) for row in rows] == ["2023-11-14"] * 2
    with pytest.raises(ExportError, match=r"or value\.format, not both"):
        run(options, parquet(tmp_path / "x"), attrs.evolve(made(value="long"), formats=formats))
