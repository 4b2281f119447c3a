"""Records of log directories, without Spark: what is planned and read, against the slow way."""

import datetime as dt
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.source import reader as readers
from pipeline.source.columns import BATCH, names_for
from pipeline.source.errors import (
    CorruptBatchesError,
    DataLossError,
    NotALogDirectoryError,
    OptionError,
    UnknownTopicError,
)
from pipeline.source.options import parse_read_options
from storage.batch.records import ControlRecordType
from storage.tools.standalone import open_log_directory
from storage.types import TopicPartition
from tests.pipeline.logs import (
    FIRST_MS,
    TP,
    append,
    ended,
    every_record,
    in_transaction,
    read,
    read_tasks,
    rows_of,
    segments,
    write_log,
)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 records in batches of three, of every codec, in three segments."""
    return write_log(tmp_path_factory.mktemp("broker"))


def offsets(options: dict[str, str]) -> list[int]:
    return [row["offset"] for row in read(options, "offset")]


def utc(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def test_every_column_says_what_the_record_says(log_dir: Path) -> None:
    found = read({"path": str(log_dir), "includeHeaders": "true", "includeBatch": "true"})
    wanted = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 0,
            "offset": record.offset,
            "timestamp": utc(record.timestamp),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
            "leaderEpoch": header.leader_epoch,
            "producerId": -1,
            "producerEpoch": -1,
            "batchOffset": header.base_offset,
            "batchLastOffset": header.last_offset,
            "batchSize": header.size,
        }
        for header, record in every_record(log_dir)
    ]
    assert found == wanted
    assert len(found) == 120


def test_what_is_asked_for_is_what_is_read_in_that_order(log_dir: Path) -> None:
    first = read({"path": str(log_dir)}, "offset value partition")[0]
    assert list(first.items()) == [("offset", 0), ("value", None), ("partition", 0)]
    assert read({"path": str(log_dir)}, "topic") == [{"topic": "t"}] * 120
    assert list(read({"path": str(log_dir), "columns": "leaderEpoch, key"})[0]) == [
        "leaderEpoch",
        "key",
    ]


@settings(max_examples=60)
@given(
    st.integers(0, 119),
    st.integers(0, 130),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 50),
)
def test_an_offset_range_is_read_exactly_however_it_is_cut(
    log_dir: Path, start: int, end: int, min_partitions: int | None, most: int | None
) -> None:
    options = {
        "path": str(log_dir),
        "startingOffsets": f'{{"t": {{"0": {start}}}}}',
        "endingOffsets": f'{{"t": {{"0": {end}}}}}',
        "failOnDataLoss": "false",
    }
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    if most is not None:
        options["maxRecordsPerPartition"] = str(most)
    tasks = read_tasks(options, "offset")
    assert [row["offset"] for task in tasks for row in task] == list(range(start, min(end, 120)))
    if most is not None:
        assert max(map(len, tasks), default=0) <= most
    if min_partitions is not None and end > start:
        assert len(tasks) >= min(min_partitions, min(end, 120) - start)


def test_a_large_log_is_cut_at_batches_that_its_index_names(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.source import directories

    monkeypatch.setattr(directories, "TASK_BYTES", 700)
    tasks = read_tasks({"path": str(log_dir)}, "offset")
    assert len(tasks) > len(segments(log_dir))
    assert [row["offset"] for task in tasks for row in task] == list(range(120))


def test_an_index_that_lies_is_not_believed(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    for path in (copy / "t-0").glob("*.index"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 8):
            # Positions in the middle of batches.
            data[at + 4 : at + 8] = (int.from_bytes(data[at + 4 : at + 8]) + 5).to_bytes(4)
        path.write_bytes(bytes(data))
    options = {"path": str(copy), "startingOffsets": '{"t": {"0": 70}}'}
    assert offsets(options) == list(range(70, 120))


def test_from_a_time_on_and_up_to_one(log_dir: Path) -> None:
    at = {"path": str(log_dir), "startingTimestamp": str(FIRST_MS + 70_000)}
    assert offsets(at) == list(range(70, 120))
    between = at | {"endingTimestamp": str(FIRST_MS + 90_500)}
    assert offsets(between) == list(range(70, 91))
    each = {"path": str(log_dir), "startingOffsetsByTimestamp": f'{{"t": {{"0": {FIRST_MS}}}}}'}
    assert offsets(each) == list(range(120))
    late = {"path": str(log_dir), "startingTimestamp": str(FIRST_MS + 9_000_000)}
    with pytest.raises(OptionError, match=r"startingTimestamp: nothing at or after .* in t-0"):
        offsets(late)
    assert offsets(late | {"startingOffsetsByTimestampStrategy": "latest"}) == []


def test_of_several_replicas_the_one_an_election_would_take_is_read(tmp_path: Path) -> None:
    long_but_old = write_log(tmp_path / "b1", 30)  # its last epoch is 2
    latest = write_log(tmp_path / "b2", 10)
    with open_log_directory(latest) as logs:
        append(logs.get_or_create(TP), in_transaction(5, 500), epoch=9)
    both = {"path": f"{long_but_old},{latest}"}
    assert offsets(both) == list(range(32))
    every = read(both | {"replicas": "all"}, "replica offset")
    assert [row["replica"] for row in every] == ["b1"] * 90 + ["b2"] * 32


def test_the_high_watermark_can_be_the_end(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    options = {"path": str(copy), "stopAtHighWatermark": "true"}
    assert offsets(options) == []
    (copy / "replication-offset-checkpoint").write_text("0\n1\nt 0 64\n")
    assert offsets(options) == list(range(64))


def test_aborted_and_open_transactions_are_not_committed(tmp_path: Path) -> None:
    with open_log_directory(tmp_path / "d", node_id=1) as logs:
        log = logs.get_or_create(TP)
        append(log, in_transaction(1, 10))  # 0-1, aborted
        append(log, in_transaction(2, 20))  # 2-3, committed
        append(log, ended(1, ControlRecordType.ABORT))  # 4
        append(log, in_transaction(1, 30))  # 5-6, committed
        append(log, ended(2, ControlRecordType.COMMIT))  # 7
        append(log, ended(1, ControlRecordType.COMMIT))  # 8
        append(log, in_transaction(3, 40))  # 9-10, open
        append(log, in_transaction(4, 50))  # 11-12, committed behind it
        append(log, ended(4, ControlRecordType.COMMIT))  # 13
    options = {"path": str(tmp_path / "d")}
    assert offsets(options) == [0, 1, 2, 3, 5, 6, 9, 10, 11, 12]
    committed = options | {"kafka.isolation.level": "read_committed"}
    assert offsets(committed) == [2, 3, 5, 6]
    from_inside = committed | {"startingOffsets": '{"t": {"0": 1}}'}
    assert offsets(from_inside) == [2, 3, 5, 6]


# Bad input.


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("at", "what"),
    [
        pytest.param(-1, "CRC-32C does not match", id="a bit of the last record"),
        pytest.param(16, "no batch begins here", id="the magic of the first batch"),
    ],
)
def test_a_damaged_batch_is_named_or_skipped(
    log_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, what: str
) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    victim = segments(copy)[1]
    first, last = int(victim.stem), int(segments(copy)[2].stem) - 1
    lost = range(first, first + 3) if at > 0 else range(last - 2, last + 1)
    damage(victim, at)
    with pytest.raises(CorruptBatchesError, match=rf"{victim.name}, byte \d+: .*{what}") as caught:
        offsets({"path": str(copy)})
    assert "t-0, from offset " in str(caught.value)
    with caplog.at_level(logging.WARNING):
        rest = offsets({"path": str(copy), "onCorruptBatch": "skip"})
    assert sorted(set(range(120)) - set(rest)) == list(lost)
    assert victim.name in caplog.text


def test_a_flipped_bit_is_not_looked_for_without_crc_checks(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    damage(segments(copy)[2], 62)  # the timestamp delta of a record, or its attributes
    with pytest.raises(CorruptBatchesError):
        offsets({"path": str(copy)})
    assert len(offsets({"path": str(copy), "checkCrc": "false"})) == 120


def test_a_torn_tail_is_the_end_and_not_an_error(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    last = segments(copy)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    assert offsets({"path": str(copy)}) == list(range(117))


def test_offsets_that_have_aged_out_are_named_or_passed_over(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    segments(copy)[0].unlink()
    first = int(segments(copy)[0].stem)
    wanted = {"path": str(copy), "startingOffsets": '{"t": {"0": 2}}'}
    with pytest.raises(DataLossError, match=f"t-0: offsets 2 to {first - 1} are gone"):
        offsets(wanted)
    assert offsets(wanted | {"failOnDataLoss": "false"}) == list(range(first, 120))


def test_a_segment_that_goes_between_planning_and_reading_is_named(
    log_dir: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    options = parse_read_options({"path": str(copy)}, streaming=False)
    reader = readers.RecordsReader(options, ["offset"])
    (task,) = reader.partitions()
    gone = segments(copy)[1]
    gone.unlink()
    with pytest.raises(DataLossError, match=f"{gone.name} is gone"):
        list(reader.read(task))


def test_what_is_no_log_directory_or_not_there_is_named(log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(NotALogDirectoryError, match=f"{tmp_path} is not a log directory"):
        read({"path": str(tmp_path)})
    with pytest.raises(NotALogDirectoryError, match="nowhere is not a directory"):
        read({"path": f"{log_dir},{tmp_path}/nowhere"})
    with pytest.raises(UnknownTopicError, match=r"no log of topic orders in "):
        read({"path": str(log_dir), "subscribe": "t,orders"})
    with pytest.raises(UnknownTopicError, match="no log of t-7"):
        read({"path": str(log_dir), "assign": '{"t": [0, 7]}'})
    with pytest.raises(OptionError, match="startingOffsets names t-4, not to be read"):
        read({"path": str(log_dir), "startingOffsets": '{"t": {"0": 1, "4": 1}}'})


# What Spark pushes.


def pushed(log_dir: Path, filters: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    options = parse_read_options({"path": str(log_dir)}, streaming=False)
    reader = readers.PushdownReader(options, names_for(options))
    left = list(reader.pushFilters(filters))
    return left, [row for task in rows_of(reader) for row in task]


def test_filters_on_partitions_and_offsets_reach_the_plan(tmp_path: Path) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, IsNotNull, LessThan

    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        write_log(tmp_path / "d", 10, tp=TopicPartition(topic, partition))
    filters: list[Any] = [
        EqualTo(("topic",), "t"),
        GreaterThanOrEqual(("partition",), 1),
        GreaterThanOrEqual(("offset",), 7),
        LessThan(("offset",), 10),
        IsNotNull(("value",)),
    ]
    left, rows = pushed(tmp_path / "d", filters)
    assert left == filters[2:]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        ("t", 1, 7),
        ("t", 1, 8),
        ("t", 1, 9),
    ]


def test_a_filter_on_time_skips_segments_and_batches(log_dir: Path) -> None:
    from pyspark.sql.datasource import GreaterThan

    left, rows = pushed(log_dir, [GreaterThan(("timestamp",), utc(FIRST_MS + 71_000))])
    assert len(left) == 1
    # Whole batches: Spark filters their records again.
    assert [row["offset"] for row in rows] == list(range(69, 120))


def test_the_reader_that_takes_filters_is_only_made_where_spark_pushes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert readers.reader_class().pushFilters is DataSourceReader.pushFilters
    monkeypatch.setitem(__import__("sys").modules, readers._PUSHDOWN_WORKER, object())
    assert readers.reader_class() is readers.PushdownReader


def test_columns_on_request_are_those_of_the_batch() -> None:
    options = parse_read_options({"path": "d", "includeBatch": "true"}, streaming=False)
    assert names_for(options)[-len(BATCH) :] == list(BATCH)
