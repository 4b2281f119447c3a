"""bytewax: lines are copied in capitals, in `programs/bytewax_shout.py`, with a recovery store."""

import subprocess

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PROGRAMS, PythonEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    each_at_least_once,
    in_capitals,
    survives,
)


def shout(stage: Stage, python: PythonEnvironment) -> str:
    stage.make_topics(SOURCE, "shouted")
    store = stage.directory / "recovery"
    store.mkdir()
    subprocess.run([python.python, "-m", "bytewax.recovery", str(store), "1"], check=True)
    flow = f"{PROGRAMS / 'bytewax_shout.py'}:flow"
    command = [python.python, "-m", "bytewax.run", flow, "-r", str(store), "-s", "1", "-b", "0"]
    env = {"SERVERS": stage.servers}
    verdict = in_capitals(each_at_least_once)
    return survives(stage, command, verdict, target="shouted", crashes=True, env=env)


APPLICATION = Application(
    title="bytewax",
    make=lambda directory: PythonEnvironment.made(directory, "bytewax"),
    version=lambda python: python.version("bytewax"),
    runs={
        "at least once": Run("copies lines; a leader and then the application killed", shout),
    },
)
