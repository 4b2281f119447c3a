"""What executors are given of this code, and what would hide it from them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.shipping import ROOT, ShadowedPackageError, check_not_shadowed, write_archive


def test_the_zip_can_be_imported_from(tmp_path: Path) -> None:
    archive = write_archive(tmp_path)
    program = "import storage.columnar, replication.wire.fetch as m; print(m.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(str(archive))


def test_a_folder_of_the_users_that_would_be_imported_instead_is_named(tmp_path: Path) -> None:
    check_not_shadowed(tmp_path)
    check_not_shadowed(ROOT)
    (tmp_path / "storage").mkdir()
    with pytest.raises(ShadowedPackageError, match=f"{tmp_path}/storage"):
        check_not_shadowed(tmp_path)
