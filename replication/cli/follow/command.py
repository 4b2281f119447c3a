"""`understudy follow`: an exact copy of a cluster's topics, for as long as it runs."""

import sys
from pathlib import Path

import click

from replication.cli.served import HttpPort, HttpPortType
from replication.client.config import ClientConfig
from replication.config import parse_properties
from replication.errors import ConfigError
from replication.mirror.options import MirrorOptions, UpTo

METADATA_MAX_AGE_MS = "10000"
"""How soon new topics are found, where nothing else is said; a consumer's five minutes are long."""
UP_TO = {"lso": UpTo.LAST_STABLE, "hw": UpTo.HIGH_WATERMARK}


@click.command(name="follow")
@click.option(
    "--bootstrap-server", "servers", default="localhost:9092", show_default=True,
    metavar="HOST:PORT", help="Brokers of the cluster to follow, parted by commas.",
)  # fmt: skip
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
    "-X", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of the broker that keeps it."
)
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
    overrides: tuple[str, ...],
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
        properties=dict(_key_and_value(each) for each in overrides),
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
    )
    sys.exit(0 if caught_up or not until_caught_up else 1)


def source_properties(servers: str, command_config: Path | None) -> dict[str, str]:
    """How a source is connected to, and how often it is asked."""
    given = {"client.id": "understudy-follow", "metadata.max.age.ms": METADATA_MAX_AGE_MS}
    if command_config is not None:
        given |= parse_properties(command_config.read_text(encoding="utf-8"))
    return given | {"bootstrap.servers": servers}


def _key_and_value(override: str) -> tuple[str, str]:
    key, separator, value = override.partition("=")
    if not separator:
        raise ConfigError(f"-X {override}: expected KEY=VALUE")
    return key.strip(), value.strip()
