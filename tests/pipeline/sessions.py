"""A Spark session for tests, or a skip that says what is missing."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@contextlib.contextmanager
def session_for_tests(installed: Path) -> Iterator[Any]:
    """A JVM takes seconds to start: one for the whole run."""
    pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
    from pipeline import discovery
    from pipeline.session import NO_JAVA, find_java, get_session

    if find_java() is None:
        pytest.skip(NO_JAVA)
    # As in an installation: a top-level module that Spark finds by its name.
    shutil.copy(Path(discovery.__file__), installed / "pyspark_understudy.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed), prepend=os.pathsep)
        session = get_session(master="local[2]", quick=True)
        yield session
        session.stop()
