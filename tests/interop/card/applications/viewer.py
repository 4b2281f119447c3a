"""kafka-viewer, a web page of Streamlit's: a topic is chosen and its messages are loaded.

`programs/viewer_walk.py` presses its buttons through Streamlit's AppTest, which runs the page as it
is, without a browser.
"""

import json
import subprocess

from replication.cli.kafka.processes import write_properties
from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PythonEnvironment
from tests.interop.card.applications.stage import LINES, SOURCE, Stage, each_once


def look(stage: Stage, python: PythonEnvironment) -> str:
    """Load all messages, kill a leader, and load them again."""
    stage.make_topics(SOURCE)
    stage.send(SOURCE, LINES)
    properties = {"kafka.bootstrap.servers": stage.servers}
    path = write_properties(stage.directory / "viewer.properties", properties)
    command = python.program("viewer_walk.py", str(path), SOURCE)

    def shown() -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        found: list[str] = json.loads(done.stdout.splitlines()[-1])
        return found

    each_once(LINES, shown())
    stage.kill_leader(SOURCE)
    return each_once(LINES, shown()).replace("sent", "shown")


APPLICATION = Application(
    title="kafka-viewer",
    make=lambda directory: PythonEnvironment.made(directory, "kafka-viewer"),
    version=lambda python: python.version("kafka-viewer"),
    runs={
        "shows each message": Run(
            "chooses a topic and loads its messages; a leader killed, and loaded again", look
        ),
    },
)
