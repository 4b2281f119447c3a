"""What the tests of the pipeline share: a session, and what a failover left on disk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.registry import RegistryStandIn, registry_stand_in
from tests.pipeline.sessions import session_for_tests

if TYPE_CHECKING:
    from tests.pipeline.failover_run import FailoverRun


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with session_for_tests(tmp_path_factory.mktemp("installed")) as session:
        yield session


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with registry_stand_in() as stand_in:
        yield stand_in


@pytest.fixture(scope="session")
def failed_over(tmp_path_factory: pytest.TempPathFactory) -> "FailoverRun":
    """Return what a cluster left on disk whose leader was killed under load and came back."""
    pytest.importorskip("confluent_kafka", reason="produces what is failed over")
    from tests.pipeline.failover_run import run

    return run(tmp_path_factory.mktemp("failed-over"))
