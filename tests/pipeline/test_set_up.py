"""What `make` brings before it does anything: Java too, where Spark would find none."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.javas import make_java, path_without_java

ROOT = Path(__file__).resolve().parents[2]
# Notes its arguments, and makes an environment that has itself for an interpreter.
PYTHON = """#!/bin/sh
echo "$@" >>"{said}"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of one without Java."""
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return kept | {"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": ""}


def extras(machine: dict[str, str], tmp_path: Path) -> list[str]:
    """Return the extras of this project for which `make setup` asks pip."""
    python, said = tmp_path / "python", tmp_path / "said"
    python.write_text(PYTHON.format(said=said))
    python.chmod(0o755)
    made = [f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    subprocess.run(["make", "-C", str(ROOT), "setup", *made], env=machine, check=True)
    found = re.search(r"^-m pip install .* -e \.\[(.+)\]$", said.read_text(), re.MULTILINE)
    assert found, said.read_text()
    return found[1].split(",")


def test_without_java_one_comes_from_pypi(machine: dict[str, str], tmp_path: Path) -> None:
    assert {"spark", "java"} <= set(extras(machine, tmp_path))


def test_one_that_is_too_old_for_spark_is_none(machine: dict[str, str], tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.24")
    machine["PATH"] = f"{tmp_path}/old/bin{os.pathsep}{machine['PATH']}"
    assert "java" in extras(machine, tmp_path)


@pytest.mark.parametrize("version", ["17", "21.0.8", "25.0.2"])
@pytest.mark.parametrize("place", ["PATH", "JAVA_HOME"])
def test_one_that_spark_runs_on_is_enough(
    machine: dict[str, str], tmp_path: Path, version: str, place: str
) -> None:
    home = Path(make_java(tmp_path / "java", version)).parent.parent
    if place == "PATH":
        machine["PATH"] = f"{home}/bin{os.pathsep}{machine['PATH']}"
    else:
        machine["JAVA_HOME"] = str(home)
    assert "java" not in extras(machine, tmp_path)
