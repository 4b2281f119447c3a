"""The archive of classes is made, and a session's JVM maps it.

It takes a session to make it and one to use it.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

SESSION = """
from pipeline.session import get_session
assert get_session(master="local[1]", quick=True).range(3).count() == 3
"""


@pytest.mark.spark
@pytest.mark.deep
def test_a_session_maps_the_archive_that_was_made(spark: Any, tmp_path: Path) -> None:
    """After `spark`, which skips where there is no Java."""
    machine = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    made = python(machine, "-m", "pipeline.class_data")
    archive = Path(made.stdout.strip())
    assert archive.parent == tmp_path / "cache" / "understudy" / "class-data"
    assert [path for path in archive.parent.iterdir() if path.suffix != ".jsa"] == []
    # Each JVM tells where it has its classes from, the one that only launches another as well.
    said = {**machine, "JDK_JAVA_OPTIONS": f"-Xlog:class+load:file={tmp_path}/%p.classes"}
    python(said, "-c", SESSION)
    mapped = [
        path.read_text().count("shared objects file (top)") for path in tmp_path.glob("*.classes")
    ]
    assert max(mapped) > 5000, "Spark's own classes, from the archive"


def python(machine: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done
