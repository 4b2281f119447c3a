"""`understudy broker`: one node of a cluster, from a server.properties, until it is stopped.

The node has the roles of `process.roles`: a broker, the controller, or both in one process. Only the
modules of its roles are imported.

    standard input            ignored by default
    --stop-at-end-of-input    its end is like SIGTERM, so that the node ends with its parent
    --steered                 the same, and the parent uses it to inject faults and cuts
                              (`steering`)
"""

import gc
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog
import trio

from replication.cli.options import FILE, NEW_FILE, overrides_option
from replication.cli.output import tell
from replication.cli.running import (
    allow_many_files,
    end_of_input,
    journal_sink,
    reporting_bugs,
    run_until_stopped,
)
from replication.cli.served import HttpPort, MetricsServer, http_option
from replication.config import BrokerConfig, parse_properties
from replication.events import EventSink, fan_out
from replication.net import production_seams
from replication.net.clock import LoopClock
from replication.net.raising import raising_only_one
from replication.observe.logging import log_sink

if TYPE_CHECKING:
    from replication.broker.broker import Broker
    from replication.cli.steering import SteeredNode
    from replication.cluster.cluster import Node
    from replication.controller.controller import Controller


@click.command(name="broker")
@click.option(
    "--config",
    "properties",
    required=True,
    type=FILE,
    help="A server.properties file, with Kafka's keys.",
)
@click.option("--journal", type=NEW_FILE, help="The file to append events to, as msgpack.")
@overrides_option("Set a configuration key; it overrides the file.")
@http_option("--metrics", about="Serve /metrics for Prometheus at this port; 0 takes any port.")
@click.option(
    "--stop-at-end-of-input", is_flag=True, help="Stop when standard input ends, as for SIGTERM."
)
@click.option(
    "--steered",
    is_flag=True,
    help="Take faults and cuts from the parent, over a socket as standard input.",
)
def command(
    properties: Path,
    journal: Path | None,
    overrides: Mapping[str, str],
    metrics: HttpPort | None,
    *,
    stop_at_end_of_input: bool,
    steered: bool,
) -> None:
    """Run a broker, a controller, or both, from server.properties."""
    found = parse_properties(properties_text(properties)) | {**overrides}
    config = BrokerConfig.from_properties(found)
    if config.is_broker:
        _ = config.controller_addresses  # raises ConfigError before any directory is created
    for key in config.ignored_keys:
        tell(f"understudy: {key} has no effect here and is ignored")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sink = log_sink(structlog.get_logger().bind(node=config.node_id))
    if journal is not None:
        sink = fan_out(sink, journal_sink(str(journal), node_id=config.node_id))
    allow_many_files()
    steering = _steered_node(config.node_id) if steered else None
    if steering is not None:
        sink = fan_out(sink, steering.sink)
    served = MetricsServer(metrics)
    sink = fan_out(sink, *served.sinks(broker=config.node_id if config.is_broker else None))
    until = end_of_input if stop_at_end_of_input else None
    gc.freeze()  # what is imported lives as long as the process; a full collection would walk it
    run = partial(run_node, config, sink, served, steered=steering, until=until)
    trio.run(run, clock=LoopClock())


def _steered_node(node_id: int) -> "SteeredNode":
    from replication.cli.steering import SteeredNode

    return SteeredNode(node_id)


def properties_text(properties: Path) -> str:
    """Return the text of a properties file: UTF-8, or else Latin-1, as Java reads it."""
    data = properties.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


async def run_node(
    config: BrokerConfig,
    sink: EventSink,
    served: MetricsServer | None = None,
    *,
    steered: "SteeredNode | None" = None,
    until: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Run a node with all its roles; the controller starts first and stops last."""
    served = served or MetricsServer(None)
    on_bug = served.on_bug(reporting_bugs(sink))
    seams = production_seams() if steered is None else steered.seams
    faults = None if steered is None else steered.faults
    node, controller, broker = _node(config, seams=seams, sink=sink, on_bug=on_bug, faults=faults)
    if steered is not None and broker is not None:
        steered.hosted = lambda: broker.hosted
    if served.metrics is not None:
        served.metrics.controllers = lambda: [] if controller is None else [controller]
        served.metrics.brokers = lambda: [] if broker is None else [broker]
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            for purpose, url in (await served.start(nursery, on_bug)).items():
                tell(f"understudy: {purpose}: {url}")
            if steered is not None:
                await nursery.start(steered.run)
                until = steered.parent_gone.wait
            await run_until_stopped(node, until=until)
            nursery.cancel_scope.cancel()


def _node(config: BrokerConfig, **made_of: Any) -> "tuple[Node, Controller | None, Broker | None]":
    """Return a node, and its controller and its broker, where it has those roles."""
    if not config.is_controller:
        from replication.broker.broker import Broker

        broker = Broker(config=config, **made_of)
        return broker, None, broker
    if not config.is_broker:
        from replication.controller.controller import Controller

        controller = Controller(config=config, **made_of)
        return controller, controller, None
    from replication.broker.combined import CombinedNode

    node = CombinedNode(config=config, **made_of)
    return node, node.controller, node.broker
