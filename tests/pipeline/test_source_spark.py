"""The source in Spark itself: found, planned, filtered, refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from storage.types import TopicPartition
from tests.pipeline.logs import every_record, segments, write_log

pytestmark = pytest.mark.spark

# What workers log, as a table of the session's.
WORKER_LOGS = "spark.sql.pyspark.worker.logging.enabled"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("broker")
    for partition in (0, 1):
        write_log(directory, tp=TopicPartition("t", partition))
    return directory


@pytest.mark.deep
def test_it_is_found_without_being_registered(spark: Any, log_dir: Path) -> None:
    # A session of its own knows only what Spark has found by the name of a module.
    found = spark.newSession().read.format("understudy").load(str(log_dir))
    rows = found.where("partition = 0").collect()
    assert [row.asDict() for row in sorted(rows, key=lambda row: row.offset)] == [
        {
            "key": None if record.key is None else bytearray(record.key),
            "value": None if record.value is None else bytearray(record.value),
            "topic": "t",
            "partition": 0,
            "offset": record.offset,
            "timestamp": row.timestamp,
            "timestampType": 0,
        }
        for row, (_, record) in zip(rows, every_record(log_dir), strict=True)
    ]


def test_every_column_that_there_is_goes_through(spark: Any, log_dir: Path) -> None:
    options = {"includeHeaders": "true", "includeBatch": "true", "replicas": "all"}
    table = spark.read.format("understudy").options(**options).load(str(log_dir))
    assert table.count() == 240
    row = table.where("partition = 1 and offset = 15").first()
    assert [(each.key, each.value) for each in row.headers] == [("h", b"15"), ("", None)]
    assert (row.batchOffset, row.batchLastOffset, row.producerId) == (15, 17, -1)
    assert table.where("headers is null").count() == 192


def test_a_given_schema_is_the_projection(spark: Any, log_dir: Path) -> None:
    table = (
        spark.read.format("understudy").schema("partition int, offset bigint").load(str(log_dir))
    )
    assert table.columns == ["partition", "offset"]
    assert table.groupBy("partition").max("offset").collect() == [(0, 119), (1, 119)]


def test_filters_are_pushed_and_the_rows_are_the_same(spark: Any, log_dir: Path) -> None:
    table = spark.read.format("understudy").load(str(log_dir))
    wanted = "partition = 1 and offset >= 50 and offset < 60 and timestamp >= '2023-11-14'"
    narrowed = table.where(wanted)
    assert narrowed.rdd.getNumPartitions() == 1
    assert sorted(row.offset for row in narrowed.collect()) == list(range(50, 60))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        # The same, by Spark alone: a reader that takes filters would be refused here.
        assert sorted(row.offset for row in table.where(wanted).collect()) == list(range(50, 60))
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_nothing_to_read_is_an_empty_table(spark: Any, log_dir: Path) -> None:
    reader = spark.read.format("understudy").option("startingOffsets", '{"t":{"0":9,"1":9}}')
    assert reader.option("endingOffsets", '{"t":{"0":9,"1":9}}').load(str(log_dir)).count() == 0


def damage(path: Path) -> None:
    """A bit of its last record."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def test_bad_input_is_named_and_the_executor_lives(
    spark: Any, log_dir: Path, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    def said(path: Path, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            spark.read.format("understudy").options(**options).load(str(path)).collect()
        return str(caught.value)

    assert "unknown option startingofset; did you mean startingOffsets?" in said(
        log_dir, startingOfset="earliest"
    )
    assert f"{tmp_path} is not a log directory" in said(tmp_path)
    broken = shutil.copytree(log_dir, tmp_path / "broken")
    victim = segments(broken)[1]
    damage(victim)
    message = said(broken)
    assert "CorruptBatchesError" in message
    assert f"{victim}, byte " in message
    assert spark.read.format("understudy").load(str(log_dir)).count() == 240


@pytest.mark.deep
def test_damage_that_is_skipped_is_reported_and_the_rest_is_read(
    spark: Any, log_dir: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(log_dir, tmp_path / "broken")
    victim = segments(broken)[1]
    damage(victim)
    spark.conf.set(WORKER_LOGS, "true")
    try:
        source = spark.read.format("understudy").option("onCorruptBatch", "skip")
        assert source.load(str(broken)).count() == 240 - 3
        message = [
            row.msg for row in spark.tvf.python_worker_logs().where("level = 'WARNING'").collect()
        ]
    finally:
        spark.conf.unset(WORKER_LOGS)
    assert any(
        f"skipped: t-0, from offset {int(segments(broken)[2].stem) - 3}: {victim}, byte " in each
        for each in message
    ), message
