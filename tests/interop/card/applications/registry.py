"""A schema registry that keeps its schemas at our brokers, and a client that serializes with them.

The registry is Apicurio's, which Maven Central has, with its storage in Kafka: each change is a
record of the topic `kafkasql-journal`, and a registry that starts reads all of them. The client is
confluent-kafka's SchemaRegistryClient with its serializers, over the API that Confluent's registry
has, in `programs/registry_orders.py`.
"""

import subprocess
import urllib.request
from functools import partial
from pathlib import Path

import attrs

from replication.cli.isolated import free_ports
from replication.cli.kafka.processes import QUICK_START
from tests.interop import jars
from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import PythonEnvironment, unpacked
from tests.interop.card.applications.stage import (
    LINES,
    SOURCE,
    Record,
    Stage,
    Started,
    each_at_least_once,
    survives,
    values_of,
)

APICURIO = "3.0.9"
"""The newest version here that runs on Java 17."""
JOURNAL = "kafkasql-journal"


@attrs.frozen
class RegistryEnvironment:
    """The client's environment, and the directory of the registry."""

    python: PythonEnvironment
    registry: Path

    @classmethod
    def made(cls, directory: Path) -> "RegistryEnvironment":
        artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
        return cls(
            PythonEnvironment.made(directory, "registry"),
            unpacked(artifact, directory / "apicurio"),
        )


def start_registry(stage: Stage, made: RegistryEnvironment, port: int, name: str) -> Started:
    """Start a registry with nothing on its disk, and wait until it answers."""
    env = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": stage.servers,
        "APICURIO_STORAGE_SNAPSHOT_LOCATION": str(stage.directory),
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
    }
    command = [jars.java(), *QUICK_START, "-Xmx512m", "-jar"]
    command += [str(made.registry / f"apicurio-registry-app-{APICURIO}-runner.jar")]
    started = stage.start(command, name=name, env=env)
    stage.until(partial(answers, f"{api(port)}/subjects"), "answer of the registry")
    return started


def api(port: int) -> str:
    return f"http://127.0.0.1:{port}/apis/ccompat/v7"


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def orders(stage: Stage, made: RegistryEnvironment, *, form: str) -> str:
    stage.make_topics(SOURCE, "orders")
    (port,) = free_ports(1)
    registry = start_registry(stage, made, port, "registry")
    given = (stage.servers, api(port), form)

    def decoded() -> list[Record]:
        command = made.python.program("registry_orders.py", "read", *given)
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return [(None, each) for each in done.stdout.splitlines()]

    verdict = values_of(each_at_least_once)
    command = made.python.program("registry_orders.py", "write", *given)
    said = survives(
        *(stage, command, verdict),
        target="",
        leader_of=JOURNAL,
        crashes=True,
        results=decoded,
    )
    registry.kill()
    start_registry(stage, made, port, "registry-again")
    verdict(LINES, decoded())  # with the schemas that were in the topic
    return f"{said}; decoded again after a new registry had read its topic"


WHAT = (
    "writes and reads {} in two versions of a schema; a leader of the registry's topic,"
    " the writer and the registry killed"
)

APPLICATION = Application(
    title="Apicurio Registry, confluent-kafka's SchemaRegistryClient",
    make=RegistryEnvironment.made,
    version=lambda made: f"{APICURIO}, {made.python.version('confluent-kafka')}",
    runs={
        name: Run(WHAT.format(name), partial(orders, form=form))
        for name, form in {"Avro": "avro", "Protobuf": "protobuf", "JSON Schema": "json"}.items()
    },
)
