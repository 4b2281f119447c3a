"""Every job under spark-submit, from the bundle alone, says what its command says.

`audit` is submitted to a cluster in test_cluster.py, as part of `make test`.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from tests.pipeline.exports import exported
from tests.pipeline.failover_run import FailoverRun
from tests.pipeline.standalone import environment
from tests.pipeline.submission import run_command, submission

pytestmark = [pytest.mark.spark, pytest.mark.client, pytest.mark.deep]

PATIENCE_SECONDS = 900


@pytest.fixture(scope="module")
def command(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """After `spark`, which skips where there is no Java."""
    return submission(tmp_path_factory.mktemp("bundle"), "local[2]")


def submit(command: Sequence[str], work: Path, *arguments: str) -> None:
    """Runs there, to its end."""
    work.mkdir()
    with (work / "output").open("wb") as output:
        done = subprocess.run(
            [*command, *arguments],
            cwd=work,
            env=environment(work) | {"PYSPARK_DRIVER_PYTHON": sys.executable},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    assert done.returncode == 0, (work / "output").read_text()[-3000:]


@pytest.mark.parametrize(
    "job", [("lag", "--min-isr", "orders=2"), ("failover",)], ids=lambda job: job[0]
)
def test_a_report_is_the_same(
    command: list[str], failed_over: FailoverRun, tmp_path: Path, job: Sequence[str]
) -> None:
    arguments = [*job, str(failed_over.data_dir), "--output"]
    submit(command, tmp_path / "submitted", *arguments, "report.json")
    run_command(*arguments, str(tmp_path / "here.json"))
    here = json.loads((tmp_path / "here.json").read_text())
    assert here
    assert json.loads((tmp_path / "submitted" / "report.json").read_text()) == here


def test_an_export_is_the_same(
    command: list[str], failed_over: FailoverRun, tmp_path: Path
) -> None:
    arguments = ["export", *failed_over.log_dirs, "--key", "string", "--to"]
    submit(command, tmp_path / "submitted", *arguments, "lake")
    run_command(*arguments, str(tmp_path / "here"))
    here = exported(tmp_path / "here")
    assert len(here) == failed_over.acked
    assert exported(tmp_path / "submitted" / "lake") == here
