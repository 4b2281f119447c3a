"""`understudy top`: how every partition stands, looked at again and again.

    understudy top                                   a live table, until Ctrl-C
    understudy top orders --under-replicated-partitions
    understudy top --once --output json | jq ...     one look, with epochs and sizes

It asks any Kafka cluster, over Kafka's protocol (`replication/observe/foreign_state.py`).
Where nobody watches a screen, each look is written below the one before.
"""

from collections.abc import Sequence

import click

from replication.cli.connection import Connection, connected
from replication.cli.output import JSON, OUTPUT
from replication.cli.topics.choosing import Wanted, pattern
from replication.cli.topics.describing import Only


@click.command(name="top")
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--topic", "pattern", callback=pattern, metavar="PATTERN", help="All whose whole name matches."
)
@click.option("--under-replicated-partitions", is_flag=True, help="Whose ISR is not all of them.")
@click.option("--unavailable-partitions", is_flag=True, help="That nobody leads.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Whose ISR is below its minimum.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Whose ISR is just its minimum.")
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
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
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
        only=Only(
            under_replicated=under_replicated_partitions,
            unavailable=unavailable_partitions,
            under_min_isr=under_min_isr_partitions,
            at_min_isr=at_min_isr_partitions,
        ),
        seconds=seconds,
        once=once,
        as_json=output == JSON,
    )
    top.run()
