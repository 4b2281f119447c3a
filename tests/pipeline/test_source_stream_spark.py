"""Streams in Spark itself: limits, restarts, and errors that a query ends with."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from tests.pipeline.logs import write_log

pytestmark = pytest.mark.spark


def start(spark: Any, log_dir: Path, work: Path, **options: str) -> Any:
    """Into Parquet, whatever is there now, with a checkpoint."""
    wanted = {"startingOffsets": "earliest", "stopAtHighWatermark": "false", **options}
    table = spark.readStream.format("understudy").options(**wanted).load(str(log_dir))
    return (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "table"))
    )


def test_a_stream_moves_by_its_limit_and_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    log_dir = write_log(tmp_path / "broker", 20)
    query = start(spark, log_dir, tmp_path, maxOffsetsPerTrigger="25")
    query.awaitTermination()
    counts = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert counts == [25, 25, 10]
    write_log(log_dir, 10)
    start(spark, log_dir, tmp_path).awaitTermination()
    offsets = [row.offset for row in spark.read.parquet(str(tmp_path / "table")).collect()]
    assert sorted(offsets) == list(range(90))


@pytest.mark.deep
def test_a_query_ends_with_what_was_lost(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    log_dir = write_log(tmp_path / "broker", 4)
    start(spark, log_dir, tmp_path).awaitTermination()
    shutil.rmtree(log_dir / "t-0")
    query = start(spark, log_dir, tmp_path, **{"fetchOffset.retryIntervalMs": "10"})
    with pytest.raises(StreamingQueryException, match="t-0 cannot be read any more: deleted"):
        query.awaitTermination()
    with pytest.raises(StreamingQueryException, match="unknown option endingoffsets"):
        start(spark, log_dir, tmp_path / "other", endingOffsets="latest").awaitTermination()
