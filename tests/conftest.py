"""What every test shares: determinism for Hypothesis, and who may run side by side."""

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.collecting import import_from_a_place_of_its_own
from tests.depth import tried
from tests.marked import may_match, unwritten, written_in

pytest_plugins = ["pytester"]

# The suite must give the same answer twice on a busy machine: no deadline, fixed examples.
# `tests/depth.py` says who has more of them.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=tried(30, deep=100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")

PIPELINE = "tests/pipeline/"
# Of real sockets and browsers: no session is shared there.
WITHOUT_SPARK = tuple(
    f"{PIPELINE}test_{name}.py" for name in ("reports", "source_brokers", "source_sink")
)


# What takes longest comes first: who comes last would be waited for alone.
LONGEST = (
    PIPELINE,
    "tests/cli/test_demo.py",
    "tests/docs/test_snippets.py",
    "tests/plugin/test_suites.py",
    "tests/plugin/test_pytest_plugin.py",
    "tests/cli/test_up.py",
    "tests/cli/test_live_page.py",
)


def group_of(nodeid: str) -> str:
    """A file's tests run in one process, and so does all that shares Spark's session: two at
    once would take longer than one after the other.
    """
    file = nodeid.partition("::")[0]
    return PIPELINE if file.startswith(PIPELINE) and file not in WITHOUT_SPARK else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadscope`; xdist 3.8 finds no `xdist_group` with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    if config.getoption("dist") != "loadscope":
        return None
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays to the end: nobody looks through it for garbage, then or later."""
    gc.disable()
    try:
        import_from_a_place_of_its_own(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that have nothing of what is asked for: to import all takes half a minute."""
    if collection_path.suffix != ".py" or may_match(
        config.getoption("markexpr"), written_in(collection_path)
    ):
        return None
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if hidden := unwritten(item.path, (mark.name for mark in item.iter_markers())):
            raise pytest.UsageError(f"{item.nodeid} bears {hidden}, which its file does not write")
    places = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(group_of(item.nodeid), len(LONGEST)))
