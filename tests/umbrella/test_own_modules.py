"""A project with packages of our names uses all of ours as `understudy.*`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.by_name import PLUGIN

ROOT = Path(__file__).parents[2]
SECONDS = 300

NAMES = ("pipeline", "replication", "scenarios", "storage", "tests")
THEIRS = f"""
import {", ".join(NAMES)}

assert {{each.OWNER for each in ({", ".join(NAMES)})}} == {{"the project"}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('OWNER = "the project"\n')
    return tmp_path


def run_in(project: Path, *arguments: str) -> str:
    """Run Python in the project's folder, with the project first on its path; return the output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{project}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_script(project: Path, source: str) -> str:
    (project / "script.py").write_text(THEIRS + source + THEIRS)
    return run_in(project, "script.py")


def test_ours_are_the_same_modules_where_nothing_hides_them() -> None:
    source = """
import storage.types, understudy.storage.types, understudy
from replication.errors import KafkaError
assert understudy.storage is storage and understudy.storage.types is storage.types
assert understudy.KafkaError is KafkaError
assert storage.__spec__.name == storage.__name__ == "storage"
"""
    run_in(ROOT, "-c", source)


def test_every_name_of_the_umbrella_can_be_imported() -> None:
    pytest.importorskip("pyspark")
    run_in(ROOT, "-c", "from understudy import *; assert ThreadedCluster and get_session")


def test_a_cluster_and_a_story_run_beside_packages_of_the_same_names(project: Path) -> None:
    source = """
import sys
from understudy import KafkaError, ThreadedCluster
from understudy.scenarios import find_story, read_story, run_story

with ThreadedCluster(brokers=1) as cluster:
    cluster.create_topic("orders")
    try:
        cluster.create_topic("orders")
    except KafkaError as error:
        print(error.code.name)
ours = [name for name in sys.modules if name.startswith(("replication.", "storage.", "pipeline."))]
assert ours == []
"""
    assert run_script(project, source) == "TOPIC_ALREADY_EXISTS\n"


@pytest.mark.deep
def test_commands_run_beside_them(project: Path) -> None:
    assert "t-0: same in 3 copies" in run_in(
        project, "-m", "understudy", "scenario", "run", "a-leader-killed"
    )
    for name in ("up", "pipeline", "topic", "dump-log"):
        assert "Usage: understudy" in run_in(project, "-m", "understudy", name, "--help")


@pytest.mark.deep
def test_the_plugin_serves_tests_that_import_theirs(project: Path) -> None:
    (project / "test_it.py").write_text(
        THEIRS
        + """
from understudy import KafkaError
import pytest

def test_it(kafka_cluster, kafka_topic):
    assert storage.OWNER == "the project"
    with pytest.raises(KafkaError):
        kafka_cluster.create_topic(kafka_topic)
"""
    )
    run_in(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN)


@pytest.mark.spark
@pytest.mark.deep
def test_sparks_workers_read_and_write_beside_them(project: Path) -> None:
    source = """
from understudy import Producer, ThreadedCluster, get_session

with ThreadedCluster(brokers=1) as cluster:
    cluster.create_topic("orders")
    spark = get_session(master="local[2]")
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows = spark.createDataFrame([(str(n),) for n in range(100)], "value string")
    rows.write.format("understudy").options(**servers, topic="orders").mode("append").save()
    read = spark.read.format("understudy").options(**servers, subscribe="orders").load()
    print(read.count(), read.selectExpr("sum(int(string(value)))").first()[0])
"""
    assert run_script(project, source).splitlines()[-1] == "100 4950"
