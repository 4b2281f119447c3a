"""`make`, and the package, refuse an old Python in one line."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.other_pythons import find

ROOT = Path(__file__).parents[1]
OLD = ((3, 10), (3, 9), (3, 8))


SAID = "understudy needs Python 3.11 or newer"


@pytest.fixture
def old_python() -> str:
    python = next(filter(None, map(find, OLD)), None)
    if python is None:
        pytest.skip("no older Python was found")
    return python


def test_the_package_of_a_checkout_needs_a_newer_python(old_python: str) -> None:
    command = [old_python, "-m", "understudy", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", [SAID])


@pytest.mark.parametrize("target", ["run", "setup"])
def test_nothing_is_installed_for_an_old_python(
    target: str, old_python: str, tmp_path: Path
) -> None:
    command = ["make", "--silent", target, f"PYTHON={old_python}", f"VENV={tmp_path / 'venv'}"]
    # An outer make's flags are not this one's.
    around = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=around, capture_output=True, text=True, check=False
    )
    said, of_make = done.stderr.splitlines()
    assert said == SAID
    assert of_make.startswith("make: *** ")
    assert done.returncode != 0
    assert not (tmp_path / "venv").exists()
