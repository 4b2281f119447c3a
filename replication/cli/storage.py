"""`understudy storage`: the directories of a node before its first start, as in kafka-storage.sh.

    format         write meta.properties, and a controller's first checkpoint, into each directory
    info           show what the directories say; exit code 1 if there is something wrong
    random-uuid    print an id for a cluster or a directory

`understudy up` formats new directories by the keys of its configuration, and a node that starts
in one signs it; this command is for what the keys do not say: a cluster id that is agreed on, dynamic
voters (KIP-853), feature levels, and the first users.
"""

import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from replication.cli import CommandGroup
from replication.cli.broker import properties_text
from replication.cli.options import FILE, hide_in_arguments
from replication.cli.output import show_line
from replication.config import BrokerConfig, parse_properties
from replication.controller.directory import default_format
from replication.controller.rules.scram import first_credentials
from replication.errors import FormatError
from replication.metadata.formatter import NodeFormat, format_directories, new_directory_id
from replication.metadata.rules.formatting import (
    asked_levels,
    feature_levels,
    initial_voters,
    voter,
)
from replication.raft.rules.voters import VoterSet
from replication.security.rules.scram import SALT_BYTES
from storage.checkpoint import (
    MetaProperties,
    read_meta_properties,
    uuid_bytes,
)
from storage.errors import CheckpointError
from storage.filesystem import OsFileSystem

_CONFIG = click.option(
    "-c", "--config", "properties", required=True, type=FILE, help="The node's server.properties."
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Format the directories of a node, or show what they say."""


@command.command(name="random-uuid")
def print_random_uuid() -> None:
    """Print a random id, as for a cluster or a directory."""
    show_line(new_directory_id(secrets.token_bytes))


@command.command(name="format")
@_CONFIG
@click.option("-t", "--cluster-id", required=True, help="The id of the cluster.")
@click.option(
    "-S",
    "--add-scram",
    multiple=True,
    metavar="MECHANISM=[...]",
    help="A user of the new cluster: SCRAM-SHA-256=[name=alice,password=secret], or with salt and"
    " saltedpassword.",
)
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Skip directories that are formatted already."
)
@click.option(
    "-r",
    "--release-version",
    metavar="RELEASE",
    help="The release whose feature levels are the defaults, such as 4.0 or 4.4-IV2.",
)
@click.option(
    "-f",
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="The level of one feature, such as group.version=0.",
)
@click.option("-s", "--standalone", is_flag=True, help="This controller is the only first voter.")
@click.option(
    "-N",
    "--no-initial-controllers",
    is_flag=True,
    help="The voters are not known yet; this controller is to be added to them.",
)
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The first voters, the same for all nodes.",
)
def format_command(
    *,
    properties: Path,
    cluster_id: str,
    add_scram: Sequence[str],
    ignore_formatted: bool,
    release_version: str | None,
    features: Sequence[str],
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
) -> None:
    """Format the directories of a node.

    Each of log.dirs and metadata.log.dir gets its meta.properties; the metadata directory of a
    controller also gets the records of the new cluster. What does not fit is refused before anything
    is written.
    """
    hide_in_arguments([*add_scram])
    config = _config(properties)
    if not cluster_id.isprintable() or not cluster_id.strip():
        raise FormatError(
            "--cluster-id must be an id, such as `understudy storage random-uuid` prints"
        )
    if sum((standalone, no_initial_controllers, initial_controllers is not None)) > 1:
        raise click.UsageError(
            "only one of --standalone, --no-initial-controllers and --initial-controllers is allowed"
        )
    voters = _voters(
        config,
        standalone=standalone,
        is_unknown=no_initial_controllers,
        initial_controllers=initial_controllers,
    )
    salts = iter(lambda: secrets.token_bytes(SALT_BYTES), b"")
    wanted = NodeFormat(
        cluster_id=cluster_id,
        node_id=config.node_id,
        directories=_directories(config),
        metadata_directory=config.metadata_directory,
        is_controller=config.is_controller,
        levels=feature_levels(
            asked_levels(features),
            release=release_version,
            is_dynamic=not config.controller_quorum_voters,
        ),
        credentials=first_credentials(add_scram, salts),
        voters=voters,
    )
    for line in format_directories(
        OsFileSystem(),
        wanted,
        random_bytes=secrets.token_bytes,
        wall_ms=int(time.time() * 1000),
        ignore_formatted=ignore_formatted,
    ):
        show_line(line)


def _voters(
    config: BrokerConfig,
    *,
    standalone: bool,
    is_unknown: bool,
    initial_controllers: str | None,
) -> VoterSet | None:
    """Return the first voters that the options name; FormatError where they contradict the keys."""
    listener = config.controller_listener_names[0].upper()
    if config.controller_quorum_voters and (standalone or initial_controllers is not None):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with"
            " --initial-controllers or --standalone. If you want to use dynamic quorum, please remove"
            " controller.quorum.voters and specify controller.quorum.bootstrap.servers instead."
        )
    if initial_controllers is not None:
        return initial_voters(initial_controllers, listener=listener)
    if standalone:
        if not config.is_controller:
            raise FormatError("You can only use --standalone on a controller.")
        if not config.controller_listeners:
            raise FormatError("No controller listeners found.")
        own = config.controller_listeners[0]
        directory_id = uuid_bytes(new_directory_id(secrets.token_bytes))
        return VoterSet(
            (voter(config.node_id, directory_id, listener, own.host or "localhost", own.port),)
        )
    if config.is_controller and not config.controller_quorum_voters and not is_unknown:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of"
            " the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return None


def format_new_directories(configs: Iterable[BrokerConfig]) -> None:
    """Format those directories of the nodes that are not formatted yet, by the configuration alone.

    Raise FormatError where one belongs to another node or cluster.
    """
    for config in configs:
        assert config.cluster_id is not None, "all nodes are of one cluster"
        format_directories(
            OsFileSystem(),
            default_format(config, config.cluster_id),
            random_bytes=secrets.token_bytes,
            wall_ms=int(time.time() * 1000),
            ignore_formatted=True,
        )


@command.command(name="info")
@_CONFIG
def info(*, properties: Path) -> None:
    """Show what the directories of a node say; exit code 1 if there is something wrong."""
    config = _config(properties)
    present, known, problems = [], [], []
    for directory in sorted(set(_directories(config))):
        path = Path(directory)
        if not path.is_dir():
            missing = "is not a directory" if path.exists() else "does not exist"
            problems.append(f"{directory} {missing}")
            continue
        present.append(directory)
        try:
            properties_found = read_meta_properties(OsFileSystem(), directory)
        except CheckpointError as error:
            problems.append(f"Error loading {error}")
            continue
        if properties_found is None:
            problems.append(f"{directory} is not formatted.")
        else:
            known.append(properties_found)
    problems += _mismatches(known)
    _show_list("Found log directory:", "Found log directories:", present)
    if known:
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(known[0].values.items()))
        show_line(f"Found metadata: {{{pairs}}}")
        show_line("")
    _show_list("Found problem:", "Found problems:", problems)
    sys.exit(1 if problems else 0)


def _mismatches(known: Sequence[MetaProperties]) -> Iterator[str]:
    for each in known[1:]:
        if each.cluster_id != known[0].cluster_id:
            yield "Mismatched cluster IDs between storage directories."
        elif each.node_id != known[0].node_id:
            yield "Mismatched node IDs between storage directories."


def _show_list(one: str, several: str, lines: Sequence[str]) -> None:
    if lines:
        show_line(one if len(lines) == 1 else several)
        for line in lines:
            show_line(f"  {line}")
        show_line("")


def _config(properties: Path) -> BrokerConfig:
    return BrokerConfig.from_properties(parse_properties(properties_text(properties)))


def _directories(config: BrokerConfig) -> list[str]:
    """Return the directories of the node; a controller alone uses only that of its metadata log."""
    return [*config.log_dirs, config.metadata_directory]
