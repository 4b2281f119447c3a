"""FastStream over confluent-kafka: lines are copied in capitals, in `programs/faststream_shout.py`."""

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PythonEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    each_at_least_once,
    in_capitals,
    survives,
)


def shout(stage: Stage, python: PythonEnvironment) -> str:
    stage.make_topics(SOURCE, "shouted")
    command = python.program("faststream_shout.py", stage.servers)
    verdict = in_capitals(each_at_least_once)
    return survives(stage, command, verdict, target="shouted", crashes=True)


APPLICATION = Application(
    title="FastStream (confluent)",
    make=lambda directory: PythonEnvironment.made(directory, "faststream"),
    version=lambda python: python.version("faststream"),
    runs={
        "at least once": Run("copies lines; a leader and then the application killed", shout),
    },
)
