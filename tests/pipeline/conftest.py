"""One Spark session for the whole run: a JVM takes seconds to start."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
    from pipeline.session import NO_JAVA, find_java, get_session

    if find_java() is None:
        pytest.skip(NO_JAVA)
    session = get_session(master="local[2]", quick=True)
    yield session
    session.stop()
