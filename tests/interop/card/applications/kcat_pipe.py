"""kcat: lines are piped from one topic into another, by a consumer group and a producer."""

import shlex
import shutil
from pathlib import Path

from tests.interop.card import kcat
from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import NotToBeHadError
from tests.interop.card.applications.stage import (
    LINES,
    SOURCE,
    Stage,
    each_at_least_once,
    survives,
    values_of,
)


def find(_: Path) -> str:
    found = shutil.which("kcat")
    if found is None:
        raise NotToBeHadError("kcat is not installed, and comes from Debian's packages")
    return found


def pipe(stage: Stage, command: str) -> str:
    """Consume as a group and produce, until all is there: kcat keeps input until it has a block."""
    stage.make_topics(SOURCE, "copied")
    group = ["-G", "pipe", "-X", "auto.offset.reset=earliest", "-c", str(len(LINES))]
    read = [command, "-b", stage.servers, "-q", "-u", *group]
    write = [command, "-b", stage.servers, "-P", "-t", "copied", "-X", "acks=all"]
    line = f"{shlex.join([*read, SOURCE])} | {shlex.join(write)}"
    return survives(stage, ["sh", "-c", line], values_of(each_at_least_once), target="copied")


APPLICATION = Application(
    title="kcat",
    make=find,
    version=lambda _: (kcat.VERSION or "").removeprefix("kcat "),
    runs={"at least once": Run("pipes a consumer group into a producer; a leader killed", pipe)},
)
