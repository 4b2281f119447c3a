"""`understudy top`: how every partition stands, looked at again and again.

    understudy top                                   a live table, until Ctrl-C
    understudy top orders --under-replicated-partitions
    understudy top --once --output json | jq ...     one look, with epochs and sizes

It asks any Kafka cluster, over Kafka's protocol (`replication/observe/protocol_source.py`).
Where nobody watches a screen, each look is written below the one before.
"""

from collections.abc import Sequence

import click

from replication.cli.connection import Connection, connected
from replication.cli.output import JSON, OUTPUT
from replication.cli.topics.choosing import PATTERN, TOPICS, Only, Wanted, only_some


@click.command(name="top")
@TOPICS
@PATTERN
@only_some
@click.option("--internal", is_flag=True, help="Kafka's own topics too.")
@click.option("--once", is_flag=True, help="Look once.")
@click.option(
    "--interval",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds from one look to the next.",
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
    connection: Connection,
    output: str,
) -> None:
    """Who leads each partition, how far its replicas are, who is in sync, and why not."""
    from replication.cli.top.looking import Top

    top = Top(
        connection=connection,
        wanted=Wanted(names=tuple(names), pattern=pattern),
        internal=internal,
        only=only,
        seconds=seconds,
        once=once,
        as_json=output == JSON,
    )
    top.run()
