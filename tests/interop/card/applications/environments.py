"""The environment of an application: made for its run, from constraints of its own, and thrown away.

Python: a virtual environment with what `requirements/NAME.txt` pins. Java: the jars of a profile of
`pom.xml`, which Maven keeps; programs of Java in `programs` are compiled against them. Nothing of
this is among the project's own dependencies.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from replication.cli.kafka.processes import QUICK_START
from tests.interop import jars
from tests.interop.tools import LOG_CONFIG

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


@attrs.frozen
class JavaEnvironment:
    """The class path of an application."""

    class_path: str

    @classmethod
    def made(cls, profile: str) -> "JavaEnvironment":
        """Ask Maven for the jars of a profile of `pom.xml`."""
        try:
            return cls(jars.from_maven(f"card-{profile}", HERE / "pom.xml", f"-P{profile}"))
        except jars.KafkaNotFoundError as error:
            raise NotToBeHadError(str(error)) from None

    def compiled(self, program: str, directory: Path) -> "JavaEnvironment":
        """Compile a program of `programs`, and return the class path with it."""
        compiler = [jars.java(), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
        source = str(PROGRAMS / f"{program}.java")
        given = ["-cp", self.class_path, "-d", str(directory), source]
        done = subprocess.run([*compiler, *given], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return JavaEnvironment(os.pathsep.join([str(directory), self.class_path]))

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Return the command that runs a class."""
        logging = [f"-Dlog4j2.configurationFile={LOG_CONFIG}", "-Dlog.level=WARN"]
        return [
            *[jars.java(), *QUICK_START, *options, *logging],
            *["-cp", self.class_path, main, *arguments],
        ]

    def version(self, artifact: str) -> str:
        """Return the version of a jar, from its file's name."""
        found = re.search(rf"/{re.escape(artifact)}-(\d[^/]*)\.jar", self.class_path)
        assert found, artifact
        return found[1]


def _quietly(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()
        lines = [line for line in said if "ERROR" in line] or ["no word why"]
        raise NotToBeHadError(f"{Path(command[0]).name} says {lines[0]}")


def unpacked(artifact: str, directory: Path) -> Path:
    """Unpack an archive of Maven Central's, GROUP:NAME:VERSION:TYPE:CLASSIFIER, in `directory`."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NotToBeHadError("Maven (`mvn`) is not here")
    # Later versions of the plugin read the artifact's parent too, which is not always served.
    goal = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
    copied = directory / "archive"
    _quietly([maven, "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={copied}"])
    (archive,) = copied.iterdir()
    shutil.unpack_archive(archive, directory, filter="data")
    archive.unlink()
    return directory
