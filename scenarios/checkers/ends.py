"""The invariants of the end, once every node is up, connected and idle.

converged   the replicas in sync have all records, know that these are committed, and have the
            same leader epochs
tidy        a log directory contains the logs that are hosted there and those being deleted, and a
            partition's directory contains the files of its segments
answered    no request waits past its timeout
left over   as much is in use as when the cluster had just come up

These files may stay: the next version of a small file, which is being written (`.tmp`,
`.prepared`), what a cleaner is writing (`.cleaned`, `.swap`, in a compacted log),
files and directories that wait for `file.delete.delay.ms` (`.deleted`, `-delete`), the log of a
deleted topic (`-stray`, KAFKA-15605), and bytes that recovery has set aside (`corrupt.`).

Nothing is left over where these hold:

    tasks         of every kind as many as at first; besides, one for each connection that is
                  served, and one for each fetcher
    fetchers      one for each leader and fetcher id by which a broker follows partitions
    connections   a broker has one for each fetcher, and a few more. A broker serves no connection
                  that the other end has closed; if the other end has lost its power, the broker
                  serves it until it has been idle for too long, as in Kafka
    waiting       one fetch for each fetcher; a purgatory watches no partition without a request

Fetch sessions are not counted: the session of a follower that is gone stays until its slot is
needed (KIP-227).
"""

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from replication.broker.broker import Broker
from replication.cluster.interface import NotInTimeError
from replication.follower.fetcher_manager import fetcher_id_for
from replication.metadata.rules.records import METADATA_PARTITION
from scenarios.checkers.epochs import drawn, from_start
from scenarios.checkers.observed import OnlineReplica, Wrong
from scenarios.world.cluster import SimulatedCluster, node_id_of
from scenarios.world.endless import all_tasks
from storage.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    COMPACTION_GAP_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
)
from storage.manager.checkpoint_plan import PREPARED_SUFFIX
from storage.types import Offset

CONVERGED = "all replicas in sync hold the same records in the end"
TIDY = "no unneeded file is left on a disk"
ANSWERED = "every request is answered in the end"

_IN_A_LOG_DIRECTORY = {
    ".lock",
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
}
_IN_A_PARTITION = {COMPACTION_GAP_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}
_CLEANING = (".cleaned", ".swap")
TMP_SUFFIX = ".tmp"
_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")


def converged(members: Sequence[OnlineReplica], *, compacted: bool = False) -> Iterator[Wrong]:
    """Check that the replicas in sync agree.

    Their logs may begin at different offsets for ever (retention); in a compacted log the records
    of each epoch may differ too.
    """
    if not members:
        return
    first = members[0]
    start = max(each.log_start for each in members)
    for each in members:
        if each.log_end != first.log_end or each.high_watermark != first.log_end:
            yield Wrong(
                CONVERGED,
                f"{each.where} has committed {each.high_watermark} of {each.log_end}, and"
                f" {first.node} has {first.log_end}",
            )
        if not compacted and _epochs(each, start) != _epochs(first, start):
            yield Wrong(
                CONVERGED,
                f"{each.where} has epochs {drawn(_epochs(each, start))}, {first.node}"
                f" {drawn(_epochs(first, start))}",
            )


def _epochs(replica: OnlineReplica, start: Offset) -> list[EpochEntry]:
    """Return the epochs that have records. An epoch without any is only in its leader's cache, and
    one whose batch was cut off stays known where it was cut.
    """
    if start == replica.log_end:
        return []  # no epoch has records
    known = [each for each in replica.epochs if each not in replica.emptied]
    written = [each for each in known if each.start_offset < replica.log_end]
    return from_start(written, start)


def tidy_directory(node: str, names: Collection[str], hosted: Collection[str]) -> Iterator[Wrong]:
    """Check the names in a log directory; `hosted` are those of the logs that are online there."""
    for name in sorted(set(names) - set(hosted)):
        set_aside = name.startswith("corrupt.") or name.endswith(("-delete", "-stray"))
        if _whose(name) not in _IN_A_LOG_DIRECTORY and not set_aside:
            yield Wrong(TIDY, f"{node} has {name} in its log directory")


def _whose(name: str) -> str:
    """Return the file of which this is the next version, being written when its broker died."""
    return name.removesuffix(TMP_SUFFIX).removesuffix(PREPARED_SUFFIX)


def tidy_log(
    where: str,
    names: Collection[str],
    *,
    segments: Collection[Offset],
    log_end: Offset,
    compacted: bool = False,
) -> Iterator[Wrong]:
    """Check the files of a partition; in a `compacted` log a cleaner may be at work."""
    for name in sorted(names):
        if _whose(name) in _IN_A_PARTITION or (compacted and name.endswith(_CLEANING)):
            continue
        segment, snapshot = _SEGMENT_FILE.fullmatch(name), _SNAPSHOT.fullmatch(name)
        if segment and int(segment[1]) in segments:
            continue
        if snapshot and int(snapshot[1]) <= log_end:
            continue
        if not name.endswith(".deleted") and not name.startswith("corrupt."):
            yield Wrong(TIDY, f"{where} has {name}, and segments at {sorted(segments)}")


def answered(node: str, waiting: dict[str, int]) -> Iterator[Wrong]:
    """Check that no request waits; `waiting` counts them by kind once every timeout has passed."""
    for kind, count in waiting.items():
        if count:
            yield Wrong(ANSWERED, f"at {node} {count} wait: {kind}")


# The facts, read from brokers and disks.


async def until_answered(cluster: SimulatedCluster) -> None:
    """Wait until no Produce or DeleteRecords request waits, or the time limit has passed."""

    def is_answered() -> bool:
        return not any(sum(waiting(each).values()) for each in cluster.brokers.values())

    with contextlib.suppress(NotInTimeError):
        await cluster.until(is_answered, what="every request is answered")


def waiting(broker: Broker) -> dict[str, int]:
    manager = broker.replica_manager
    return {
        "Produce": manager.purgatories.produce.waiting,
        "DeleteRecords": manager.purgatories.delete_records.waiting,
    }


def tidy(cluster: SimulatedCluster, name: str, broker: Broker) -> Iterator[Wrong]:
    disk, online = cluster.disk(name), broker.replica_manager.hosted.online
    hosted = {str(each) for each in (*online, METADATA_PARTITION)}
    for path in broker.config.log_dirs:
        names = disk.list_directory(path)
        yield from tidy_directory(name, names, hosted)
    for partition, replica in online.items():
        yield from tidy_log(
            f"{partition} on {name}",
            disk.list_directory(replica.log.directory),
            segments=replica.log.segments.base_offsets,
            log_end=replica.log.log_end_offset,
            compacted=replica.log.config.is_compacted,
        )


LEFT_OVER = "what a fault has begun ends with the fault"
OURS = "replication."
SERVING = "replication.server.server.Server._serve_connection"
FETCHING = "ReplicaFetcherThread"
# To the controller: heartbeats, metadata, changes of ISRs, what clients ask of it, and which log
# directory a replica is in.
BESIDE_FETCHERS = 5


@attrs.frozen(kw_only=True)
class BrokerResources:
    """The resources that one broker holds."""

    node: str
    fetchers: int
    """The number of fetchers that the broker needs."""
    connections: int
    """The connections that the broker has opened and not closed."""
    served: int
    voters: int = 0
    """The voters among which it is one, of a node with both roles. It has a connection to each of
    the others, and one from which it fetches the metadata log.
    """
    deserted: int = 0
    """The connections that the broker serves although the other end has closed them."""
    watches: int = 0
    """The partitions that purgatories watch for Produce and DeleteRecords; no request waits."""


@attrs.frozen(kw_only=True)
class ClusterResources:
    """The resources that the cluster holds, at one moment."""

    tasks: Mapping[str, int]
    """The number of tasks of each kind."""
    brokers: Sequence[BrokerResources] = ()
    waiting_fetches: int = 0


def left_over(before: ClusterResources, after: ClusterResources) -> Iterator[Wrong]:
    """Check what is in use now against `before`, when the cluster had just come up."""
    for kind in sorted({*before.tasks, *after.tasks} - {SERVING, FETCHING}):
        was, now = before.tasks.get(kind, 0), after.tasks.get(kind, 0)
        if was != now:
            yield Wrong(LEFT_OVER, f"{now} tasks of {kind}, and there were {was}")
    fetchers = sum(each.fetchers for each in after.brokers)
    if (fetching := after.tasks.get(FETCHING, 0)) > fetchers:
        yield Wrong(LEFT_OVER, f"{fetching} tasks fetch, and {fetchers} have a leader to follow")
    if after.waiting_fetches > fetchers:
        yield Wrong(LEFT_OVER, f"{after.waiting_fetches} fetches wait, of {fetchers} fetchers")
    for each in after.brokers:
        yield from _of_one(each)


def _of_one(burden: BrokerResources) -> Iterator[Wrong]:
    if burden.connections > burden.fetchers + BESIDE_FETCHERS + burden.voters:
        yield Wrong(
            LEFT_OVER,
            f"{burden.node} has {burden.connections} connections open, and {burden.fetchers} fetchers",
        )
    if burden.deserted:
        yield Wrong(
            LEFT_OVER,
            f"{burden.node} serves {burden.deserted} of {burden.served} connections whose other"
            " end has closed them",
        )
    if burden.watches:
        yield Wrong(LEFT_OVER, f"{burden.node} has {burden.watches} watches, without a request")


# Taking it down.


def resources_in_use(cluster: SimulatedCluster) -> ClusterResources:
    managers = [broker.replica_manager for broker in cluster.brokers.values()]
    return ClusterResources(
        tasks=_tasks(),
        brokers=[_resources_of(cluster, *each) for each in cluster.brokers.items()],
        waiting_fetches=sum(each.purgatories.fetch.waiting for each in managers),
    )


def _tasks() -> Mapping[str, int]:
    found = Counter(task.name.partition("-")[0] for task in all_tasks())
    return {kind: count for kind, count in found.items() if kind.startswith((OURS, FETCHING))}


def _resources_of(cluster: SimulatedCluster, name: str, broker: Broker) -> BrokerResources:
    manager, ends = broker.replica_manager, cluster.world.network.open_ends(name)
    config = cluster.nodes.configs[node_id_of(name)]
    # As it was altered last: a request that the network held up may have come after the next one.
    count = manager.config.current.num_replica_fetchers
    followed = {
        (replica.leader, fetcher_id_for(partition, count))
        for partition, replica in manager.hosted.online.items()
        if not replica.is_leader and manager.roles.fetchers.followed_by(partition)
    }
    served = [end for end in ends if not end.asks]
    return BrokerResources(
        node=name,
        fetchers=len(followed),
        connections=len(ends) - len(served),
        served=len(served),
        voters=len(cluster.controller_names) if config.is_controller else 0,
        deserted=sum(end.incoming.end is not None for end in served),
        watches=manager.purgatories.produce.watched + manager.purgatories.delete_records.watched,
    )
