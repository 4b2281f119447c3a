"""`understudy follow`: keep an exact copy of a cluster's topics while it runs."""

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
"""The default interval for finding new topics; a consumer has five minutes."""
UP_TO = {"lso": UpTo.LAST_STABLE, "hw": UpTo.HIGH_WATERMARK}


@click.command(name="follow")
@server_option(about="Brokers of the cluster to follow.")
@click.option(
    "--to", "directory", required=True, type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the copy; an existing copy is continued.",
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="A topic to follow; may be repeated.")
@click.option(
    "--topics-matching", "patterns", multiple=True, metavar="PATTERN",
    help="Follow all topics whose whole name matches, also future ones, but no internal ones.",
)  # fmt: skip
@click.option(
    "--groups", is_flag=True, help="Follow the offsets of consumer groups too (__consumer_offsets)."
)
@click.option(
    "--up-to", type=click.Choice(list(UP_TO)), default="lso", show_default=True,
    help="lso: up to the first open transaction. hw: up to the high watermark.",
)  # fmt: skip
@click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES", help="The most bytes a second."
)
@click.option(
    "--fetchers", type=click.IntRange(min=1), default=1, show_default=True,
    help="The number of connections to each broker.",
)  # fmt: skip
@click.option(
    "--command-config", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of Kafka client properties: TLS, SASL, timeouts, ...",
)  # fmt: skip
@click.option("--until-caught-up", is_flag=True, help="End when the copy has caught up.")
@click.option(
    "--metrics", "metrics_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write all metrics to this file twice a second, under Kafka's names.",
)  # fmt: skip
@click.option(
    "--metrics-port", "metrics_at", type=HttpPortType(), metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus at this port; 0 takes any port.",
)  # fmt: skip
@click.option(
    "-X", "overrides", multiple=True, callback=key_values, metavar="KEY=VALUE",
    help="Set a configuration key of the broker that keeps the copy.",
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

    The copy has the batches of the source, byte for byte, at their offsets and in their leader
    epochs. After a kill it continues where its log ends. `understudy up --data-dir DIR -n 1`
    serves it read-only; `understudy promote DIR` turns it into a cluster of its own.
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
    """Return the client properties for the source."""
    own = {"client.id": "understudy-follow", "metadata.max.age.ms": METADATA_MAX_AGE_MS}
    return own | properties_of(command_config, {}) | {"bootstrap.servers": servers}
