"""The classic protocol of a group (KIP-62, 345, 429), as a member's polls see it.

    poll ──> a reason to join: revoke (the listener is called) ──> a task joins ... returns:
             take what was assigned (the listener is called)

Rule 1: eager members give everything back before they join; cooperative ones go on reading,
and give back afterwards what they were not given again, by joining once more (KIP-429).

(Kafka: ConsumerCoordinator, AbstractCoordinator.)
"""

import attrs
import trio

from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.assignors import ASSIGNORS, RebalanceProtocol, protocol_of
from replication.client.consumer.group.coordinator import ConsumerCoordinator, KeptErrors
from replication.client.consumer.group.joining import Heartbeats, Joined, Joining
from replication.client.consumer.group.membership import Membership, MemberState
from replication.client.consumer.subscription import SubscriptionState
from replication.client.coordinators import CoordinatorFinder
from replication.errors import KafkaError
from storage.attributes import define
from storage.types import TopicPartition


@define(eq=False, kw_only=True)
class ClassicGroupProtocol:
    """The joins of one member, and the task of its heartbeats."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    finder: CoordinatorFinder
    errors: KeptErrors
    membership: Membership = attrs.field(init=False)
    joining: Joining = attrs.field(init=False)
    heartbeats: Heartbeats = attrs.field(init=False)
    """Its `run` is to be started."""
    _protocol: RebalanceProtocol = attrs.field(init=False)
    _join_scope: trio.CancelScope | None = attrs.field(init=False, default=None)
    _joined: Joined | None = attrs.field(init=False, default=None)
    _current: Joined | None = attrs.field(init=False, default=None)
    _failures: int = attrs.field(init=False, default=0)
    _counted_version: int = attrs.field(init=False, default=-1)

    def __attrs_post_init__(self) -> None:
        self.membership = Membership(self.finder.group_id, self.config.group_instance_id)
        self.joining = Joining(
            config=self.config,
            membership=self.membership,
            subscriptions=self.subscriptions,
            finder=self.finder,
            last_joined=lambda: self.last_assignment,
        )
        self.heartbeats = Heartbeats(
            config=self.config,
            membership=self.membership,
            finder=self.finder,
            on_change=self.errors.on_change,
            on_error=self.errors.keep,
        )
        chosen = self.config.partition_assignment_strategy
        self._protocol = protocol_of(tuple(ASSIGNORS[name] for name in chosen))

    def polled(self) -> None:
        self.heartbeats.last_poll = self.finder.metadata.network.clock.now()

    async def poll(self, coordinator: ConsumerCoordinator) -> None:
        if self._joined is not None:
            await self._take(coordinator, self._joined)
        if self._should_join():
            await self._prepare(coordinator)
            self._begin_to_join()

    @property
    def may_load(self) -> bool:
        return self._joined is None

    @property
    def last_assignment(self) -> tuple[TopicPartition, ...]:
        """The assignment of the last join, whether or not it was given back since."""
        return () if self._current is None else self._current.partitions

    def _should_join(self) -> bool:
        member = self.membership
        if self._join_scope is not None or self._joined is not None:
            return False
        if self._current is not None and member.state is MemberState.STABLE:
            if self._partitions_changed(self._current):
                member.request_rejoin("the topics have other partitions than were handed out")
            elif self._current.topics_subscribed != self.subscriptions.topics:
                member.request_rejoin("it subscribes to other topics")
        return member.rejoin_needed

    def _partitions_changed(self, current: Joined) -> bool:
        version = self.finder.metadata.view.version
        if current.counts is None or self._counted_version == version:
            return False
        self._counted_version = version
        return current.counts != self.joining.counts()

    async def _prepare(self, coordinator: ConsumerCoordinator) -> None:
        """Commit and give back partitions before the group reassigns them (onJoinPrepare)."""
        assigned = self.subscriptions.assigned
        if not assigned:
            return
        if self.membership.is_lost:
            await coordinator.give_up(assigned, coordinator.listener.on_partitions_lost)
            return
        if self._protocol is RebalanceProtocol.EAGER:
            leaving = assigned
        else:
            leaving = [tp for tp in assigned if tp.topic not in self.subscriptions.topics]
        self.subscriptions.mark_pending_revocation(leaving)
        await coordinator.commit_before_revoking()
        if leaving:
            await coordinator.give_up(leaving, coordinator.listener.on_partitions_revoked)

    def _begin_to_join(self) -> None:
        self.subscriptions.reset_group_subscription()
        self._join_scope = trio.CancelScope()
        self.finder.metadata.network.nursery.start_soon(self._join, self._join_scope)

    async def _join(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                if self._failures:
                    await self.finder.pause(self._failures)
                given_id = not self.membership.member_id
                self._joined = await self.joining.attempt()
                has_id_now = given_id and bool(self.membership.member_id)
                came = self._joined is not None or has_id_now
                self._failures = 0 if came else self._failures + 1
        except KafkaError as error:
            self._failures += 1
            self.membership.failed(str(error))
            self.errors.keep(error)
        finally:
            if self._join_scope is scope:
                self._join_scope = None
        if self._joined is not None:
            self.heartbeats.wake()
        self.errors.on_change()

    async def _take(self, coordinator: ConsumerCoordinator, joined: Joined) -> None:
        """Take the assignment of the group (onJoinComplete)."""
        assigned, owned = joined.partitions, self.subscriptions.assigned
        if not self.subscriptions.fits_subscription(assigned):
            self._joined = None
            self.membership.request_rejoin("it was given topics that it does not want any more")
            return
        revoked = [tp for tp in owned if tp not in set(assigned)]
        if revoked:
            self.subscriptions.mark_pending_revocation(revoked)
            if self._protocol is RebalanceProtocol.COOPERATIVE:
                # Others get what we give up when all join once more.
                self.membership.request_rejoin("it has partitions to give up")
            await coordinator.give_up(revoked, coordinator.listener.on_partitions_revoked)
        if not self.subscriptions.uses_group:
            return  # the listener has unsubscribed
        self._current = joined

        def taken() -> None:
            self._joined = None

        await coordinator.take(assigned, taken)

    async def leave(self, reason: str) -> None:
        """Leave the group; a static member only falls silent (KIP-345)."""
        if self.membership.is_dynamic and self.membership.member_id:
            await self.heartbeats.leave(reason)
        else:
            self.membership.reset(reason)

    def cancel(self) -> None:
        """Cancel the join that is under way."""
        if self._join_scope is not None:
            self._join_scope.cancel()
            self.membership.failed("it was cancelled")
            # A broker that holds our JoinGroup back reads nothing else from that connection.
            self.finder.hang_up()
        self._joined = self._current = None
