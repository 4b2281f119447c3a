"""The environment of an application: made for its run, from constraints of its own, and thrown away.

A virtual environment has what `requirements/NAME.txt` pins, and runs a program of `programs`.
Nothing of this is among the project's own dependencies.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

HERE: Final = Path(__file__).parent
PROGRAMS: Final = HERE / "programs"
INSTALL_SECONDS: Final = 400


class NotToBeHadError(Exception):
    """An application cannot be installed here; the message, of one line, has the answer."""


@attrs.frozen
class PythonEnvironment:
    """A virtual environment with an application."""

    directory: Path

    @classmethod
    def made(cls, directory: Path, name: str) -> "PythonEnvironment":
        """Make the environment that `requirements/NAME.txt` describes, unless it is there."""
        requirements = HERE / "requirements" / f"{name}.txt"
        made = cls(directory / f"venv-{name}")
        if made.directory.exists():
            return made
        _quietly([sys.executable, "-m", "venv", str(made.directory)])
        pip = [
            str(made.directory / "bin" / "pip"),
            "install",
            "--quiet",
            "--no-input",
            "--no-compile",
        ]
        _quietly([*pip, "-r", str(requirements)])
        return made

    def program(self, name: str, *arguments: str) -> list[str]:
        """Return the command that runs a program of `programs`."""
        return [self.python, str(PROGRAMS / name), *arguments]

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    def version(self, package: str) -> str:
        code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
        asked = [self.python, "-c", code, package]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return done.stdout.strip()


def _quietly(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()
        lines = [line for line in said if "ERROR" in line] or ["no word why"]
        raise NotToBeHadError(f"{Path(command[0]).name} says {lines[0]}")
