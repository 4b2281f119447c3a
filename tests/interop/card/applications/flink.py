"""Flink's Kafka connector: lines are copied in capitals, in `programs/FlinkShout.java`.

The job runs in a cluster of Flink inside one JVM. When that is killed, the next one goes on from
the newest checkpoint.
"""

from functools import partial

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import JavaEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    Verdict,
    each_at_least_once,
    each_once,
    in_capitals,
    survives,
)

OPENED = ("java.lang", "java.util", "java.nio", "java.time", "java.net", "java.text")
OPTIONS = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]


def shout(stage: Stage, java: JavaEnvironment, *, guarantee: str, verdict: Verdict) -> str:
    stage.make_topics(SOURCE, "shouted")
    checkpoints = stage.directory / "checkpoints"
    checkpoints.mkdir()
    program = java.compiled("FlinkShout", stage.directory / "classes")
    given = (stage.servers, guarantee, str(checkpoints))
    command = program.command("FlinkShout", *given, options=[*OPTIONS, "-Xmx512m"])
    return survives(stage, command, verdict, target="shouted", crashes=True)


WHAT = "copies lines with checkpoints; a leader and then the job's JVM killed"

APPLICATION = Application(
    title="Flink's Kafka connector",
    make=lambda _: JavaEnvironment.made("flink"),
    version=lambda java: (
        f"{java.version('flink-connector-kafka')} (Flink {java.version('flink-runtime')})"
    ),
    runs={
        "at least once": Run(
            WHAT,
            partial(shout, guarantee="AT_LEAST_ONCE", verdict=in_capitals(each_at_least_once)),
        ),
        "exactly once": Run(
            WHAT, partial(shout, guarantee="EXACTLY_ONCE", verdict=in_capitals(each_once))
        ),
    },
)
