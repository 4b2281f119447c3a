"""The voters of the metadata log, and how the log has changed them (KIP-853).

A voter set stands in the log as a VotersRecord, and the level of the feature `kraft.version` as a
KRaftVersionRecord. At level 0 there is no VotersRecord: the voters are those of
`controller.quorum.voters`, without directory ids.

    log       -1 (bootstrap)   100             200                end
    voters    {1, 2, 3}        {1, 2, 3, 4}    {1, 3, 4}

Rule 1: a set counts from the moment at which its record is in the log, committed or not. A
truncation takes it back.

Rule 2: a leader adds or removes one voter at a time: then a majority before the change and one after
it have a voter in common. If one voter took the place of another they would not: {1, 2} of
{1, 2, 3} and {3, 4} of {2, 3, 4}. (Kafka's VoterSet.hasOverlappingMajority says of these that they
would.)

Rule 3: what lies below the start of the log is forgotten, except the newest of it, which counts at
the start. What a snapshot holds counts at the last offset of the snapshot; that of a bootstrap
snapshot is -1.
(Kafka: VoterSet, VoterSetHistory, KRaftControlRecordStateMachine.)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

import attrs

from replication.raft.rules.types import NO_ENDPOINTS, Endpoints, ListenerAddress, ReplicaKey
from replication.wire.control_records import (
    ControlRecord,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VoterEndpoint,
    VotersRecord,
    VotersRecordVoter,
)
from storage.attributes import frozen
from storage.types import Offset

RECONFIGURABLE: Final = 1
"""The level of `kraft.version` from which on the voters stand in the log and can be changed."""
STATIC_ONLY: Final = KRaftVersionFeature(min_supported_version=0, max_supported_version=0)
"""The levels of a voter of which only the configuration is known."""
SUPPORTED: Final = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
"""The levels of `kraft.version` that this program supports."""
BOOTSTRAP_OFFSET: Final = -1
"""The last offset of a bootstrap snapshot, which holds no records of the log."""


@frozen
class VoterNode:
    """One voter, where it is reached, and the levels of `kraft.version` that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = NO_ENDPOINTS
    kraft_versions: KRaftVersionFeature = STATIC_ONLY

    def supports(self, kraft_version: int) -> bool:
        """Return whether the voter supports this level of `kraft.version`."""
        supported = self.kraft_versions
        return supported.min_supported_version <= kraft_version <= supported.max_supported_version


def _in_order(nodes: Iterable[VoterNode]) -> tuple[VoterNode, ...]:
    return tuple(sorted(nodes, key=lambda node: node.key))


@frozen
class VoterSet:
    """The voters in the order of their ids, each id once; none where they are not known yet."""

    nodes: tuple[VoterNode, ...] = attrs.field(default=(), converter=_in_order)

    @property
    def ids(self) -> frozenset[int]:
        """The node ids of the voters."""
        return frozenset(node.key.id for node in self.nodes)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The names of the voters."""
        return frozenset(node.key for node in self.nodes)

    @property
    def majority(self) -> int:
        """The number of voters that can commit a record, or elect a leader."""
        return len(self.nodes) // 2 + 1

    def node(self, voter_id: int) -> VoterNode | None:
        """Return the voter with this id, None if there is none."""
        for node in self.nodes:
            if node.key.id == voter_id:
                return node
        return None

    def is_voter(self, replica: ReplicaKey) -> bool:
        """Return whether this replica, with this directory, is one of the voters."""
        node = self.node(replica.id)
        return node is not None and node.key.matches(replica)

    def endpoints(self, voter_id: int) -> Endpoints:
        """Return where a voter is reached; nowhere if it is not a voter."""
        node = self.node(voter_id)
        return NO_ENDPOINTS if node is None else node.endpoints

    def lacking(self, kraft_version: int) -> list[int]:
        """Return the ids of the voters that do not support this level of `kraft.version`."""
        return [node.key.id for node in self.nodes if not node.supports(kraft_version)]

    def needs_update(self, node: VoterNode) -> bool:
        """Return whether `node` is a voter of which the set says something else."""
        known = self.node(node.key.id)
        return known is not None and known.key.matches(node.key) and known != node

    def with_voter(self, node: VoterNode) -> "VoterSet | None":
        """Return the set with one voter more; None if there is a voter with its id."""
        return None if node.key.id in self.ids else VoterSet((*self.nodes, node))

    def without_voter(self, voter: ReplicaKey) -> "VoterSet | None":
        """Return the set without this voter; None if it is no voter, or the only one."""
        left = tuple(node for node in self.nodes if node.key != voter)
        return VoterSet(left) if 0 < len(left) < len(self.nodes) else None

    def with_update(self, node: VoterNode) -> "VoterSet | None":
        """Return the set with what `node` says of itself; None if it is no voter."""
        return self.with_named(node) if self.is_voter(node.key) else None

    def with_named(self, node: VoterNode) -> "VoterSet | None":
        """Return the same where only the ids are compared: the set gets its directory id."""
        if node.key.id not in self.ids:
            return None
        return VoterSet((*(each for each in self.nodes if each.key.id != node.key.id), node))

    def has_overlapping_majority(self, other: "VoterSet") -> bool:
        """Return whether each majority of one set has a voter in common with each of the other.

        If so, neither can commit what contradicts what the other has committed.
        """
        common = self.keys & other.keys
        # The fewest of the common voters that a majority of each set can do with.
        fewest = [voters.majority - len(voters.keys - common) for voters in (self, other)]
        return min(fewest) > 0 and sum(fewest) > len(common)

    def to_record(self) -> VotersRecord:
        """Return the record of this set."""
        return VotersRecord(
            voters=[
                VotersRecordVoter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=to_wire(node.endpoints),
                    kraft_version_feature=node.kraft_versions,
                )
                for node in self.nodes
            ]
        )


NO_VOTERS: Final = VoterSet()


def voters_of_record(record: VotersRecord) -> VoterSet:
    """Return the set that stands in the log."""
    voters = {
        voter.voter_id: VoterNode(
            key=ReplicaKey(voter.voter_id, voter.voter_directory_id),
            endpoints=from_wire(voter.endpoints),
            kraft_versions=voter.kraft_version_feature,
        )
        for voter in record.voters
    }
    return VoterSet(tuple(voters.values()))


def static_voters(listener: str, addresses: Mapping[int, tuple[str, int]]) -> VoterSet:
    """Return the voters of `controller.quorum.voters`: host and port by id, on this listener."""
    return VoterSet(
        tuple(
            VoterNode(
                key=ReplicaKey(voter_id),
                endpoints=Endpoints((ListenerAddress(listener, host, port),)),
            )
            for voter_id, (host, port) in addresses.items()
        )
    )


def to_wire(endpoints: Endpoints) -> list[VoterEndpoint]:
    """Return endpoints as records and requests carry them."""
    return [
        VoterEndpoint(name=each.listener, host=each.host, port=each.port)
        for each in endpoints.addresses
    ]


def from_wire(endpoints: Iterable[VoterEndpoint]) -> Endpoints:
    """Return the endpoints of a record or request; the last one of a listener counts."""
    by_listener = {each.name: each for each in endpoints}
    return Endpoints(
        tuple(ListenerAddress(each.name, each.host, each.port) for each in by_listener.values())
    )


# --- what the log says ---------------------------------------------------------------------

T = TypeVar("T")


@frozen
class LogHistory(Generic[T]):
    """The values that records of the log have set, each with its offset, which only grows."""

    offsets: tuple[Offset, ...] = ()
    values: tuple[T, ...] = ()

    def added(self, offset: Offset, value: T) -> "LogHistory[T]":
        """Return the history with a value at an offset above all others."""
        assert offset >= BOOTSTRAP_OFFSET, "only a bootstrap snapshot lies before the log"
        assert not self.offsets or offset > self.offsets[-1], "a log is read in its order"
        return LogHistory((*self.offsets, offset), (*self.values, value))

    def at(self, offset: Offset) -> T | None:
        """Return the value that counts at `offset`, None if none has been set until there."""
        after = bisect_right(self.offsets, offset)
        return self.values[after - 1] if after else None

    @property
    def last(self) -> T | None:
        return self.values[-1] if self.values else None

    @property
    def last_offset(self) -> Offset | None:
        return self.offsets[-1] if self.offsets else None

    def truncated(self, end_offset: Offset) -> "LogHistory[T]":
        """Return the history of a log that ends at `end_offset`."""
        kept = bisect_left(self.offsets, end_offset)
        return LogHistory(self.offsets[:kept], self.values[:kept])

    def trimmed(self, offset: Offset) -> "LogHistory[T]":
        """Return what counts at `offset`, and the history after it.

        Where a log goes on behind a snapshot, `offset` is the last one of the snapshot: a record at
        the beginning of the log may still be truncated, and what it replaced counts again.
        """
        first = max(0, bisect_right(self.offsets, offset) - 1)
        return LogHistory(self.offsets[first:], self.values[first:])


@frozen(kw_only=True)
class VoterSetHistory:
    """The voter sets and the levels of `kraft.version` of a log, and the voters before the first.

    `static` are those of the configuration. They count as long as the log names none.
    """

    static: VoterSet = NO_VOTERS
    sets: LogHistory[VoterSet] = LogHistory()
    versions: LogHistory[int] = LogHistory()

    @property
    def voters(self) -> VoterSet:
        """The newest voter set."""
        return self.static if self.sets.last is None else self.sets.last

    @property
    def voters_offset(self) -> Offset | None:
        """The offset of the newest voter set, None for that of the configuration."""
        return self.sets.last_offset

    @property
    def kraft_version(self) -> int:
        """The newest level of `kraft.version`."""
        return self.versions.last or 0

    def voters_at(self, offset: Offset) -> VoterSet | None:
        """Return the voter set that the log had at `offset`, None if it had none."""
        return self.sets.at(offset)

    def kraft_version_at(self, offset: Offset) -> int:
        """Return the level of `kraft.version` that the log had at `offset`."""
        return self.versions.at(offset) or 0

    def after(self, record: ControlRecord, offset: Offset) -> "VoterSetHistory":
        """Return the history after a control record, which may be one that does not matter here.

        For a record of a snapshot, `offset` is the last one that the snapshot contains.
        """
        match record:
            case VotersRecord():
                return attrs.evolve(self, sets=self.sets.added(offset, voters_of_record(record)))
            case KRaftVersionRecord(kraft_version=level):
                return attrs.evolve(self, versions=self.versions.added(offset, level))
            case _:
                return self

    def truncated(self, end_offset: Offset) -> "VoterSetHistory":
        """Return the history after the log was truncated to `end_offset`."""
        return attrs.evolve(
            self,
            sets=self.sets.truncated(end_offset),
            versions=self.versions.truncated(end_offset),
        )

    def trimmed(self, offset: Offset) -> "VoterSetHistory":
        """Return the history from `offset` on, the last one of a snapshot."""
        return attrs.evolve(
            self,
            sets=self.sets.trimmed(offset),
            versions=self.versions.trimmed(offset),
        )

    def cleared(self) -> "VoterSetHistory":
        """Return the history of an empty log, for a snapshot that takes the place of the log."""
        return VoterSetHistory(static=self.static)
