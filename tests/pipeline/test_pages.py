"""What the pages show of Spark, run in the session that all of these tests share."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replication.testing import ThreadedCluster
from tests.deep import one_in
from tests.docs.running import Place, cluster_at_work, fill
from tests.docs.snippets import Block, blocks_of, is_of_spark, pages
from tests.pipeline.failover_run import FailoverRun

pytestmark = [pytest.mark.spark, pytest.mark.client]

PAGES = [page for page in pages() if any(map(is_of_spark, blocks_of(page)))]


def shown(page: Path) -> list[Block]:
    blocks = (each for each in blocks_of(page) if each.language in ("python", "sh"))
    return [each for each in blocks if is_of_spark(each) and not each.is_left_out]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with cluster_at_work() as running:
        fill(running)
        yield running


@pytest.fixture
def place(
    spark: Any,
    cluster: ThreadedCluster,
    failed_over: FailoverRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    """A folder with what a failover left: `data/`, and its brokers beside it."""
    (tmp_path / "data").symlink_to(failed_over.data_dir)
    for number, log_dir in enumerate(failed_over.log_dirs, start=1):
        (tmp_path / f"broker-{number}").symlink_to(Path(log_dir).parent)
    monkeypatch.chdir(tmp_path)
    table = spark.createDataFrame([("Emma",), ("Ulysses",)], "value string")
    return Place(tmp_path, cluster, {"spark": spark, "table": table}, names_folder=True)


@pytest.mark.parametrize("page", one_in(len(PAGES), PAGES), ids=lambda page: page.stem)
def test_what_a_page_shows_of_spark_runs(page: Path, place: Place, spark: Any) -> None:
    for block in shown(page):
        place.run(block)
        place.names["spark"] = spark  # a page may show a fixture of that name
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
        if block.is_tests:
            run_tests(block, place, spark)


def run_tests(block: Block, place: Place, spark: Any) -> None:
    """Its tests, called with what they ask for: a JVM of their own would take seconds."""
    for number, (name, test) in enumerate(list(place.names.items())):
        if not name.startswith("test_") or not callable(test):
            continue
        del place.names[name]  # the next block of tests has others
        topic = f"of-{Path(block.page).stem}-{block.line}-{number}"
        place.cluster.create_topic(topic, replication_factor=3)
        folder = place.folder / "tmp" / name
        folder.mkdir(parents=True)
        given = {
            "spark": spark,
            "kafka_cluster": place.cluster,
            "kafka_topic": topic,
            "tmp_path": folder,
        }
        test(**{each: given[each] for each in inspect.signature(test).parameters})
        place.cluster.reset()
