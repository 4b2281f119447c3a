"""What is lost under a batch, in Spark itself: the error names it, or the read goes on without.

After each of them the executor is asked for a sound table.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from replication.testing import ThreadedCluster
from tests.pipeline.logs import write_log
from tests.pipeline.losing import AtBroker, InDirectory, Topic

pytestmark = [pytest.mark.spark, pytest.mark.client]

LENIENT = {"failOnDataLoss": "false"}
# What is gone is looked for again before it is said to be.
SOON = {"fetchOffset.retryIntervalMs": "50"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=1) as running:
        yield running


@pytest.fixture(params=["in a directory", "at a broker"])
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
