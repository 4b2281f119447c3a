"""MirrorMaker 2: a topic is copied into another cluster of ours, by a cluster of its own workers."""

from functools import partial

from replication.cli.isolated import IsolatedCluster, free_ports
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
    survives,
    values_of,
)

INTERNAL = [
    *("config.storage", "offset.storage", "status.storage"),
    *("heartbeats.topic", "checkpoints.topic", "offset-syncs.topic"),
]
ONE_BROKER = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


def mirror(
    stage: Stage, java: JavaEnvironment, *, verdict: Verdict, exactly_once: bool = False
) -> str:
    """Copy from the stage's brokers to one that is alone, as `near.lines`."""
    stage.make_topics(SOURCE)
    alone = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}
    alone |= dict.fromkeys(ONE_BROKER, "1")
    with IsolatedCluster(stage.directory / "far", brokers=1, config=alone) as far:
        far.wait_until_ready()
        properties = {
            "clusters": "near, far",
            "near.bootstrap.servers": stage.servers,
            "far.bootstrap.servers": far.bootstrap_servers,
            "near->far.enabled": "true",
            "near->far.topics": SOURCE,
            "near->far.offset-syncs.topic.location": "target",
            "far->near.enabled": "false",
            "far->near.emit.heartbeats.enabled": "false",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
            "replication.factor": "1",
            "far.offset.flush.interval.ms": "500",
            "far.session.timeout.ms": "6000",
            "far.heartbeat.interval.ms": "1000",
            "far.scheduled.rebalance.max.delay.ms": "0",
            "near.consumer.auto.offset.reset": "earliest",
            **{f"{each}.replication.factor": "1" for each in INTERNAL},
        }
        if exactly_once:
            properties["far.exactly.once.source.support"] = "enabled"
        path = write_properties(stage.directory / "mm2.properties", properties)
        copies = Stage(far, stage.directory)

        def found() -> list[Record]:
            return copies.read(f"near.{SOURCE}")

        command = java.command(MAIN, str(path))
        return survives(stage, command, verdict, target="", crashes=True, results=found)


WHAT = "copies a topic into another cluster; a leader of the source and then MirrorMaker killed"

APPLICATION = Application(
    title="MirrorMaker 2",
    make=lambda _: JavaEnvironment.made("connect"),
    version=lambda java: java.version("connect-mirror"),
    runs={
        "at least once": Run(WHAT, partial(mirror, verdict=values_of(each_at_least_once))),
        "exactly once": Run(WHAT, partial(mirror, verdict=values_of(each_once), exactly_once=True)),
    },
)
