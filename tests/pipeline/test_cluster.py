"""The jobs on a Spark standalone cluster say what they say on one machine.

Two applications run there at once, one of them with an executor on both workers: starting them is
most of what they take.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from tests.pipeline.cluster_driver import every_job
from tests.pipeline.failover_run import TOPIC, FailoverRun
from tests.pipeline.standalone import environment, standalone_cluster
from tests.pipeline.submission import submission

pytestmark = [pytest.mark.spark, pytest.mark.client, pytest.mark.deep]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 900


THEIRS = ("spark.ui.showConsoleProgress", "true")  # of what a session sets where nobody has


def quickly(*, workers: int) -> list[str]:
    """Small data, JVMs that are to start soon, and an executor on so many workers."""
    return [
        *("--conf", "spark.sql.shuffle.partitions=2"),
        *("--conf", "=".join(THEIRS)),
        *("--conf", f"spark.cores.max={workers}"),
        *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    ]


@attrs.frozen
class Application:
    """A driver in a process of its own; what it says is in files of its directory."""

    process: subprocess.Popen[bytes]
    directory: Path

    def output(self) -> str:
        """All of it, once the driver has ended well."""
        ended = self.process.wait(PATIENCE_SECONDS)
        assert ended == 0, (self.directory / "errors").read_text()[-3000:]
        return (self.directory / "output").read_text()


@attrs.frozen
class Applications:
    every_job: Application
    submitted: Application


@pytest.fixture(scope="module")
def applications(
    spark: Any, failed_over: FailoverRun, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Applications]:
    """After `spark`, which skips where there is no Java."""
    with ExitStack() as running:
        cluster = standalone_cluster(tmp_path_factory.mktemp("cluster"))
        master = running.enter_context(cluster)

        def start(name: str, arguments: list[str], **more: str) -> Application:
            directory = tmp_path_factory.mktemp(name)
            process = subprocess.Popen(
                arguments,
                cwd=directory,
                env=environment(directory) | more,
                stdout=running.enter_context((directory / "output").open("wb")),
                stderr=running.enter_context((directory / "errors").open("wb")),
            )
            running.callback(process.wait)
            running.callback(process.kill)
            return Application(process, directory)

        driver = [sys.executable, "-m", "tests.pipeline.cluster_driver", master]
        # Where executors find it too.
        exported = tmp_path_factory.mktemp("exported")
        arguments = shlex.join([*quickly(workers=2), "pyspark-shell"])
        yield Applications(
            every_job=start(
                "driver",
                [*driver, str(failed_over.data_dir), str(exported)],
                PYTHONPATH=str(ROOT),
                PYSPARK_SUBMIT_ARGS=arguments,
            ),
            submitted=start(
                "submitted",
                [
                    *submission(tmp_path_factory.mktemp("bundle"), master, *quickly(workers=1)),
                    *("audit", *failed_over.log_dirs, "--output", "audit.json"),
                ],
                PYSPARK_DRIVER_PYTHON=sys.executable,
            ),
        )


def test_every_job_says_on_a_cluster_what_it_says_here(
    spark: Any, applications: Applications, failed_over: FailoverRun, tmp_path: Path
) -> None:
    here = every_job(spark, failed_over.data_dir, tmp_path)
    answer = json.loads(applications.every_job.output())
    # What the user has said is as they said it.
    assert answer.pop("settings")[THEIRS[0]] == THEIRS[1]
    assert answer == json.loads(json.dumps(here))


def test_spark_submit_runs_a_job_from_the_bundle_alone(applications: Applications) -> None:
    applications.submitted.output()
    answer = json.loads((applications.submitted.directory / "audit.json").read_text())
    assert answer["same"] is True
    assert TOPIC in {each["topic"] for each in answer["partitions"]}
