"""Kafka Connect: a distributed worker with the file connectors of Kafka's release.

It gets its connectors over its REST interface. A leader is killed, and then the worker itself;
another one goes on, from what the first had stored in topics.
"""

import json
import time
import urllib.request
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from replication.cli.isolated import free_ports
from replication.cli.kafka.processes import write_properties
from tests.interop.card.applications.application import Application, Run
from tests.interop.card.applications.environments import JavaEnvironment
from tests.interop.card.applications.stage import (
    SOURCE,
    Record,
    Stage,
    Verdict,
    each_at_least_once,
    each_once,
    meanwhile,
    survives,
    values_of,
)

FILES = "org.apache.kafka.connect.file"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def worker(stage: Stage, java: JavaEnvironment, **config: str) -> tuple[list[str], str]:
    """Return the command of a worker, and the URL of its connectors."""
    (port,) = free_ports(1)
    properties = {
        "bootstrap.servers": stage.servers,
        "group.id": "connect",
        "key.converter": TEXT,
        "value.converter": TEXT,
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": "2",
        "status.storage.topic": "connect-status",
        "status.storage.partitions": "2",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "consumer.auto.offset.reset": "earliest",
        "consumer.session.timeout.ms": "6000",
        "listeners": f"http://127.0.0.1:{port}",
        **config,
    }
    path = write_properties(stage.directory / "worker.properties", properties)
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    return java.command(main, str(path)), f"http://127.0.0.1:{port}/connectors"


def ask(url: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return the answer of the worker's REST interface; None while it gives none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except OSError:
        return None


def give(url: str, config: Mapping[str, str]) -> None:
    """Give the worker its connector as soon as it listens, which takes it some seconds."""
    deadline = time.monotonic() + 90
    while not ask(url, {"name": "files", "config": config}):
        assert time.monotonic() < deadline, "the worker took no connector within 90 s"
        time.sleep(1)  # a real worker: asked again, with a bound


def sink(stage: Stage, java: JavaEnvironment) -> str:
    stage.make_topics(SOURCE)
    file = stage.directory / "sunk.txt"
    command, url = worker(stage, java)
    config = {
        "connector.class": f"{FILES}.FileStreamSinkConnector",
        "topics": SOURCE,
        "file": str(file),
    }

    def written() -> list[Record]:
        text = file.read_text() if file.exists() else ""
        return [(None, each) for each in text.splitlines()]

    verdict = values_of(each_at_least_once)
    with meanwhile(partial(give, url, config)):
        return survives(stage, command, verdict, target="", crashes=True, results=written)


def source(
    stage: Stage, java: JavaEnvironment, *, verdict: Verdict, exactly_once: bool = False
) -> str:
    stage.make_topics("sourced")
    file = stage.directory / "source.txt"
    file.touch()
    given = {"exactly.once.source.support": "enabled"} if exactly_once else {}
    command, url = worker(stage, java, **given)
    connector = {
        "connector.class": f"{FILES}.FileStreamSourceConnector",
        "topic": "sourced",
        "file": str(file),
    }
    if exactly_once:
        connector |= {"exactly.once.support": "required", "transaction.boundary": "poll"}
    with meanwhile(partial(give, url, connector)):
        return survives(
            stage,
            command,
            verdict,
            target="sourced",
            leader_of="sourced",
            crashes=True,
            feed=partial(append, file),
        )


def append(file: Path, lines: Iterable[str]) -> None:
    """Write each line at the end of a file as it comes."""
    with file.open("a") as out:
        for line in lines:
            out.write(f"{line}\n")
            out.flush()


APPLICATION = Application(
    title="Kafka Connect",
    make=lambda _: JavaEnvironment.made("connect"),
    version=lambda java: java.version("connect-runtime"),
    runs={
        "sink, at least once": Run(
            "writes a topic to a file; a leader and then the worker killed", sink
        ),
        "source, at least once": Run(
            "writes a file that grows to a topic; a leader and then the worker killed",
            partial(source, verdict=values_of(each_at_least_once)),
        ),
        "source, exactly once": Run(
            "writes a file that grows to a topic in transactions (KIP-618);"
            " a leader and then the worker killed",
            partial(source, verdict=values_of(each_once), exactly_once=True),
        ),
    },
)
