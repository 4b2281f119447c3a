"""The state of a group: its members, its generation, its leader and its protocol.

                    a member joins                all have joined, or the time is up
         Empty ────────────────────> Preparing ─────────────────────> Completing
           ^                          Rebalance <──────────────┐       Rebalance
           └── no members left ──────────┘  ^   a member joins └───────────┤
                                            └─── or leaves, ─── Stable <───┘ the leader's
                                                 or expires                  assignment is stored
         any ── unloaded or deleted ──> Dead

Rule 1: one of the members is the leader, if there are members.

Rule 2: the members vote on a protocol that all of them know; each votes for the first of its own
protocols that all know.

Rule 3: this module knows no time but the one that is written with the group: the beginning of its
state, by the wall clock.

(Kafka: ClassicGroup, ClassicGroupState.)
"""

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import attrs

from replication.errors import ProtocolError
from replication.groups.rules.records import GroupMetadataMember, GroupMetadataValue
from replication.wire.codec import decode_versioned, version_of
from replication.wire.consumer_protocol import PROTOCOL_TYPE, Subscription
from storage.attributes import define
from storage.batch.record_batch import NO_TIMESTAMP


class GroupState(enum.Enum):
    """The states of a group; the values are the words in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_COMES_FROM: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class Protocol(NamedTuple):
    """A way to assign partitions, and the member's metadata for it."""

    name: str
    metadata: bytes


@define(eq=False, kw_only=True)
class Member:
    """One member; `join_ticket` and `sync_ticket` name its requests that wait for an answer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has not been answered since it was added."""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    deadline_ms: int | None = None
    """The end of its session; None while it waits for an answer."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def awaits_answer(self) -> bool:
        """Whether it cannot send heartbeats, since its connection waits for an answer."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    @property
    def protocol_names(self) -> list[str]:
        return [each.name for each in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for `protocol`."""
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of its protocols that is among `candidates`."""
        wanted = set(candidates)
        return next(each.name for each in self.protocols if each.name in wanted)

    def renew_session(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms


@define(eq=False)
class Group:
    """The state of one group; members are in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int | None = None
    """The beginning of the state, by the wall clock; None in older records."""
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader_id: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    subscribed: frozenset[str] | None = None
    """The topics that its members read; None where that is not known."""
    _static: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, group_id: str, value: GroupMetadataValue) -> "Group":
        """Return the group of a record; without members it is empty, else stable."""
        since = value.current_state_timestamp
        group = cls(
            group_id,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            state_since_ms=None if since == NO_TIMESTAMP else since,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            generation=value.generation,
            leader_id=value.leader,
        )
        for each in value.members:
            group.add(_member(value, each))
        group.note_subscriptions()
        return group

    def value(self) -> GroupMetadataValue:
        """Return the value of the group's record."""
        since = self.state_since_ms
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=NO_TIMESTAMP if since is None else since,
            members=[self._written(member) for member in self.members.values()],
        )

    def _written(self, member: Member) -> GroupMetadataMember:
        assert self.protocol_name is not None, "members have agreed on a protocol"
        return GroupMetadataMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(self.protocol_name),
            assignment=member.assignment,
        )

    # Properties.

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def has_all_joined(self) -> bool:
        return all(member.awaits_join for member in self.members.values())

    @property
    def awaiting(self) -> int:
        """The number of members that wait for the next generation."""
        return sum(member.awaits_join for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member may take to join again."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Return the id of the member that now has this instance id."""
        return self._static.get(group_instance_id)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group reads the topic, or may read it because that is not known."""
        return self.subscribed is None or topic in self.subscribed

    # Protocols.

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Return whether a member with these protocols may join the present members."""
        names = {each.name for each in protocols}
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        if self.protocol_type != protocol_type:
            return False
        return not self.members or not names.isdisjoint(self._known_to_all())

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; the one that was voted for first wins a tie."""
        assert self.members, "an empty group has no votes"
        candidates = self._known_to_all()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def _known_to_all(self) -> set[str]:
        return set.intersection(*(set(each.protocol_names) for each in self.members.values()))

    def note_subscriptions(self) -> None:
        """Note the topics that the members read, as they say for the protocol of the group."""
        self.subscribed = self._subscriptions()

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.is_consumers:
            return None
        name, topics = self.protocol_name, frozenset[str]()
        for member in self.members.values():
            asked = None if name is None else subscribed_topics(member.metadata(name))
            if asked is None:
                return None
            topics |= asked
        return topics

    # Changing.

    def transition(self, state: GroupState, *, wall_ms: int) -> None:
        assert self.state in _COMES_FROM[state], f"{self.state.value} does not become {state.value}"
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, "a member is added once"
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static, "a static member is replaced"
            self._static[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member another member id, and keep its place in the order."""
        member = self.members[old_id]
        assert member.group_instance_id is not None, "only a static member is replaced"
        self.members = {
            new_id if each == old_id else each: kept for each, kept in self.members.items()
        }
        member.member_id = new_id
        self._static[member.group_instance_id] = new_id
        if self.is_leader(old_id):
            self.leader_id = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined again the leader; return False where there is none."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or not leader.awaits_join:
            back = (each.member_id for each in self.members.values() if each.awaits_join)
            found = next(back, None)
            if found is None:
                return False
            self.leader_id = found
        return True

    def begin_generation(self, *, wall_ms: int) -> None:
        """Begin the next generation, with the present members."""
        self.generation += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, wall_ms=wall_ms)
        else:
            self.protocol_name = None
            self.transition(GroupState.EMPTY, wall_ms=wall_ms)
        self.note_subscriptions()


def _member(value: GroupMetadataValue, written: GroupMetadataMember) -> Member:
    assert value.protocol is not None, "members have agreed on a protocol"
    return Member(
        member_id=written.member_id,
        group_instance_id=written.group_instance_id,
        client_id=written.client_id,
        client_host=written.client_host,
        rebalance_timeout_ms=written.rebalance_timeout,
        session_timeout_ms=written.session_timeout,
        protocol_type=value.protocol_type,
        protocols=(Protocol(value.protocol, written.subscription),),
        assignment=written.assignment,
    )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription; None where the bytes are none.

    The coordinator hands these bytes on. It reads the topics so that the offsets of a topic that
    is being read neither expire nor are deleted (KIP-211, KIP-496).
    """
    try:
        if version_of(metadata) < 0:
            return None
        return frozenset(decode_versioned(Subscription, metadata, version=0).topics)
    except ProtocolError:
        return None
