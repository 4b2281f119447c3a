"""`understudy follow`: an exact copy of a cluster's topics, for as long as it runs."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from replication.cli.connection import key_values, properties_of, server_option
from replication.cli.output import OUTPUT
from replication.cli.served import HttpPort, HttpPortType
from replication.client.config import ClientConfig
from replication.mirror.options import MirrorOptions, UpTo

METADATA_MAX_AGE_MS = "10000"
"""How soon new topics are found, where nothing else is said; a consumer's five minutes are long."""
UP_TO = {"lso": UpTo.LAST_STABLE, "hw": UpTo.HIGH_WATERMARK}


@click.command(name="follow")
@server_option(about="Brokers of the cluster to follow.")
@click.option(
    "--to", "directory", required=True, type=click.Path(file_okay=False, path_type=Path),
    help="The copy's directory: made, or gone on with.",
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="A topic to follow; may be said again.")
@click.option(
    "--topics-matching", "patterns", multiple=True, metavar="PATTERN",
    help="All topics whose whole name fits, those to come too; no internal ones.",
)  # fmt: skip
@click.option("--groups", is_flag=True, help="Consumer groups' offsets too (__consumer_offsets).")
@click.option(
    "--up-to", type=click.Choice(list(UP_TO)), default="lso", show_default=True,
    help="lso: no further than the first open transaction. hw: all that is committed.",
)  # fmt: skip
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Bytes a second.")
@click.option(
    "--fetchers", type=click.IntRange(min=1), default=1, show_default=True,
    help="Connections to each broker.",
)  # fmt: skip
@click.option(
    "--command-config", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Keys of a Kafka client, a line each: how it is connected to, and how often asked.",
)  # fmt: skip
@click.option("--until-caught-up", is_flag=True, help="End when nothing is missing.")
@click.option(
    "--metrics", "metrics_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write all metrics there every few seconds, under Kafka's names.",
)  # fmt: skip
@click.option(
    "--metrics-port", "metrics_at", type=HttpPortType(), metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus there; 0 takes any port.",
)  # fmt: skip
@click.option(
    "-X", "overrides", multiple=True, callback=key_values, metavar="KEY=VALUE",
    help="A key of the broker that keeps it.",
)  # fmt: skip
@OUTPUT
def command(
    servers: str,
    directory: Path,
    topics: tuple[str, ...],
    patterns: tuple[str, ...],
    *,
    groups: bool,
    up_to: str,
    throttle: int | None,
    fetchers: int,
    command_config: Path | None,
    until_caught_up: bool,
    metrics_file: Path | None,
    metrics_at: HttpPort | None,
    overrides: Mapping[str, str],
    output: str,
) -> None:
    """Keep an exact copy of topics of any Kafka cluster, until interrupted.

    The copy has the source's batches, byte for byte, at their offsets and in their leader epochs.
    Killed at any moment it goes on where its log ends. `understudy up --data-dir DIR -n 1` serves
    it read-only; `understudy promote DIR` makes a cluster of its own of it.
    """
    options = MirrorOptions(
        topics=topics,
        patterns=patterns,
        groups=groups,
        up_to=UP_TO[up_to],
        bytes_per_second=throttle,
        fetchers_per_leader=fetchers,
        properties=dict(overrides),
    )
    config = ClientConfig.from_properties(source_properties(servers, command_config))
    from replication.cli.follow.running import follow

    caught_up = follow(
        config,
        options,
        str(directory.resolve()),
        until_caught_up=until_caught_up,
        metrics_file=metrics_file,
        metrics_at=metrics_at,
        output=output,
    )
    sys.exit(0 if caught_up or not until_caught_up else 1)


def source_properties(servers: str, command_config: Path | None) -> dict[str, str]:
    """How a source is connected to, and how often it is asked."""
    own = {"client.id": "understudy-follow", "metadata.max.age.ms": METADATA_MAX_AGE_MS}
    return own | properties_of(command_config, {}) | {"bootstrap.servers": servers}
