"""The jobs on a Spark standalone cluster say what they say on one machine."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from tests.pipeline.cluster_driver import every_job
from tests.pipeline.failover_run import TOPIC, FailoverRun
from tests.pipeline.standalone import environment, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.client]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 400
# Small data, and JVMs that are to start soon.
QUICKLY = [
    *("--conf", "spark.sql.shuffle.partitions=2"),
    *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
]


@pytest.fixture(scope="module")
def master(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """After `spark`, which skips where there is no Java."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def run(arguments: list[str], directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=directory,
        env=environment(directory) | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_every_job_says_on_a_cluster_what_it_says_here(
    spark: Any, master: str, failed_over: FailoverRun, tmp_path: Path
) -> None:
    data_dir = failed_over.data_dir
    command = [sys.executable, "-m", "tests.pipeline.cluster_driver", master, str(data_dir)]
    more = {"PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": shlex.join([*QUICKLY, "pyspark-shell"])}
    done = run([*command, str(tmp_path / "there")], tmp_path, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    here = every_job(spark, data_dir, tmp_path / "here")
    assert json.loads(done.stdout) == json.loads(json.dumps(here))


def test_spark_submit_runs_a_job_from_the_bundle_alone(
    master: str, failed_over: FailoverRun, tmp_path: Path
) -> None:
    from click.testing import CliRunner

    from replication.cli import group

    bundle = tmp_path / "bundle"
    assert CliRunner().invoke(group, ["pipeline", "bundle", str(bundle)]).exit_code == 0
    submit = Path(environment(tmp_path)["SPARK_HOME"]) / "bin" / "spark-submit"
    arguments = [str(submit), "--master", master, *QUICKLY]
    arguments += ["--py-files", str(bundle / "understudy.zip")]
    arguments += [str(bundle / "understudy_submit.py"), "audit", *failed_over.log_dirs]
    # To a file: spark-submit lets what the driver says on either stream out on one.
    arguments += ["--output", "audit.json"]
    done = run(arguments, tmp_path, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "audit.json").read_text())
    assert told["same"] is True
    assert TOPIC in {each["topic"] for each in told["partitions"]}
