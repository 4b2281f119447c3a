"""The new protocol of a group (KIP-848), as a member's polls and its heartbeats carry it out.

    heartbeats ──> the coordinator ──> another target ──> the next poll reconciles:

        commit ──> revoke (the listener is called) ──> assign (the listener is called) ──> say so

Rule 1: the task of the heartbeats sends what `rules.consumer_membership` says, whatever the program
does; only polls call the listener and change what the program has.

Rule 2: a partition that is to be given up belongs to the member until the listener has returned.
Until then the coordinator gives it to nobody.

Rule 3: a program that has not polled for max.poll.interval.ms leaves, and its next poll gives up
what is lost and joins again.

Rule 4: topics are named by their ids. One that the metadata does not know yet is taken later; the
others are not kept waiting.

(Kafka: ConsumerMembershipManager, ConsumerHeartbeatRequestManager, AbstractHeartbeatRequestManager.)
"""

import uuid
from typing import Final

import attrs
import trio

from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.coordinator import ConsumerCoordinator, KeptErrors
from replication.client.consumer.group.membership import (
    CONSUMER_HEARTBEAT,
    LEAVE_ATTEMPTS,
    MemberVerdict,
    act_upon,
    error_of,
    judge,
)
from replication.client.consumer.group.rules.consumer_membership import (
    ConsumerMembership,
    ConsumerMembershipState,
    OwnedPartitions,
)
from replication.client.consumer.subscription import SubscriptionState
from replication.client.coordinators import CoordinatorFinder
from replication.client.errors import TopicAuthorizationFailedError, UnsupportedVersionError
from replication.client.requests import ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from storage.attributes import define
from storage.types import NO_TOPIC_ID, TopicId, TopicPartition

PATTERNS_SINCE: Final = 1
"""The version of ConsumerGroupHeartbeat from which it carries regular expressions."""
_AGAIN: Final = (MemberVerdict.RETRY, MemberVerdict.REDISCOVER)
# A clock of seconds may end a wait a little before its millisecond, and cannot wait for the rest.
_MOMENT_MS: Final = 0.001
_NOT_SERVED: Final = (
    "the cluster does not support group.protocol=consumer; set group.protocol=classic until it does"
)


@define(eq=False, kw_only=True)
class ConsumerHeartbeats:
    """The heartbeats of one member; `run` is the task."""

    membership: ConsumerMembership
    finder: CoordinatorFinder
    errors: KeptErrors
    max_poll_interval_ms: int
    last_poll: float = attrs.field(init=False, default=0.0)
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def clock(self) -> NodeClock:
        return self.finder.metadata.network.clock

    @property
    def _now_ms(self) -> float:
        return self.clock.now() * 1000

    def wake(self) -> None:
        """Look again when the next heartbeat is due: the program has changed the membership."""
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._until_due()
            if self._poll_is_overdue_in_ms() <= 0:
                await self.leave(stays_out=False)
            else:
                await self._beat()
            self.errors.on_change()

    def _poll_is_overdue_in_ms(self) -> float:
        return self.last_poll * 1000 + self.max_poll_interval_ms - self._now_ms

    async def _until_due(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self._news = trio.Event()
            due_ms = self.membership.due_ms
            if due_ms is None:
                await self._news.wait()
                continue
            wait_ms = min(due_ms - self._now_ms, self._poll_is_overdue_in_ms())
            if wait_ms < _MOMENT_MS:
                return
            with self.clock.move_on_after(wait_ms / 1000):
                await self._news.wait()

    async def _beat(self) -> None:
        """Send one heartbeat; what it says is decided when the coordinator is known."""
        try:
            await self.finder.find()
        except KafkaError as error:
            self._fail(error)
            return
        if self.membership.due_ms is None:
            return
        request = self.membership.heartbeat()
        names_pattern = request.subscribed_topic_regex is not None
        try:
            response: ConsumerGroupHeartbeatResponse = await self.finder.call(
                ask(request, min_version=PATTERNS_SINCE if names_pattern else 0)
            )
        except NO_ANSWER:
            self._failed(request)
        except UnsupportedVersionError as error:
            self._fail(UnsupportedVersionError(f"{_NOT_SERVED}: {error}"))
        except KafkaError as error:
            self._fail(error)
        else:
            self._take(request, response)

    def _take(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
    ) -> None:
        error, member = ErrorCode.of(response.error_code), self.membership
        waits = error is ErrorCode.UNRELEASED_INSTANCE_ID and member.may_hold_instance_id
        if error is ErrorCode.NONE:
            member.on_response(request, response, self._now_ms)
        elif error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The member stays: an administrator may add what it lacks.
            self._failed(request)
            self.errors.keep(TopicAuthorizationFailedError(member.topics))
        elif error is ErrorCode.UNSUPPORTED_VERSION:
            self._fail(UnsupportedVersionError(_NOT_SERVED))
        elif waits:
            self._failed(request)
        elif judge(CONSUMER_HEARTBEAT, error) in (*_AGAIN, MemberVerdict.RESET):
            self._failed(request)
            act_upon(CONSUMER_HEARTBEAT, error, member, self.finder, request="heartbeat")
        elif error in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID):
            self._fail(error_of(error, member.group_id))
        else:
            why = response.error_message or "a heartbeat was refused"
            self._fail(KafkaError(error, f"group {member.group_id}: {why}"))

    def _failed(self, request: ConsumerGroupHeartbeatRequest) -> None:
        network = self.finder.metadata.network
        retry_ms = network.retry_wait_ms(self.membership.failures + 1)
        self.membership.on_failure(request, self._now_ms, retry_ms)

    def _fail(self, error: KafkaError) -> None:
        self.membership.fail()
        self.errors.keep(error, for_good=True)

    async def leave(self, *, stays_out: bool = True) -> None:
        """Leave the group, so that others go on at once; a silent member is dropped anyway."""
        request = self.membership.leave(stays_out=stays_out)
        for failures in range(LEAVE_ATTEMPTS):
            if request is None or self.finder.known is None:
                return
            try:
                response = await self.finder.call(ask(request))
            except NO_ANSWER:
                await self.finder.pause(failures + 1)
                continue
            except KafkaError:
                return
            if judge(CONSUMER_HEARTBEAT, ErrorCode.of(response.error_code)) not in _AGAIN:
                return
            self.finder.forget()
            await self.finder.pause(failures + 1)
            await self.finder.find()


@define(eq=False, kw_only=True)
class ConsumerGroupProtocol:
    """The reconciliations of one member, by its polls."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    finder: CoordinatorFinder
    errors: KeptErrors
    membership: ConsumerMembership = attrs.field(init=False)
    heartbeats: ConsumerHeartbeats = attrs.field(init=False)
    """Its `run` is to be started."""
    _names: dict[TopicId, str] = attrs.field(init=False, factory=dict)
    """The topics of the target and of what is assigned."""
    _taken: dict[str, TopicId] = attrs.field(init=False, factory=dict)
    """The ids of the assigned topics: a topic that was made anew is another one."""

    def __attrs_post_init__(self) -> None:
        unique = self.finder.metadata.network.seams.chance.randbytes(16)
        self.membership = ConsumerMembership(
            group_id=self.finder.group_id,
            member_id=str(uuid.UUID(bytes=unique, version=4)),
            group_instance_id=self.config.group_instance_id,
            rack_id=self.config.client_rack or None,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            server_assignor=self.config.group_remote_assignor,
        )
        self.heartbeats = ConsumerHeartbeats(
            membership=self.membership,
            finder=self.finder,
            errors=self.errors,
            max_poll_interval_ms=self.config.max_poll_interval_ms,
        )

    def polled(self) -> None:
        self.heartbeats.last_poll = self.heartbeats.clock.now()

    @property
    def may_load(self) -> bool:
        return True

    async def poll(self, coordinator: ConsumerCoordinator) -> None:
        member, subscriptions = self.membership, self.subscriptions
        member.subscribe(subscriptions.topics, subscriptions.server_pattern)
        if member.state is ConsumerMembershipState.LOST:
            if assigned := subscriptions.assigned:
                await coordinator.give_up(assigned, coordinator.listener.on_partitions_lost)
            if member.state is ConsumerMembershipState.LOST:  # it is not, if it has unsubscribed
                member.gave_up()
        if member.state is ConsumerMembershipState.RECONCILING:
            await self._reconcile(coordinator)
        self.heartbeats.wake()

    async def _reconcile(self, coordinator: ConsumerCoordinator) -> None:
        """Move towards the target by what metadata can name of it."""
        wanted, owned = self._resolve(self.membership.target)
        if owned == self.membership.owned:
            return  # the rest has no names yet
        revoked = [
            tp
            for tp in self.subscriptions.assigned
            if tp not in wanted or self._taken.get(tp.topic) != wanted[tp]
        ]
        if revoked:
            self.subscriptions.mark_pending_revocation(revoked)
            await coordinator.commit_before_revoking()
            await coordinator.give_up(revoked, coordinator.listener.on_partitions_revoked)
        if self.membership.state is not ConsumerMembershipState.RECONCILING:
            return  # fenced meanwhile, or the listener has unsubscribed
        self._taken = {tp.topic: topic_id for tp, topic_id in wanted.items()}

        def taken() -> None:
            self.membership.reconciled(owned)

        await coordinator.take(wanted, taken)

    def _resolve(
        self, target: OwnedPartitions
    ) -> tuple[dict[TopicPartition, TopicId], OwnedPartitions]:
        """Return the partitions of `target` whose topics are known, by name and by id."""
        metadata = self.finder.metadata
        known = {view.topic_id: name for name, view in metadata.view.topics.items()}
        still = {
            topic_id: name
            for topic_id, name in self._names.items()
            if metadata.view.topic_id(name) == NO_TOPIC_ID
        }
        self._names = {
            topic_id: name for topic_id, name in (still | known).items() if topic_id in target
        }
        self.subscriptions.target_topics = frozenset(target)
        if self._names.keys() != target.keys():
            metadata.request_update()
        owned = {topic_id: target[topic_id] for topic_id in self._names}
        wanted = {
            TopicPartition(self._names[topic_id], each): topic_id
            for topic_id, partitions in sorted(owned.items())
            for each in sorted(partitions)
        }
        return wanted, owned

    def cancel(self) -> None:
        """Do nothing: what a heartbeat under way brings is ignored after `leave`."""

    async def leave(self, reason: str) -> None:
        """Leave the group; a static member says that it comes back (KIP-848)."""
        del reason
        await self.heartbeats.leave()
