"""The events of a simulation, and a hash of them by which two runs are compared.

    0.000000 b1   broker_registered broker=1 broker_epoch=5
    0.104312 b2   became_follower partition=t-0 leader=1 ...
    2.500000 sim  node_killed node=b1

Entries are the events that the nodes report and the faults that the simulator deals out.
The hash also covers every byte that was received, and when: two runs that report the same
events over different traffic have differed.
"""

import hashlib
from typing import ClassVar

import attrs
import crc32c

from replication.events import Event
from replication.observe.journal import encode_entry
from storage.types import Offset, TopicPartition

SIMULATOR = "sim"


@attrs.frozen(kw_only=True)
class NodeStarted(Event):
    name: ClassVar[str] = "node_started"
    node: str
    incarnation: int


@attrs.frozen(kw_only=True)
class NodeKilled(Event):
    """A process was killed; its disk has lost nothing."""

    name: ClassVar[str] = "node_killed"
    node: str


@attrs.frozen(kw_only=True)
class NodeStopped(Event):
    """A process has ended by itself."""

    name: ClassVar[str] = "node_stopped"
    node: str


@attrs.frozen(kw_only=True)
class PowerCut(Event):
    """A machine has lost its power, with what was not synced; peers hear no goodbye."""

    name: ClassVar[str] = "power_cut"
    node: str


@attrs.frozen(kw_only=True)
class CutUndone(Event):
    """A power cut has undone a truncation: what was truncated from a log, without a sync, is there
    again.
    """

    name: ClassVar[str] = "cut_undone"
    node: str


@attrs.frozen(kw_only=True)
class DiskReplaced(Event):
    """A disk was replaced by another, or by an older copy: what came since is gone."""

    name: ClassVar[str] = "disk_replaced"
    node: str


@attrs.frozen(kw_only=True)
class DiskLies(Event):
    """A disk claims from now on to have synced, and has not."""

    name: ClassVar[str] = "disk_lies"
    node: str


@attrs.frozen(kw_only=True)
class BitFlipped(Event):
    """A bit has flipped in the batch that holds `offset`, in one replica."""

    name: ClassVar[str] = "bit_flipped"
    node: str
    partition: TopicPartition
    offset: Offset


@attrs.frozen(kw_only=True)
class WriteMisdirected(Event):
    """The next write to a log lands elsewhere on the platter, which shows once the power was cut."""

    name: ClassVar[str] = "write_misdirected"
    node: str
    partition: TopicPartition


@attrs.frozen(kw_only=True)
class FileRotted(Event):
    """A bit of an index or a checkpoint has flipped, of which no record may be lost."""

    name: ClassVar[str] = "file_rotted"
    node: str
    path: str


@attrs.frozen(kw_only=True)
class TopicMadeAgain(Event):
    """A topic was created under the name of a deleted one, and every running broker knows it."""

    name: ClassVar[str] = "topic_made_again"
    topic: str


@attrs.frozen(kw_only=True)
class ReadFromFollower(Event):
    """A consumer of ours received records from a follower near it."""

    name: ClassVar[str] = "read_from_follower"
    partition: TopicPartition
    replica: int


@attrs.frozen(kw_only=True)
class GroupPartitionsMoved(Event):
    """A member of a consumer group (KIP-848) took partitions, gave them up, or has lost them."""

    name: ClassVar[str] = "group_partitions_moved"
    member: str
    how: str
    partitions: int  # the number of partitions that moved
    left: int  # the number that the member has now


@attrs.frozen(kw_only=True)
class StaticMemberReturned(Event):
    """A member of a consumer group took partitions in a second life under its instance id."""

    name: ClassVar[str] = "static_member_returned"
    member: str


@attrs.frozen(kw_only=True)
class NodePaused(Event):
    name: ClassVar[str] = "node_paused"
    node: str


@attrs.frozen(kw_only=True)
class NodeResumed(Event):
    name: ClassVar[str] = "node_resumed"
    node: str


@attrs.frozen(kw_only=True)
class LinkCut(Event):
    name: ClassVar[str] = "link_cut"
    source: str
    target: str


@attrs.frozen(kw_only=True)
class LinkHeld(Event):
    """The connections with requests of one API are held up."""

    name: ClassVar[str] = "link_held"
    source: str
    target: str
    api: str


@attrs.frozen(kw_only=True)
class LinkHealed(Event):
    name: ClassVar[str] = "link_healed"
    source: str
    target: str


@attrs.frozen(kw_only=True)
class MessageTorn(Event):
    """A connection ended in the middle of a message."""

    name: ClassVar[str] = "message_torn"
    source: str
    target: str


@attrs.frozen(kw_only=True)
class LateBytes(Event):
    """Bytes arrived on a connection that its sender has closed, after it made another one."""

    name: ClassVar[str] = "late_bytes"
    source: str
    target: str


SIMULATED_FAULTS = frozenset({NodeKilled, NodeStopped, PowerCut, NodePaused, LinkCut, LinkHeld})


@attrs.frozen
class TraceEntry:
    """An event, the node that reported it, and when in virtual seconds."""

    at: float
    node: str
    event: Event

    def __str__(self) -> str:
        fields = attrs.asdict(self.event, recurse=False)
        facts = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{self.at:.6f} {self.node:4} {self.event.name} {facts}"


@attrs.define
class SimulationTrace:
    """The entries so far, and the hash over them and the traffic."""

    entries: list[TraceEntry] = attrs.field(factory=list)
    received_bytes: int = 0
    _hash: "hashlib._Hash" = attrs.field(factory=hashlib.sha256)

    def record(self, event: Event, *, at: float, node: str) -> None:
        self.entries.append(TraceEntry(at, node, event))
        self._hash.update(f"{at!r} {node} ".encode())
        self._hash.update(encode_entry(event, at_ms=0, broker=0))

    def received(self, data: memoryview, *, at: float, source: str, target: str) -> None:
        self.received_bytes += len(data)
        checksum = crc32c.crc32c(data)
        self._hash.update(f"{at!r} {source}>{target} {len(data)} {checksum}\n".encode())

    def hash(self) -> str:
        return self._hash.hexdigest()

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))
