"""Run one application of the card; one line of JSON for each of its runs.

    python -m tests.interop.card.applications NAME [--run PROMISE] [--at-kafka] [--keep DIRECTORY]

It is a process of its own, so that an application that hangs can be killed with all it has started.
"""

import importlib
import json
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from replication.cli.isolated import IsolatedCluster
from tests.interop.card.applications.application import APPLICATIONS, Application
from tests.interop.card.applications.environments import NotToBeHadError
from tests.interop.card.applications.stage import Brokers, Stage
from tests.interop.kafka import Kafka

START_SECONDS: Final = 240.0
CONFIG: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "500",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}
AS_THREE: Final = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@contextmanager
def brokers_in(directory: Path, *, at_kafka: bool) -> Iterator[Brokers]:
    if at_kafka:
        with Kafka(data_dir=directory, brokers=3, properties=CONFIG | AS_THREE) as kafka:
            kafka.wait_until_ready()
            yield kafka
        return
    with IsolatedCluster(directory, brokers=3, config=CONFIG) as cluster:
        cluster.wait_until_ready(START_SECONDS)
        yield cluster


def tell(**said: str) -> None:
    click.echo(json.dumps(said))


def run_one(application: Application[Any], promise: str, made: Any, stage: Stage) -> None:
    try:
        found = application.runs[promise].work(stage, made)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result of the run
        traceback.print_exc()
        tell(promise=promise, failed=f"{type(error).__name__}: {error}")
    else:
        tell(promise=promise, found=found)
    finally:
        stage.kill_all()


@click.command()
@click.argument("name", type=click.Choice([*APPLICATIONS]))
@click.option("--run", "promises", multiple=True, help="One promise; all of them by default.")
@click.option("--at-kafka", is_flag=True, help="At Apache Kafka's brokers instead of ours.")
@click.option("--keep", type=click.Path(path_type=Path), help="A directory that stays.")
def main(name: str, promises: tuple[str, ...], *, at_kafka: bool, keep: Path | None) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it was done"))
    application = importlib.import_module(APPLICATIONS[name]).APPLICATION
    temporary = tempfile.TemporaryDirectory(prefix="understudy-card-", ignore_cleanup_errors=True)
    with nullcontext(str(keep)) if keep else temporary as directory:
        home = Path(directory).resolve()
        try:
            made = application.make(home)
        except NotToBeHadError as error:
            tell(not_here=str(error))
            return
        tell(version=application.version(made))
        for promise in promises or application.runs:
            place = home / re.sub(r"\W+", "-", promise)  # a comma would part log directories
            place.mkdir(parents=True, exist_ok=True)
            with brokers_in(place / "data", at_kafka=at_kafka) as brokers:
                run_one(application, promise, made, Stage(brokers, place))


if __name__ == "__main__":
    main()
