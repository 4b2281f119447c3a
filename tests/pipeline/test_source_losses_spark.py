"""What is lost under a query, in Spark itself: the error names it, or the query goes on without.

After each of them the executor is asked for a sound table.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from replication.testing import ThreadedCluster
from tests.deep import one_in
from tests.pipeline.logs import segments, write_log
from tests.pipeline.losing import AtBroker, InDirectory, Topic

pytestmark = [pytest.mark.spark, pytest.mark.client]

LENIENT = {"failOnDataLoss": "false"}
# A stream looks for missing records again before it reports a loss.
SOON = {"fetchOffset.retryIntervalMs": "50"}
PATIENCE_SECONDS = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=1) as running:
        yield running


@pytest.fixture(params=one_in(2, ["at a broker", "in a directory"]))
def topic_named(
    request: pytest.FixtureRequest, cluster: ThreadedCluster, tmp_path: Path
) -> Callable[[str], Topic]:
    """Makes one; names at the broker are each test's own."""
    if request.param == "in a directory":
        return lambda name: InDirectory(tmp_path / "broker", name)
    return lambda name: AtBroker(cluster, f"{name}-{tmp_path.name}")


@pytest.fixture(autouse=True)
def _the_executor_lives(spark: Any, tmp_path: Path) -> Iterator[None]:
    yield
    sound = write_log(tmp_path / "sound")
    assert spark.read.format("understudy").load(str(sound)).count() == 120


def read(spark: Any, topic: Topic, **options: str) -> list[int]:
    """The offsets of a batch."""
    table = spark.read.format("understudy").options(**topic.options, **SOON, **options).load()
    return sorted(row.offset for row in table.collect())


def stream(spark: Any, topic: Topic, work: Path, **options: str) -> list[int]:
    """The offsets of all records that passed, once a query with that checkpoint has run again."""
    wanted = {**topic.options, **SOON, "startingOffsets": "earliest", **options}
    query = (
        spark.readStream.format("understudy")
        .options(**wanted)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "table"))
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    return sorted(row.offset for row in spark.read.parquet(str(work / "table")).collect())


def test_a_batch_names_the_offsets_that_have_aged_out(
    spark: Any, topic_named: Callable[[str], Topic]
) -> None:
    from pyspark.errors import PySparkException

    topic = topic_named("t")
    topic.add(60)
    first = topic.age_out()
    assert first > 5
    wanted = {"startingOffsets": f'{{"{topic.name}": {{"0": 5}}}}'}
    said = f"{topic.name}-0: offsets 5 to {first - 1} are gone, the log begins at {first}"
    with pytest.raises(PySparkException, match=f"DataLossError: {said}"):
        read(spark, topic, **wanted)
    assert read(spark, topic, **wanted, **LENIENT) == list(range(first, 60))


@pytest.mark.deep
def test_a_stream_names_the_offsets_that_have_aged_out(
    spark: Any, topic_named: Callable[[str], Topic], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = topic_named("t")
    topic.add(60)
    assert stream(spark, topic, tmp_path) == list(range(60))
    topic.add(60)
    first = topic.age_out()
    assert first > 60
    said = f"{topic.name}-0: offsets 60 to {first - 1} are gone, the log begins at {first}"
    with pytest.raises(StreamingQueryException, match=f"DataLossError: {said}"):
        stream(spark, topic, tmp_path)
    assert stream(spark, topic, tmp_path, **LENIENT) == [*range(60), *range(first, 120)]


@pytest.mark.deep
def test_a_checkpoint_of_another_topic_of_that_name_is_refused_by_both_ids(
    spark: Any, topic_named: Callable[[str], Topic], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = topic_named("t")
    topic.add(10)
    assert stream(spark, topic, tmp_path) == list(range(10))
    known = topic.topic_id
    topic.make_again(20)
    assert topic.topic_id != known
    said = f"{topic.name} is another than that of the checkpoint: its id was {known} and is"
    with pytest.raises(StreamingQueryException, match=f"{said} {topic.topic_id}"):
        stream(spark, topic, tmp_path)
    # From its beginning, though as much of the other one had passed.
    passed = sorted([*range(10), *range(20)])
    assert stream(spark, topic, tmp_path, **LENIENT) == passed
    topic.add(5)
    assert stream(spark, topic, tmp_path) == [*passed, *range(20, 25)]


@pytest.mark.deep
@pytest.mark.parametrize("lenient", [False, True])
def test_a_topic_that_vanishes_under_a_query_is_named_or_gone_on_without(
    spark: Any, topic_named: Callable[[str], Topic], tmp_path: Path, *, lenient: bool
) -> None:
    from pyspark.errors import StreamingQueryException

    stays, goes = topic_named("stays"), topic_named("goes")
    for topic in (stays, goes):
        topic.add(10)
    options = {**goes.options, **SOON, "subscribe": f"{stays.name},{goes.name}"}
    options |= LENIENT if lenient else {}
    query = (
        spark.readStream.format("understudy")
        .options(**options, startingOffsets="earliest")
        .load()
        .writeStream.format("memory")
        .queryName(f"vanishing_{lenient}".lower())
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def passed(topic: Topic) -> int:
        return int(spark.table(query.name).where(f"topic = '{topic.name}'").count())

    try:
        query.processAllAvailable()
        assert (passed(stays), passed(goes)) == (10, 10)
        goes.delete()
        stays.add(5)
        if lenient:
            query.processAllAvailable()
            assert (passed(stays), passed(goes)) == (15, 10)
        else:
            with pytest.raises(
                StreamingQueryException, match=f"{goes.name}-0 cannot be read any more: deleted"
            ):
                query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()


@pytest.mark.deep
def test_a_damaged_batch_ends_a_stream_by_file_and_offset_or_is_skipped(
    spark: Any, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = InDirectory(tmp_path / "broker", "t")
    topic.add(60)
    victim = segments(topic.directory)[1]
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(bytes(data))
    lost = int(segments(topic.directory)[2].stem) - 1
    said = rf"t-0, from offset {lost}: {victim}, byte \d+"
    with pytest.raises(StreamingQueryException, match=said):
        stream(spark, topic, tmp_path)
    passed = stream(spark, topic, tmp_path, onCorruptBatch="skip")
    assert passed == [offset for offset in range(60) if offset != lost]


@pytest.mark.deep
def test_a_stream_of_a_directory_that_is_no_log_says_so(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    (tmp_path / "broker").mkdir()
    with pytest.raises(StreamingQueryException, match=f"{tmp_path}/broker is not a log directory"):
        stream(spark, InDirectory(tmp_path / "broker", "t"), tmp_path)
