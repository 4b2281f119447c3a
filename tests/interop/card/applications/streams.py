"""Kafka Streams: words are counted, in `programs/WordCount.java`."""

from functools import partial

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import JavaEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    Verdict,
    each_counted_once,
    none_undercounted,
    survives,
)


def count(stage: Stage, java: JavaEnvironment, *, guarantee: str, verdict: Verdict) -> str:
    stage.make_topics(SOURCE, "counts")
    state = str(stage.directory / "state")
    program = java.compiled("WordCount", stage.directory / "classes")
    command = program.command("WordCount", stage.servers, guarantee, state)
    return survives(stage, command, verdict, target="counts", crashes=True)


WHAT = "counts words in a state store with a changelog; a leader and then the application killed"

APPLICATION = Application(
    title="Kafka Streams",
    make=lambda _: JavaEnvironment.made("streams"),
    version=lambda java: java.version("kafka-streams"),
    runs={
        "at least once": Run(
            WHAT, partial(count, guarantee="at_least_once", verdict=none_undercounted)
        ),
        "exactly once": Run(
            WHAT, partial(count, guarantee="exactly_once_v2", verdict=each_counted_once)
        ),
    },
)
