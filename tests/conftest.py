"""What every test shares: determinism for Hypothesis, and who may run side by side."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# The suite must give the same answer twice on a busy machine: no deadline, fixed examples.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")

PIPELINE = Path(__file__).parent / "pipeline"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`: a file's tests in one process, and all of Spark's, of which two
    at once would take longer than one after the other.
    """
    if config.getoption("dist", "no") != "loadgroup":
        return
    for item in items:
        group = PIPELINE if item.path.is_relative_to(PIPELINE) else item.path
        item.add_marker(pytest.mark.xdist_group(str(group)))
