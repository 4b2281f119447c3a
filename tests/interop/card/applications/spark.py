"""Spark's own Kafka source and sink: lines are copied in capitals, in `programs/spark_shout.py`.

PySpark is the one of the pipeline, in this environment; its Kafka jars come from Maven. Spark
promises at least once: its sink writes a batch anew that was not finished.
"""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import attrs

from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PROGRAMS, NotToBeHadError
from tests.interop.card.applications.stage import (
    SOURCE,
    Stage,
    each_at_least_once,
    in_capitals,
    survives,
)
from tests.interop.jars import KafkaNotFoundError, java, spark_kafka_jars

BEFORE = "4.2.0"
"""The newest version that Maven Central has of the jars, where it lacks those of PySpark's version."""


@attrs.frozen
class SparkJars:
    """The jars of Spark's Kafka source, and their version."""

    version: str
    jars: list[str]


def find(_: Path) -> SparkJars:
    """Return what PySpark lacks."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotToBeHadError("PySpark is not installed: understudy[spark]")
    at_hand = Path(spec.origin).parent / "jars"
    said = ""
    for each in (version("pyspark"), BEFORE):
        try:
            return SparkJars(each, spark_kafka_jars(each, at_hand))
        except KafkaNotFoundError as error:
            said = str(error)
    raise NotToBeHadError(said)


def shout(stage: Stage, found: SparkJars) -> str:
    stage.make_topics(SOURCE, "shouted")
    given = [stage.servers, str(stage.directory / "checkpoints"), ",".join(found.jars)]
    command = [sys.executable, str(PROGRAMS / "spark_shout.py"), *given]
    env = {"JAVA_HOME": str(Path(java()).resolve().parent.parent)}
    verdict = in_capitals(each_at_least_once)
    return survives(stage, command, verdict, target="shouted", crashes=True, env=env)


APPLICATION = Application(
    title="Spark's Kafka source and sink",
    make=find,
    version=lambda found: f"{found.version} (PySpark {version('pyspark')})",
    runs={
        "at least once": Run(
            "copies lines with checkpoints; a leader and then Spark's driver killed", shout
        ),
    },
)
