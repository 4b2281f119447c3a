"""quixstreams: words are counted, in `programs/quix_words.py`."""

from functools import partial

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PythonEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    Verdict,
    each_counted_once,
    none_undercounted,
    survives,
)


def count(stage: Stage, python: PythonEnvironment, *, guarantee: str, verdict: Verdict) -> str:
    stage.make_topics(SOURCE, "counts")
    state = str(stage.directory / "state")
    command = python.program("quix_words.py", stage.servers, guarantee, state)
    return survives(stage, command, verdict, target="counts", crashes=True)


WHAT = "counts words in a state with a changelog; a leader and then the application killed"

APPLICATION = Application(
    title="quixstreams",
    make=lambda directory: PythonEnvironment.made(directory, "quixstreams"),
    version=lambda python: python.version("quixstreams"),
    runs={
        "at least once": Run(
            WHAT, partial(count, guarantee="at-least-once", verdict=none_undercounted)
        ),
        "exactly once": Run(
            WHAT, partial(count, guarantee="exactly-once", verdict=each_counted_once)
        ),
    },
)
