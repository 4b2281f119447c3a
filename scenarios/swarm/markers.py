"""The situations that a run has reached: they have names, and are counted from its events.

Random runs prove nothing about situations that they never reach. `make swarm` counts in how many
runs each of these was reached, and fails while one was reached in none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import attrs

from replication.events import (
    BecameFollower,
    BecameLeader,
    BrokerFenced,
    BrokerRegistered,
    BrokerStarted,
    DuplicateRecognised,
    Event,
    FetchRefused,
    FetchSessionEvicted,
    FetchSessionOpened,
    GroupProtocolChanged,
    GroupsLoaded,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrChangeProposed,
    IsrChangeRefused,
    LeaderElected,
    LogCleaned,
    LogDirectoryFailed,
    LogRecovered,
    LogRepaired,
    LogTruncated,
    PartitionFailed,
    PartitionOffline,
    PartitionStopped,
    SegmentsDeleted,
)
from replication.verify.directories import IGNORED_TOPICS
from scenarios.world.client import BatchAnswered, RottenBatchGiven
from scenarios.world.cluster import CONTROLLER
from scenarios.world.trace import (
    BitFlipped,
    CutUndone,
    DiskLies,
    DiskReplaced,
    GroupPartitionsMoved,
    LateBytes,
    MessageTorn,
    NodeKilled,
    NodeStarted,
    NodeStopped,
    PowerCut,
    ReadFromFollower,
    StaticMemberReturned,
    TopicMadeAgain,
    TraceEntry,
)
from storage.types import LeaderEpoch, TopicPartition

MARKERS = (
    "an eligible replica was elected",
    "the last known leader was elected",
    "an election was unclean",
    "nobody could lead",
    "elected while an ISR expansion was pending",
    "the controller died while an ISR change was pending",
    "an ISR change was refused",
    "the ISR shrank to one",
    "a leader that lived was deposed",
    "a fetch was fenced by its leader epoch",
    "a log was cut where it diverged",
    "a log began anew, out of range",
    "a log was recovered with a cut",
    "refused with NOT_ENOUGH_REPLICAS",
    "a broker died before it was up",
    "a log directory failed",
    "a disk was replaced",
    "segments were deleted",
    "a session was evicted",
    "a follower's session was evicted",
    "a follower's session was evicted while it caught up",
    "a fetch came before its leader knew the epoch",
    "a fetch came to a broker that did not lead",
    "the high watermark moved on while an ISR expansion was pending",
    "a duplicate was recognised by its sequence",
    "a message broke off",
    "bytes came late, of a connection before",
    "a log was compacted while a replica was behind",
    "a replica was taken away",
    "refused with NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "a cut was undone, as it had not been synced",
    "a disk that lied lost its power",
    "a log was found to lack what had been synced",
    "a follower was sent a damaged batch",
    "a consumer was sent a damaged batch",
    "a log was cut at damaged bytes",
    "a topic was made again",
    "a topic was made again while a broker was down",
    "a consumer of ours read from a follower",
    "a member of a consumer group gave up some partitions and read on",
    "a member of a consumer group was fenced, or its session expired",
    "a static member of a consumer group came back",
    "a group coordinator took over during a reconciliation",
    "a classic group became a consumer group, and kept its members",
    "a consumer group became a classic one, and kept its members",
    "another controller decides",
    "a controller that lived decides no more",
)
SELDOM = ("a log was cut in two rounds",)
"""Markers that are counted, and that no swarm has to reach."""

_BROKER = re.compile(r"b\d+")
_CONTROLLER = re.compile(r"c\d*")
_REFUSAL = re.compile(r"\bNOT_ENOUGH_REPLICAS\w*")
_BY_EVENT: Mapping[type[Event], str] = {
    CutUndone: "a cut was undone, as it had not been synced",
    DiskReplaced: "a disk was replaced",
    DuplicateRecognised: "a duplicate was recognised by its sequence",
    LateBytes: "bytes came late, of a connection before",
    LogDirectoryFailed: "a log directory failed",
    MessageTorn: "a message broke off",
    PartitionOffline: "nobody could lead",
    ReadFromFollower: "a consumer of ours read from a follower",
    RottenBatchGiven: "a consumer was sent a damaged batch",
}
_REFUSED = {
    "UNKNOWN_LEADER_EPOCH": "a fetch came before its leader knew the epoch",
    "NOT_LEADER_OR_FOLLOWER": "a fetch came to a broker that did not lead",
    "CORRUPT_MESSAGE": "a follower was sent a damaged batch",
}
_ELECTIONS = {
    "eligible": "an eligible replica was elected",
    "last known": "the last known leader was elected",
    "unclean": "an election was unclean",
}


def markers_of(entries: Iterable[TraceEntry]) -> Counter[str]:
    """Return how often each marker was reached, without those that never were."""
    reading = _Reading()
    found = Counter(marker for entry in entries for marker in reading.markers(entry))
    assert set(found) <= {*MARKERS, *SELDOM}, "every marker is in one of the lists"
    return found


@attrs.define
class _Reading:
    """The facts of the events so far that later events need."""

    _proposed: dict[TopicPartition, bool] = attrs.field(factory=dict)  # whether a replica joins
    _leads: dict[tuple[str, TopicPartition], LeaderEpoch] = attrs.field(factory=dict)
    _behind: set[TopicPartition] = attrs.field(factory=set)  # the ISR has shrunk last
    _cut: dict[tuple[str, TopicPartition], LogTruncated] = attrs.field(factory=dict)
    _starting: set[str] = attrs.field(factory=set)
    _followers_sessions: set[tuple[str, int]] = attrs.field(factory=set)
    _liars: set[str] = attrs.field(factory=set)
    _rotten: set[tuple[str, TopicPartition]] = attrs.field(factory=set)
    _down: set[str] = attrs.field(factory=set)
    _reconciling: set[str] = attrs.field(factory=set)
    _deciding: str = CONTROLLER  # that has reported a decision last

    def markers(self, entry: TraceEntry) -> Iterator[str]:
        if type(entry.event) in _BY_EVENT:
            yield _BY_EVENT[type(entry.event)]
        yield from self._in_one_event(entry.event)
        yield from self._in_the_quorum(entry.node, entry.event)
        yield from self._in_the_isr(entry.event)
        yield from self._on_a_node(entry.event)
        yield from self._on_a_replica(entry.node, entry.event)
        yield from self._in_a_session(entry.node, entry.event)
        yield from self._on_a_disk(entry.node, entry.event)
        yield from self._in_a_topic(entry.event)
        yield from self._in_a_group(entry.event)

    def _in_one_event(self, event: Event) -> Iterator[str]:
        match event:
            case LeaderElected(cause=cause) if cause in _ELECTIONS:
                yield _ELECTIONS[cause]
            case PartitionFailed(cause=cause) if cause.startswith("fenced"):
                yield "a fetch was fenced by its leader epoch"
            case BatchAnswered(answer=answer) if found := _REFUSAL.search(answer):
                yield f"refused with {found[0]}"
            case LogRecovered(truncated_bytes=cut) if cut > 0:
                yield "a log was recovered with a cut"
            case LogCleaned(partition=partition) if partition in self._behind:
                yield "a log was compacted while a replica was behind"
            case SegmentsDeleted(partition=partition) if partition.topic not in IGNORED_TOPICS:
                yield "segments were deleted"
            case PartitionStopped(deleted=True):
                yield "a replica was taken away"
            case FetchRefused(error=error) if error in _REFUSED:
                yield _REFUSED[error]
            case _:
                pass

    def _in_the_isr(self, event: Event) -> Iterator[str]:
        match event:
            case IsrChangeProposed(partition=partition, joining=joining):
                self._proposed[partition] = bool(joining)
            case HighWatermarkAdvanced(partition=partition) if self._proposed.get(partition):
                yield "the high watermark moved on while an ISR expansion was pending"
            case IsrChangeRefused(partition=partition):
                self._proposed.pop(partition, None)
                yield "an ISR change was refused"
            case IsrChanged(partition=partition, isr=isr, previous_isr=previous):
                self._proposed.pop(partition, None)
                if len(isr) < len(previous):
                    self._behind.add(partition)
                else:
                    self._behind.discard(partition)
                if len(isr) == 1 < len(previous):
                    yield "the ISR shrank to one"
            case LeaderElected(partition=partition) if self._proposed.pop(partition, False):
                yield "elected while an ISR expansion was pending"
            case NodeKilled(node=name) | PowerCut(node=name) if name == self._deciding:
                if self._proposed:
                    yield "the controller died while an ISR change was pending"
                self._proposed.clear()
            case _:
                pass

    def _in_the_quorum(self, node: str, event: Event) -> Iterator[str]:
        """Yield the markers of several controllers, of which the one that decides reports."""
        match event:
            case IsrChanged() | LeaderElected() | BrokerFenced() | BrokerRegistered():
                if _CONTROLLER.fullmatch(node):
                    if self._deciding not in (CONTROLLER, node):
                        yield "another controller decides"
                        if self._deciding not in self._down:
                            yield "a controller that lived decides no more"
                    self._deciding = node
            case _:
                pass

    def _on_a_node(self, event: Event) -> Iterator[str]:
        match event:
            case NodeStarted(node=name) if _BROKER.fullmatch(name):
                self._starting.add(name)
            case BrokerStarted(broker=broker_id):
                self._starting.discard(f"b{broker_id}")
            case NodeKilled(node=name) | PowerCut(node=name) | NodeStopped(node=name):
                if name in self._starting:
                    yield "a broker died before it was up"
                self._starting.discard(name)
                self._leads = {at: each for at, each in self._leads.items() if at[0] != name}
                self._cut = {at: each for at, each in self._cut.items() if at[0] != name}
            case _:
                pass

    def _on_a_replica(self, node: str, event: Event) -> Iterator[str]:
        match event:
            case BecameLeader(partition=partition, leader_epoch=leader_epoch):
                self._leads[node, partition] = leader_epoch
            case BecameFollower(partition=partition):
                if self._leads.pop((node, partition), None) is not None:
                    yield "a leader that lived was deposed"
            case LogTruncated(from_offset=end, to_offset=start) if start > end:
                yield "a log began anew, out of range"
            case LogTruncated(partition=partition):
                yield "a log was cut where it diverged"
                if _goes_on(self._cut.get((node, partition)), event):
                    yield "a log was cut in two rounds"
                self._cut[node, partition] = event
            case _:
                pass

    def _on_a_disk(self, node: str, event: Event) -> Iterator[str]:
        match event:
            case DiskLies(node=name):
                self._liars.add(name)
            case PowerCut(node=name) if name in self._liars:
                yield "a disk that lied lost its power"
            case LogRepaired(cause=cause) if "had been synced up to" in cause:
                yield "a log was found to lack what had been synced"
            case BitFlipped(node=name, partition=partition):
                self._rotten.add((name, partition))
            case LogRecovered(partition=partition, truncated_bytes=cut) if cut > 0:
                if (node, partition) in self._rotten:
                    yield "a log was cut at damaged bytes"
            case _:
                pass

    def _in_a_topic(self, event: Event) -> Iterator[str]:
        match event:
            case NodeKilled(node=name) | PowerCut(node=name) | NodeStopped(node=name):
                self._down.add(name)
            case NodeStarted(node=name):
                self._down.discard(name)
            case TopicMadeAgain():
                yield "a topic was made again"
                if self._down:
                    yield "a topic was made again while a broker was down"
            case _:
                pass

    def _in_a_group(self, event: Event) -> Iterator[str]:
        """Yield the markers of consumer groups.

        A reconciliation is under way from the first member that gives partitions up, until one
        takes them.
        """
        match event:
            case GroupPartitionsMoved(member=member, how="revoked", left=left):
                self._reconciling.add(member)
                if left:
                    yield "a member of a consumer group gave up some partitions and read on"
            case GroupPartitionsMoved(how="lost"):
                yield "a member of a consumer group was fenced, or its session expired"
            case GroupPartitionsMoved(how="assigned"):
                self._reconciling.clear()
            case StaticMemberReturned():
                yield "a static member of a consumer group came back"
            case GroupsLoaded() if self._reconciling:
                yield "a group coordinator took over during a reconciliation"
            case GroupProtocolChanged(protocol="consumer"):
                yield "a classic group became a consumer group, and kept its members"
            case GroupProtocolChanged(protocol="classic"):
                yield "a consumer group became a classic one, and kept its members"
            case _:
                pass

    def _in_a_session(self, node: str, event: Event) -> Iterator[str]:
        match event:
            case FetchSessionOpened(session_id=session_id, privileged=True):
                self._followers_sessions.add((node, session_id))
            case FetchSessionEvicted(session_id=session_id, behind=behind):
                yield "a session was evicted"
                if (node, session_id) in self._followers_sessions:
                    yield "a follower's session was evicted"
                    if behind:
                        yield "a follower's session was evicted while it caught up"
            case _:
                pass


def _goes_on(before: LogTruncated | None, cut: LogTruncated) -> bool:
    """Return whether one divergence took two truncations: nothing was appended in between."""
    return (
        before is not None
        and before.leader_epoch == cut.leader_epoch
        and before.to_offset == cut.from_offset
    )
