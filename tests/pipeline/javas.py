"""Machines with this Java or that, or with none."""

import os
from pathlib import Path


def make_java(home: Path, version: str) -> str:
    """A `bin/java` that says a version, and otherwise prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    says = f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit'
    program.write_text(f'#!/bin/sh\n{says}\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return str(program)


def path_without_java(directory: Path) -> str:
    """A directory with all that is on this machine's PATH, but for Java."""
    directory.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name != "java" and not (directory / program.name).is_symlink():
                (directory / program.name).symlink_to(program)
    return str(directory)
