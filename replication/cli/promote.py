"""A copy as a cluster: read-only under `understudy up`, of its own after `understudy promote`."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from replication.broker.adoption import AdoptedTopic, adopt
from replication.cli.follow import source_properties
from replication.cli.options import client_arguments, client_config_option
from replication.cli.output import (
    EXECUTE,
    JSON,
    OUTPUT,
    show_json,
    show_line,
    show_table,
    tell,
    tell_unless_executed,
)
from replication.cli.progress import Bar, progress
from replication.errors import UnderstudyError
from replication.mirror.options import NODE_ID
from replication.mirror.promotion import (
    KEPT,
    GroupAhead,
    PromotedPartition,
    abort_open_transactions,
    configs_of,
    groups_ahead,
    next_producer_id,
    promoted_partitions,
)
from replication.mirror.state import (
    CONTROLLER_DIRECTORY,
    LOG_DIRECTORY,
    STATE_FILE,
    CopyState,
    MirrorError,
    read_state,
    write_state,
)
from replication.net import production_seams
from replication.net.raising import raising_only_one
from storage.filesystem import OsFileSystem
from storage.manager.log_manager import LogManager
from storage.tools.standalone import open_log_directory
from storage.types import Offset, TopicPartition

SOURCE_TIMEOUT_MS = 5000
REPEAT_SECONDS = 0.2
ASKING = "asking the source"
HEADINGS = ("PARTITION", "COPIED-TO", "SOURCE-END", "NOT-COPIED", "EPOCH", "NEW-EPOCH", "OPEN-TXNS")


def state_of(directory: str) -> CopyState:
    """Return the state of a copy; raise MirrorError if there is none or it is promoted."""
    state = read_state(OsFileSystem(), directory)
    if state is None:
        raise MirrorError(f"{directory} is not a copy: it has no {STATE_FILE}")
    if state.promoted:
        raise MirrorError(f"{directory} is already promoted")
    return state


def prepare(directory: str) -> tuple[bool, dict[str, str]]:
    """Prepare a copy to be served; return whether it is read-only, and its configuration keys."""
    state = read_state(OsFileSystem(), directory)
    assert state is not None, "the caller has found a copy"
    if not state.promoted:
        topics = [
            AdoptedTopic(
                name=name,
                topic_id=topic.topic_id,
                configs=KEPT,
                leader_epochs={
                    number: max(0, each.leader_epoch) for number, each in topic.partitions.items()
                },
            )
            for name, topic in state.topics.items()
        ]
        _adopt(directory, state, topics)
    return not state.promoted, {"cluster.id": state.cluster_id}


def _adopt(
    directory: str, state: CopyState, topics: Sequence[AdoptedTopic], *, producer_id: int = 0
) -> None:
    """Write the metadata of a cluster that has `topics`."""
    write = partial(
        adopt,
        cluster_id=state.cluster_id,
        broker_id=NODE_ID,
        topics=topics,
        next_producer_id=producer_id,
    )
    trio.run(write, production_seams(), f"{directory}/{CONTROLLER_DIRECTORY}")


@click.command(name="promote")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@EXECUTE
@click.option(
    "-b", "--bootstrap-server", "servers", metavar="HOST:PORT",
    help="The brokers of the source.  [default: those that were followed]",
)  # fmt: skip
@click.option("--offline", is_flag=True, help="Do not ask the source where its logs end.")
@client_config_option(of=" for the source")
@OUTPUT
def command(
    directory: Path,
    *,
    execute: bool,
    servers: str | None,
    offline: bool,
    config_file: Path | None,
    output: str,
) -> None:
    """Turn the copy in DIRECTORY into a cluster of its own.

    Neither `follow` nor `up` may use it meanwhile. Afterwards its topics can be written to, in
    leader epochs above those of the source, and they keep the configuration of the source. The
    command shows what was not copied yet, according to the source now or at last contact.
    `understudy up --data-dir DIRECTORY` runs the cluster.
    """
    state = state_of(str(directory.resolve()))
    ends: Mapping[TopicPartition, Offset] = {}
    asked_when = f"as of {_when(state.heard_ms)}"
    with progress(ASKING) as bar:
        if not offline:
            source = source_properties(servers or state.bootstrap_servers, config_file)
            try:
                ends, asked_when = trio.run(_source_ends, source, state, bar), "just now"
            except UnderstudyError as error:
                asked_when += f"; it does not answer now ({error})"
        bar.say("opening logs")
        with open_log_directory(directory / LOG_DIRECTORY, on_loading=bar.update) as logs:
            found = list(promoted_partitions(state, logs, ends))
            ahead = list(groups_ahead(logs, lambda each: bar.say(f"reading {each}")))
            if execute:
                _promote(str(directory.resolve()), state, logs, found, bar)
            bar.say("closing logs")
    _show(found, ahead, state, asked_when, output)
    tell_unless_executed(execute=execute)


async def _source_ends(
    properties: Mapping[str, str], state: CopyState, bar: Bar
) -> dict[TopicPartition, Offset]:
    from replication.client.admin import Admin
    from replication.wire.list_offsets import LATEST

    given = client_arguments(properties) | {"default_api_timeout_ms": SOURCE_TIMEOUT_MS}
    ends: dict[TopicPartition, Offset] = {}
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_showing, bar)
            async with Admin(**given) as admin:
                listed = await admin.list_offsets(dict.fromkeys(state.partitions(), LATEST))
                ends = {partition: each.offset for partition, each in listed.items()}
            nursery.cancel_scope.cancel()
    return ends


async def _keep_showing(bar: Bar) -> None:
    """Update the bar while the source is slow to answer: it appears only on an update."""
    while True:
        bar.say(ASKING)
        await trio.sleep(REPEAT_SECONDS)


def _promote(
    directory: str,
    state: CopyState,
    logs: LogManager,
    found: Sequence[PromotedPartition],
    bar: Bar,
) -> None:
    bar.say("aborting open transactions")
    epochs = {each.topic_partition: each.new_epoch for each in found}
    for done, (partition, epoch) in enumerate(epochs.items()):
        bar.update(done, len(epochs))
        log = logs.get(partition)
        if log is not None and log.topic_id == state.topics[partition.topic].topic_id:
            abort_open_transactions(log, leader_epoch=epoch, wall_ms=time.time_ns() // 1_000_000)
    topics = []
    for name, topic in state.topics.items():
        configs, unknown = configs_of(topic)
        if unknown:
            tell(f"{name}: unknown configuration, left out: {', '.join(unknown)}")
        own = {number: epochs[TopicPartition(name, number)] for number in topic.partitions}
        topics.append(
            AdoptedTopic(name=name, topic_id=topic.topic_id, configs=configs, leader_epochs=own)
        )
    bar.say("writing the metadata")
    _adopt(directory, state, topics, producer_id=next_producer_id(logs))
    write_state(OsFileSystem(), directory, attrs.evolve(state, promoted=True))


def _when(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")


def _show(
    found: Sequence[PromotedPartition],
    ahead: Sequence[GroupAhead],
    state: CopyState,
    asked_when: str,
    output: str,
) -> None:
    if output == JSON:
        facts = [_facts(each) for each in found]
        values = {
            "cluster_id": state.cluster_id,
            "source_asked": asked_when,
            "partitions": facts,
            "groups_ahead": [str(each) for each in ahead],
        }
        show_json(values)
        return
    rows = [["?" if cell is None else cell for cell in _facts(each).values()] for each in found]
    show_table(HEADINGS, rows)
    missing = sum(each.not_copied or 0 for each in found)
    unknown = sum(each.not_copied is None for each in found)
    show_line(f"{missing} offsets of the source were not copied (source asked: {asked_when})")
    for each in ahead:
        show_line(str(each))
    if unknown:
        show_line(f"the ends of {unknown} partitions of the source are unknown")


def _facts(each: PromotedPartition) -> Mapping[str, object]:
    return {
        "partition": str(each.topic_partition),
        "copied_to": each.log_end_offset,
        "source_end": each.source_end,
        "not_copied": each.not_copied,
        "epoch": each.leader_epoch,
        "new_epoch": each.new_epoch,
        "open_transactions": each.open_transactions,
    }
