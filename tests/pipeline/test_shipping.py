"""What executors are given of this code, and what would hide it from them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from click.testing import CliRunner

from pipeline.shipping import ROOT, ShadowedPackageError, check_not_shadowed, write_archive
from replication.cli import group
from replication.cli.pipeline import JOBS


def test_the_zip_can_be_imported_from(tmp_path: Path) -> None:
    archive = write_archive(tmp_path)
    program = (
        "import storage.batch.columns.columnar, replication.wire.fetch as m; print(m.__file__)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(str(archive))


def test_every_job_begins_where_spark_submit_does(tmp_path: Path) -> None:
    """From the bundle alone, as the command."""
    assert CliRunner().invoke(group, ["pipeline", "bundle", str(tmp_path)]).exit_code == 0
    entry = [sys.executable, str(tmp_path / "understudy_submit.py")]
    for job in JOBS.keys() - {"bundle"}:
        said = subprocess.run(
            [*entry, job, "--help"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "understudy.zip")},
            capture_output=True,
            text=True,
            check=True,
        )
        ours = CliRunner().invoke(group, ["pipeline", job, "--help"], prog_name="understudy")
        # But for where lines end.
        assert said.stdout.split() == ours.output.split(), job


def test_a_folder_of_the_users_that_would_be_imported_instead_is_named(tmp_path: Path) -> None:
    check_not_shadowed(tmp_path)
    check_not_shadowed(ROOT)
    (tmp_path / "storage").mkdir()
    with pytest.raises(ShadowedPackageError, match=f"{tmp_path}/storage"):
        check_not_shadowed(tmp_path)
