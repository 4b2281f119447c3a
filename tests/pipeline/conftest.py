"""One Spark session for the whole run: a JVM takes seconds to start."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipeline.failover_run import FailoverRun


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
    from pipeline import discovery
    from pipeline.session import NO_JAVA, find_java, get_session

    if find_java() is None:
        pytest.skip(NO_JAVA)
    # As in an installation: a top-level module that Spark finds by its name.
    installed = tmp_path_factory.mktemp("installed")
    shutil.copy(Path(discovery.__file__), installed / "pyspark_understudy.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed), prepend=os.pathsep)
        session = get_session(master="local[2]", quick=True)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def failed_over(tmp_path_factory: pytest.TempPathFactory) -> "FailoverRun":
    """What a cluster left on disk: a leader was killed with SIGKILL under load, and came back."""
    pytest.importorskip("confluent_kafka", reason="produces what is failed over")
    from tests.pipeline.failover_run import run

    return run(tmp_path_factory.mktemp("failed-over"))
