"""What happened in a simulation, and a hash of it by which two runs are compared.

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
    """Its process is gone; its disk has lost nothing."""

    name: ClassVar[str] = "node_killed"
    node: str


@attrs.frozen(kw_only=True)
class NodeStopped(Event):
    """Its process has come to its own end."""

    name: ClassVar[str] = "node_stopped"
    node: str


@attrs.frozen(kw_only=True)
class PowerCut(Event):
    """Its machine is gone, with what was not synced; peers hear no goodbye."""

    name: ClassVar[str] = "power_cut"
    node: str


@attrs.frozen(kw_only=True)
class CutUndone(Event):
    """With its power: what was cut from one of its logs, and what the cut was not synced of, is
    there again.
    """

    name: ClassVar[str] = "cut_undone"
    node: str


@attrs.frozen(kw_only=True)
class DiskReplaced(Event):
    """Another disk, or an older copy, takes the place of its own: what came since is gone."""

    name: ClassVar[str] = "disk_replaced"
    node: str


@attrs.frozen(kw_only=True)
class DiskLies(Event):
    """From now on it says that it has synced, and has not."""

    name: ClassVar[str] = "disk_lies"
    node: str


@attrs.frozen(kw_only=True)
class BitFlipped(Event):
    """Of the batch that holds `offset`, in one replica."""

    name: ClassVar[str] = "bit_flipped"
    node: str
    partition: TopicPartition
    offset: Offset


@attrs.frozen(kw_only=True)
class TopicMadeAgain(Event):
    """Under the name of one that is no more, and every broker that runs knows."""

    name: ClassVar[str] = "topic_made_again"
    topic: str


@attrs.frozen(kw_only=True)
class ReadFromFollower(Event):
    """A consumer of ours was handed records by the replica nearest to it, which does not lead."""

    name: ClassVar[str] = "read_from_follower"
    partition: TopicPartition
    replica: int


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
    """Only where that API is asked for."""

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
class ConnectionsReset(Event):
    name: ClassVar[str] = "connections_reset"
    nodes: tuple[str, str]
    connections: int


@attrs.frozen(kw_only=True)
class MessageTorn(Event):
    """A connection ended in the middle of a message."""

    name: ClassVar[str] = "message_torn"
    source: str
    target: str


@attrs.frozen(kw_only=True)
class LateBytes(Event):
    """Bytes of a connection that its sender has closed, after it made another one."""

    name: ClassVar[str] = "late_bytes"
    source: str
    target: str


@attrs.frozen
class TraceEntry:
    """Who reported what, and when in virtual seconds."""

    at: float
    node: str
    event: Event

    def __str__(self) -> str:
        fields = attrs.asdict(self.event, recurse=False)
        facts = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{self.at:.6f} {self.node:4} {self.event.name} {facts}"


@attrs.define
class Trace:
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
