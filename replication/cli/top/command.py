"""`understudy top`: the state of every partition, again and again.

    understudy top                                   a live table, until Ctrl-C
    understudy top orders --under-replicated-partitions
    understudy top --once --output json | jq ...     the state once, with epochs and sizes

It asks any Kafka cluster, over Kafka's protocol (`replication/observe/protocol_source.py`).
Without a terminal, each state is written below the one before.
"""

from collections.abc import Sequence

import click

from replication.cli.connection import ClusterConnection, connected
from replication.cli.output import JSON, OUTPUT
from replication.cli.topics.choosing import PATTERN, TOPICS, Only, WantedTopics, only_some


@click.command(name="top")
@TOPICS
@PATTERN
@only_some
@click.option("--internal", is_flag=True, help="Also show Kafka's own topics.")
@click.option("--once", is_flag=True, help="Show the state once, and end.")
@click.option(
    "--interval",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@connected()
@OUTPUT
def command(
    names: Sequence[str],
    pattern: str | None,
    *,
    only: Only,
    internal: bool,
    once: bool,
    seconds: float,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Show who leads each partition, how far its replicas are, and why one is not in sync."""
    from replication.cli.top.screen import Top

    top = Top(
        connection=connection,
        wanted=WantedTopics(names=tuple(names), pattern=pattern),
        internal=internal,
        only=only,
        seconds=seconds,
        once=once,
        as_json=output == JSON,
    )
    top.run()
