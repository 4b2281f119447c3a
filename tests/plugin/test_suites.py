"""Ten small suites of users, each in a folder and a pytest of its own, with the plugin alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.by_name import PLUGIN

pytestmark = pytest.mark.client

SUITES = Path(__file__).parent.parent / "suites"
ROOT = SUITES.parent.parent
NAMES = sorted(each.name for each in SUITES.iterdir() if any(each.glob("test_*.py")))


# `make deep` runs the others.
QUICK = {"orders_confluent"}


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    spark = [pytest.mark.spark] if name.endswith("pyspark") else []
    return [pytest.mark.deep, *spark]


def test_there_are_ten() -> None:
    assert len(NAMES) == 10


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in NAMES if name in QUICK),
        *(pytest.param(name, marks=marks_of(name)) for name in NAMES if name not in QUICK),
    ],
)
def test_a_suite_passes(name: str) -> None:
    if name.endswith("pyspark"):
        pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN]
    alone = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=SUITES / name,
        env=alone | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
