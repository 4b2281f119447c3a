"""The way into a group, and the task that keeps a member there.

Joining is one attempt to join the group's next generation: JoinGroup, assignments, SyncGroup.

    JoinGroup ──> follower ───────────────────────────────> SyncGroup ──> our partitions
              └─> leader: decode, assign to all members ────┘

Rule 1: an attempt ends in the group or outside it, never in between. Outside it,
`membership.rejoin_needed` says that another follows, after a back-off unless the group asked us
to come at once.

Rule 2: the leader assigns by its present metadata; it first requests topics that it does not
know, of all members.

Heartbeats keep the membership alive, whatever the program does:

    every heartbeat.interval.ms            Heartbeat, while joined
    no response for session.timeout.ms     the coordinator is away: it is searched for again
    no poll for max.poll.interval.ms       the program is stuck: leave, so that others go on.
                                           A static member falls silent instead (KIP-345)

(Kafka: AbstractCoordinator, its handlers of JoinGroup and SyncGroup; HeartbeatThread, Heartbeat;
ConsumerCoordinator.)
"""

import contextlib
import struct
from collections.abc import Callable, Mapping

import attrs
import trio

from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.assignors import ASSIGNORS, MemberSubscription
from replication.client.consumer.group.membership import (
    HEARTBEAT,
    JOIN,
    LEAVE_ATTEMPTS,
    SYNC,
    Membership,
    MemberState,
    act_upon,
)
from replication.client.consumer.subscription import SubscriptionState
from replication.client.coordinators import CoordinatorFinder
from replication.client.errors import KafkaTimeoutError
from replication.client.requests import ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError, ProtocolError
from replication.net.seams import NodeClock
from replication.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    StickyUserData,
    Subscription,
    by_topic,
    decode_assignment,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_sticky,
    encode_subscription,
    partitions_of,
)
from replication.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from replication.wire.leave_group import LeaveGroupRequest, LeavingMember
from replication.wire.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from storage.attributes import define, frozen
from storage.types import TopicPartition

# A broker answers a JoinGroup when all members have joined, or the rebalance time is up.
_JOIN_LEEWAY_MS = 5_000
_GENERATION = struct.Struct(">i")


@frozen(kw_only=True)
class Joined:
    """The result of an attempt that succeeded."""

    partitions: tuple[TopicPartition, ...]
    protocol_name: str
    topics_subscribed: frozenset[str]
    """The subscription when we joined; another set now means joining again."""
    counts: Mapping[str, int] | None
    """The partition counts by which we, the leader, assigned; None for a follower."""


@define(eq=False, kw_only=True)
class Joining:
    """The attempts of one member."""

    config: ConsumerConfig
    membership: Membership
    subscriptions: SubscriptionState
    finder: CoordinatorFinder
    last_joined: Callable[[], tuple[TopicPartition, ...]]
    """Returns the last assignment, for the eager sticky assignor."""

    async def attempt(self) -> Joined | None:
        """Join once; return None if it failed, and raise KafkaError if no attempt would succeed."""
        member = self.membership
        topics = self.subscriptions.topics
        request = self._join_request(topics)
        await self.finder.find()
        member.preparing()
        try:
            response: JoinGroupResponse = await self.finder.call(
                ask(request),
                timeout_ms=max(
                    self.config.request_timeout_ms,
                    self.config.max_poll_interval_ms + _JOIN_LEEWAY_MS,
                ),
            )
        except NO_ANSWER as error:
            member.failed(f"no answer to a join: {error}")
            return None
        if response.error_code != ErrorCode.NONE:
            self._not_joined(ErrorCode.of(response.error_code), response.member_id)
            return None
        if member.state is not MemberState.PREPARING:
            return None  # an earlier heartbeat or commit has put us out of the group meanwhile
        member.joined(
            generation_id=response.generation_id,
            member_id=response.member_id,
            protocol_name=response.protocol_name or "",
        )
        return await self._sync(response, topics)

    # -- joining

    def _join_request(self, topics: frozenset[str]) -> JoinGroupRequest:
        member = self.membership
        return JoinGroupRequest(
            group_id=member.group_id,
            session_timeout_ms=self.config.session_timeout_ms,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupProtocol(name=name, metadata=self._subscription(name, topics))
                for name in self.config.partition_assignment_strategy
            ],
            reason=member.rejoin_reason[:255],
        )

    def _subscription(self, strategy: str, topics: frozenset[str]) -> bytes:
        owned = self.subscriptions.assigned
        user_data = None
        if strategy == "sticky":
            # Eager members have given everything back by now, and name it here.
            had = StickyUserData(
                previous_assignment=by_topic(self.last_joined()),
                generation=self.membership.generation_id,
            )
            user_data = encode_sticky(had)
        elif strategy == "cooperative-sticky":
            # For members that read no subscription newer than version 1.
            user_data = _GENERATION.pack(self.membership.generation_id)
        return encode_subscription(
            Subscription(
                topics=sorted(topics),
                user_data=user_data,
                owned_partitions=by_topic(sorted(owned)),
                generation_id=self.membership.generation_id,
                rack_id=self.config.client_rack or None,
            )
        )

    def _not_joined(self, error: ErrorCode, given_id: str) -> None:
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.membership.given_id(given_id)
            return
        self.membership.failed(f"a join got {error.name}")
        act_upon(JOIN, error, self.membership, self.finder, request="join")

    # -- assigning

    async def _sync(self, joined: JoinGroupResponse, topics: frozenset[str]) -> Joined | None:
        member = self.membership
        counts: Mapping[str, int] | None = None
        assignments: list[SyncGroupAssignment] = []
        if joined.leader == joined.member_id:
            counts, assignments = await self._lead(joined)
        request = SyncGroupRequest(
            group_id=member.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=member.protocol_name,
            assignments=assignments,
        )
        try:
            response: SyncGroupResponse = await self.finder.call(ask(request))
        except NO_ANSWER as error:
            member.failed(f"no answer to a sync: {error}")
            return None
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            member.failed(f"a sync got {code.name}")
            act_upon(SYNC, code, member, self.finder, request="sync")
            return None
        if (member.state, member.generation_id) != (MemberState.COMPLETING, joined.generation_id):
            return None  # we are out of the group meanwhile; `rejoin_needed` says so
        return self._synced(response, topics, counts)

    def _synced(
        self,
        response: SyncGroupResponse,
        topics: frozenset[str],
        counts: Mapping[str, int] | None,
    ) -> Joined | None:
        try:
            given = decode_assignment(response.assignment) if response.assignment else Assignment()
        except ProtocolError as error:
            self.membership.failed(f"an assignment that cannot be read: {error}")
            return None
        self.membership.synced()
        return Joined(
            partitions=tuple(partitions_of(given.assigned_partitions)),
            protocol_name=self.membership.protocol_name,
            topics_subscribed=topics,
            counts=counts,
        )

    async def _lead(
        self, joined: JoinGroupResponse
    ) -> tuple[Mapping[str, int], list[SyncGroupAssignment]]:
        """Assign as the leader; return the partition counts and the assignment of each member."""
        members = {
            each.member_id: _member(each.metadata, each.group_instance_id, joined.protocol_name)
            for each in joined.members
        }
        wanted = frozenset(topic for member in members.values() for topic in member.topics)
        self.subscriptions.group_subscribe(wanted | self.subscriptions.topics)
        metadata = self.finder.metadata
        if any(metadata.view.partitions_of(topic) is None for topic in wanted):
            # Without an update in time, what is known is assigned; all join again when more is.
            with contextlib.suppress(KafkaTimeoutError):
                await metadata.update(timeout_ms=self.config.request_timeout_ms)
        counts = self.counts()
        if joined.skip_assignment:
            return counts, []
        known = {topic: count for topic, count in counts.items() if topic in wanted}
        assigned = ASSIGNORS[joined.protocol_name or ""].assign(known, members)
        return counts, [
            SyncGroupAssignment(
                member_id=member_id,
                assignment=encode_assignment(Assignment(assigned_partitions=by_topic(partitions))),
            )
            for member_id, partitions in assigned.items()
        ]

    def counts(self) -> dict[str, int]:
        """Return the number of partitions of each known topic of the group."""
        view = self.finder.metadata.view
        found = {
            topic: view.partitions_of(topic) for topic in sorted(self.subscriptions.metadata_topics)
        }
        return {topic: len(each) for topic, each in found.items() if each is not None}


def _member(metadata: bytes, instance_id: str | None, protocol: str | None) -> MemberSubscription:
    """Read the subscription of one member; one that cannot be read has no topics."""
    try:
        subscription = decode_subscription(metadata)
        owned, generation = partitions_of(subscription.owned_partitions), subscription.generation_id
        if protocol == "sticky" and subscription.user_data:
            had = decode_sticky(subscription.user_data)
            owned, generation = partitions_of(had.previous_assignment), had.generation
        elif protocol == "cooperative-sticky" and generation < 0 and subscription.user_data:
            (generation,) = _GENERATION.unpack_from(subscription.user_data)
    except (ProtocolError, struct.error):
        return MemberSubscription(topics=frozenset(), group_instance_id=instance_id)
    return MemberSubscription(
        topics=frozenset(subscription.topics),
        owned=tuple(owned),
        generation=generation,
        group_instance_id=instance_id,
    )


@define(eq=False, kw_only=True)
class Heartbeats:
    """The heartbeats of one member; `run` is the task, `wake` is called when it has joined."""

    config: ConsumerConfig
    membership: Membership
    finder: CoordinatorFinder
    on_change: Callable[[], None]
    on_error: Callable[[KafkaError], None]
    last_poll: float = attrs.field(init=False, default=0.0)
    last_answer: float = attrs.field(init=False, default=0.0)
    _joined: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def clock(self) -> NodeClock:
        return self.finder.metadata.network.clock

    def wake(self) -> None:
        self.last_answer = self.clock.now()
        self._joined.set()

    @property
    def poll_is_overdue(self) -> bool:
        return self.clock.now() - self.last_poll > self.config.max_poll_interval_ms / 1000

    async def run(self) -> None:
        while True:
            if not self.membership.has_joined:
                self._joined = trio.Event()
                await self._joined.wait()
            await self.clock.sleep(self.config.heartbeat_interval_ms / 1000)
            if not self.membership.has_joined:
                continue
            if self.poll_is_overdue:
                if self.membership.is_dynamic:
                    await self.leave("the program has not polled for max.poll.interval.ms")
            else:
                await self._beat()

    async def _beat(self) -> None:
        member = self.membership
        sent = (member.generation_id, member.member_id)
        request = HeartbeatRequest(
            group_id=member.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )
        try:
            response: HeartbeatResponse = await self.finder.call(ask(request))
        except NO_ANSWER:
            if self.clock.now() - self.last_answer > self.config.session_timeout_ms / 1000:
                self.finder.forget()
        except KafkaError as error:
            self.on_error(error)
        else:
            self.last_answer = self.clock.now()
            if sent == (member.generation_id, member.member_id) and member.has_joined:
                self._act_upon(ErrorCode.of(response.error_code))

    def _act_upon(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        member = self.membership
        # A member that is joining is part of that rebalance.
        is_known = (
            error is ErrorCode.REBALANCE_IN_PROGRESS and member.state is not MemberState.STABLE
        )
        try:
            if not is_known:
                act_upon(HEARTBEAT, error, member, self.finder, request="heartbeat")
        except KafkaError as fatal:
            self.on_error(fatal)
        self.on_change()

    async def leave(self, reason: str) -> None:
        """Leave the group, so that others go on at once; a silent member is dropped anyway."""
        member = self.membership
        leaving = LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=reason[:255],
        )
        request = LeaveGroupRequest(
            group_id=member.group_id, member_id=member.member_id, members=[leaving]
        )
        member.reset(reason)
        self.on_change()
        for failures in range(LEAVE_ATTEMPTS):
            if not leaving.member_id or self.finder.known is None:
                return
            try:
                await self.finder.call(ask(request))
            except NO_ANSWER:
                await self.finder.pause(failures + 1)
            except KafkaError:
                return
            else:
                return
