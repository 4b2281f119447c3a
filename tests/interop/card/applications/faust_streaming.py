"""faust, as faust-streaming: words are counted, in `programs/faust_words.py`."""

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
    stage.make_topics(SOURCE, "words", "counts")
    command = python.program("faust_words.py", "worker", "--without-web", "-l", "info")
    env = {"SERVERS": stage.servers, "GUARANTEE": guarantee}
    return survives(stage, command, verdict, target="counts", crashes=True, env=env)


WHAT = "counts words in a table with a changelog; a leader and then the application killed"

APPLICATION = Application(
    title="faust (faust-streaming)",
    make=lambda directory: PythonEnvironment.made(directory, "faust-streaming"),
    version=lambda python: python.version("faust-streaming"),
    runs={
        "at least once": Run(
            WHAT, partial(count, guarantee="at_least_once", verdict=none_undercounted)
        ),
        "exactly once": Run(
            WHAT, partial(count, guarantee="exactly_once", verdict=each_counted_once)
        ),
    },
)
