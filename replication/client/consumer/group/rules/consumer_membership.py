"""A member of a consumer group (KIP-848): what its next heartbeat says, and what a response means.

                        ┌───────────── the subscription ─────────────┐
                        v                                            │
    JOINING ── epoch ──> STABLE <── nothing more to take ── ACKNOWLEDGING   OUT
       ^                  │                                     ^    │
       │                  └── another target ──> RECONCILING ───┘    └── more to take ──> RECONCILING
       │                                          revoke, assign
       └── its partitions are given up ── LOST <── fenced, unknown, or no poll for too long

Rule 1: a heartbeat says what has changed since the last one that was answered. A member that joins,
or whose last heartbeat got no answer, says everything: its subscription and its partitions.

Rule 2: the coordinator moves a member by its target. What the member says that it owns is what the
program has: a revoked partition is left out only after the program has given it up.

Rule 3: a member that was fenced is LOST until the program has given everything up. Only then it
joins again, with epoch 0 and the same id.

Rule 4: a response counts for the heartbeat that waits for it. One that comes after the member has
left, or was fenced, changes nothing.

(Kafka: ConsumerMembershipManager, ConsumerHeartbeatRequestManager.)
"""

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

from replication.wire.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from replication.wire.join_group import NO_GENERATION
from storage.attributes import define, frozen
from storage.types import TopicId

OwnedPartitions: TypeAlias = Mapping[TopicId, frozenset[int]]

_NO_PARTITIONS: Final[OwnedPartitions] = {}


class ConsumerMembershipState(enum.Enum):
    """The states of the picture above; FATAL is OUT for good, by an error of the coordinator."""

    OUT = "out"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    LOST = "lost"
    FATAL = "fatal"


_IN_GROUP = frozenset(
    {
        ConsumerMembershipState.RECONCILING,
        ConsumerMembershipState.ACKNOWLEDGING,
        ConsumerMembershipState.STABLE,
    }
)


@frozen(kw_only=True)
class _Said:
    """The fields of a heartbeat that are left out while they do not change."""

    topics: frozenset[str]
    pattern: str
    revision: int


@define(eq=False, kw_only=True)
class ConsumerMembership:
    """The state of one member; times are in milliseconds of any one clock."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    state: ConsumerMembershipState = ConsumerMembershipState.OUT
    member_epoch: int = JOIN_EPOCH
    target: OwnedPartitions = _NO_PARTITIONS
    """The partitions that the coordinator assigns to the member."""
    owned: OwnedPartitions = _NO_PARTITIONS
    """The partitions that the program has, as the next heartbeat names them."""
    failures: int = 0
    """The number of heartbeats in a row that got no useful answer."""
    topics: frozenset[str] = frozenset()
    _pattern: str | None = None
    _revision: int = 0
    _said: _Said | None = None
    _has_said_pattern: bool = False
    _waiting: ConsumerGroupHeartbeatRequest | None = None
    _is_urgent: bool = False
    _due_ms: float = 0.0
    _may_hold_instance_id: bool = False
    _last_epoch: int = NO_GENERATION

    @property
    def generation_id(self) -> int:
        """The epoch under which offsets are committed; -1 outside the group."""
        return self.member_epoch if self.may_commit else NO_GENERATION

    @property
    def last_joined(self) -> tuple[int, str]:
        """The last member epoch and the member id, also once the group goes on without it."""
        return self._last_epoch, self.member_id

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator knows this member by its epoch."""
        return self.state in _IN_GROUP

    @property
    def is_named_in_fetches(self) -> bool:
        """Whether OffsetFetch names this member, so that the coordinator checks its epoch."""
        return self.may_commit

    @property
    def is_lost(self) -> bool:
        """Whether the partitions may belong to others already."""
        return not self.may_commit and self.state is not ConsumerMembershipState.JOINING

    @property
    def due_ms(self) -> float | None:
        """The time of the next heartbeat; None while none is to be sent."""
        sends = self.may_commit or self.state is ConsumerMembershipState.JOINING
        if not sends or self._waiting is not None:
            return None
        return 0 if self._is_urgent else self._due_ms

    @property
    def may_hold_instance_id(self) -> bool:
        """Whether the coordinator may know the instance id by an earlier join of this member.

        Kafka's coordinator refuses a static member that joins once more (UNRELEASED_INSTANCE_ID)
        until the session of its earlier join has expired.
        """
        return self._may_hold_instance_id

    # -- what the program does

    def subscribe(self, topics: frozenset[str], pattern: str | None) -> None:
        """Read these topics, and those that `pattern` matches on the brokers; join if outside."""
        if (topics, pattern) != (self.topics, self._pattern):
            self.topics, self._pattern = topics, pattern
            self._is_urgent = True
        if self.state is ConsumerMembershipState.OUT:
            self._join()

    def gave_up(self) -> None:
        """Join again: the program has given up the partitions that were lost."""
        assert self.state is ConsumerMembershipState.LOST, "only what was lost is given up"
        self._join()

    def reconciled(self, owned: OwnedPartitions) -> None:
        """Note that the program has these partitions now, and say so at once.

        It is ignored by a member that is not reconciling any more: what it has is lost.
        """
        if self.state is ConsumerMembershipState.RECONCILING:
            self.owned, self._revision = owned, self._revision + 1
            self.state, self._is_urgent = ConsumerMembershipState.ACKNOWLEDGING, True

    def request_rejoin(self, reason: str) -> None:
        """Send a heartbeat at once: the coordinator alone decides about another assignment."""
        del reason
        self._is_urgent = True

    def leave(self, *, stays_out: bool = True) -> ConsumerGroupHeartbeatRequest | None:
        """Leave, and return the request that says so; None if the group does not have the member.

        A member with an instance id says that it will come back. One that does not stay out, as its
        program has not polled for too long, joins again once its partitions are given up.
        """
        was_in = self.may_commit or self.state is ConsumerMembershipState.JOINING
        is_static = self.group_instance_id is not None
        self._reset(ConsumerMembershipState.OUT if stays_out else ConsumerMembershipState.LOST)
        if not was_in:
            return None
        self._may_hold_instance_id = False
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self.group_instance_id,
        )

    # -- what the coordinator says

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat."""
        assert self.due_ms is not None, "a heartbeat is sent while one is due, one at a time"
        joins = self.state is ConsumerMembershipState.JOINING
        said = None if joins else self._said
        self._has_said_pattern |= self._pattern is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self.group_instance_id,
            rack_id=self.rack_id if joins else None,
            rebalance_timeout_ms=self.rebalance_timeout_ms if said is None else UNCHANGED,
            server_assignor=self.server_assignor if said is None else None,
        )
        if said is None or said.topics != self.topics:
            request.subscribed_topic_names = sorted(self.topics)
        pattern = self._pattern or ""
        # A member that never had a pattern can ask brokers that know none.
        if self._has_said_pattern and (said is None or said.pattern != pattern):
            request.subscribed_topic_regex = pattern
        if said is None or said.revision != self._revision:
            request.topic_partitions = [
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(self.owned.items())
            ]
        self._said = _Said(topics=self.topics, pattern=pattern, revision=self._revision)
        self._waiting, self._is_urgent = request, False
        if self.state is ConsumerMembershipState.ACKNOWLEDGING:
            self._settle()
        return request

    def on_response(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        now_ms: float,
    ) -> None:
        """Take the response to `request`, which has no error."""
        if request is not self._waiting:
            return
        self._waiting, self.failures, self._may_hold_instance_id = None, 0, False
        self._due_ms = now_ms + response.heartbeat_interval_ms
        self.member_id = response.member_id or self.member_id
        self.member_epoch = self._last_epoch = response.member_epoch
        if response.assignment is not None:
            self.target = {
                each.topic_id: frozenset(each.partitions)
                for each in response.assignment.topic_partitions
                if each.partitions
            }
        if response.assignment is not None or self.state is ConsumerMembershipState.JOINING:
            self._settle()

    def on_failure(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: float, retry_ms: float
    ) -> None:
        """Say everything again after `retry_ms`: the coordinator may have `request`, or not."""
        if request is self._waiting:
            self._waiting, self._said, self._is_urgent = None, None, False
            self.failures += 1
            self._due_ms = now_ms + retry_ms
            self._may_hold_instance_id |= request.member_epoch == JOIN_EPOCH

    def reset(self, reason: str, *, keep_member_id: bool = True) -> None:
        """Note that the group goes on without this member."""
        del reason, keep_member_id
        if self.may_commit or self.state is ConsumerMembershipState.JOINING:
            self._reset(ConsumerMembershipState.LOST)
            self._may_hold_instance_id = True

    def fail(self) -> None:
        """Stay out: no heartbeat would help."""
        self._reset(ConsumerMembershipState.FATAL)

    def _join(self) -> None:
        self._reset(ConsumerMembershipState.JOINING)

    def _reset(self, state: ConsumerMembershipState) -> None:
        self.state, self.member_epoch = state, JOIN_EPOCH
        self.target = self.owned = _NO_PARTITIONS
        self._waiting = self._said = None
        self._is_urgent, self.failures = True, 0

    def _settle(self) -> None:
        """Reconcile if the target is another one than what the program has."""
        self.state = (
            ConsumerMembershipState.STABLE
            if self.owned == self.target
            else ConsumerMembershipState.RECONCILING
        )
