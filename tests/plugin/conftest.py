"""A pytest of a user's own, in a folder of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.plugin.by_name import PLUGIN

ROOT = Path(__file__).parent.parent.parent
Run: TypeAlias = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a file of tests, with the plugin found by its entry point where it is installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run_it(source: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\n{ini}\n")
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *PLUGIN, *arguments)

    return run_it
