"""`make` refuses an old Python in one line, before it installs anything."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.other_pythons import find

ROOT = Path(__file__).parents[1]
OLD = ((3, 10), (3, 9), (3, 8))


@pytest.mark.parametrize("target", ["run", "setup"])
def test_an_old_python_is_refused_in_one_line(target: str, tmp_path: Path) -> None:
    python = next(filter(None, map(find, OLD)), None)
    if python is None:
        pytest.skip("no older Python was found")
    command = ["make", "--silent", target, f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    # An outer make's flags are not this one's.
    around = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=around, capture_output=True, text=True, check=False
    )
    said, of_make = done.stderr.splitlines()
    assert said == "understudy needs Python 3.11 or newer"
    assert of_make.startswith("make: *** ")
    assert done.returncode != 0
    assert not (tmp_path / "venv").exists()
