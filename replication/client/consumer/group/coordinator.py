"""A consumer's side of its group: it joins, calls the program's listener, and commits.

    poll ──> no reason to join ──> commit, if it is time
         ──> a reason to join: revoke (the listener is called) ──> a task joins ... returns:
             take what was assigned (the listener is called)

Rule 1: listeners run in the program's own call. The joining itself is a task beside it: a
poll that ends or is cancelled meanwhile interrupts nothing.

Rule 2: eager members give everything back before they join; cooperative ones go on reading,
and give back afterwards what they were not given again, by joining once more (KIP-429).

Rule 3: a listener that could not be called is called by the next poll: nothing newly assigned
is fetched before `on_partitions_assigned` has run to its end.

Rule 4: positions are committed at `auto.commit.interval.ms` by polls, before partitions are
given back, and on leaving; never beside the program, so never records it was not handed.

(Kafka: ConsumerCoordinator, AbstractCoordinator.)
"""

from collections.abc import Callable, Mapping

import attrs
import trio

from replication.client.consumer.completed_fetch import FetchBuffer
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.errors import (
    FencedInstanceIdError,
    NoOffsetForPartitionError,
    RetriableCommitFailedError,
)
from replication.client.consumer.group.assignors import ASSIGNORS, RebalanceProtocol, protocol_of
from replication.client.consumer.group.commits import Commits, Offsets
from replication.client.consumer.group.joining import Heartbeats, Joined, Joining
from replication.client.consumer.group.membership import Membership, MemberState
from replication.client.consumer.hooks import (
    ConsumerRebalanceListener,
    ListenerMethod,
    call_listener,
    warn,
)
from replication.client.consumer.position import FetchPosition
from replication.client.consumer.records import OffsetAndMetadata
from replication.client.consumer.subscription import SubscriptionState
from replication.client.coordinators import CoordinatorFinder
from replication.client.metadata import Metadata
from replication.errors import KafkaError
from replication.net.seams import NodeClock
from storage.types import TopicPartition

# The longest time that a rebalance waits for an automatic commit; the group waits for us.
_COMMIT_BEFORE_JOIN_MS = 5_000


@attrs.define(eq=False, kw_only=True)
class ConsumerCoordinator:
    """The membership of one consumer, as its polls and its listener see it."""

    config: ConsumerConfig
    group_id: str
    subscriptions: SubscriptionState
    metadata: Metadata
    buffer: FetchBuffer
    on_change: Callable[[], None]
    on_committed: Callable[[Offsets], None]
    listener: ConsumerRebalanceListener
    membership: Membership = attrs.field(init=False)
    joining: Joining = attrs.field(init=False)
    heartbeats: Heartbeats = attrs.field(init=False)
    """Its `run` is to be started."""
    commits: Commits = attrs.field(init=False)
    _protocol: RebalanceProtocol = attrs.field(init=False)
    _join_scope: trio.CancelScope | None = attrs.field(init=False, default=None)
    _joined: Joined | None = attrs.field(init=False, default=None)
    _current: Joined | None = attrs.field(init=False, default=None)
    _failures: int = attrs.field(init=False, default=0)
    _error: KafkaError | None = attrs.field(init=False, default=None)
    _commit_at: float = attrs.field(init=False, default=0.0)
    _loading: trio.CancelScope | None = attrs.field(init=False, default=None)
    _pattern_version: int = attrs.field(init=False, default=-1)
    _counted_version: int = attrs.field(init=False, default=-1)
    _in_listener: bool = attrs.field(init=False, default=False)
    _polling: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.membership = Membership(self.group_id, self.config.group_instance_id)
        finder = CoordinatorFinder(self.group_id, self.metadata)
        self.joining = Joining(
            config=self.config,
            membership=self.membership,
            subscriptions=self.subscriptions,
            finder=finder,
            last_joined=lambda: self.last_assignment,
        )
        self.heartbeats = Heartbeats(
            config=self.config,
            membership=self.membership,
            finder=finder,
            on_change=self.on_change,
            on_error=self.keep,
        )
        self.commits = Commits(
            membership=self.membership,
            subscriptions=self.subscriptions,
            finder=finder,
            on_committed=self.on_committed,
            on_change=self.on_change,
        )
        chosen = self.config.partition_assignment_strategy
        self._protocol = protocol_of(tuple(ASSIGNORS[name] for name in chosen))
        self._commit_at = self.clock.now() + self.config.auto_commit_interval_ms / 1000

    @property
    def clock(self) -> NodeClock:
        return self.metadata.network.clock

    # -- polling

    def polled(self) -> None:
        """Note that the program is alive (max.poll.interval.ms)."""
        self.heartbeats.last_poll = self.clock.now()

    async def poll(self) -> None:
        self.polled()
        self._raise_error()
        if self._polling:
            return  # a listener or another task asks for a position: one thing at a time
        self._polling = True
        try:
            if self.subscriptions.uses_group:
                await self._poll_group()
            self._commit_if_due()
        finally:
            self._polling = False

    async def _poll_group(self) -> None:
        self._match_pattern()
        if self._joined is not None:
            await self._take(self._joined)
        if self._should_join():
            await self._prepare()
            self._begin_to_join()

    def due_in(self) -> float:
        """Return the seconds until a poll has to commit."""
        if not self.config.enable_auto_commit:
            return 3600.0
        return self._commit_at - self.clock.now()

    def keep(self, error: KafkaError) -> None:
        """Keep an error for the next poll to raise."""
        self._error = self._error or error
        self.on_change()

    def _raise_error(self) -> None:
        error = self._error
        # A member that joined again after being fenced would fence the other, and so on for ever.
        if not isinstance(error, FencedInstanceIdError):
            self._error = None
        if error is not None:
            raise error

    @property
    def last_assignment(self) -> tuple[TopicPartition, ...]:
        """The assignment of the last join, whether or not it was given back since."""
        return () if self._current is None else self._current.partitions

    # -- joining

    def _should_join(self) -> bool:
        member = self.membership
        if self._join_scope is not None or self._joined is not None:
            return False
        if self.subscriptions.pattern is not None and not self.metadata.view.version:
            return False  # what matches a pattern is not known before there is metadata
        if self._current is not None and member.state is MemberState.STABLE:
            if self._partitions_changed(self._current):
                member.request_rejoin("the topics have other partitions than were handed out")
            elif self._current.topics_subscribed != self.subscriptions.topics:
                member.request_rejoin("it subscribes to other topics")
        return member.rejoin_needed

    def _partitions_changed(self, current: Joined) -> bool:
        version = self.metadata.view.version
        if current.counts is None or self._counted_version == version:
            return False
        self._counted_version = version
        return current.counts != self.joining.counts()

    def _match_pattern(self) -> None:
        view = self.metadata.view
        if self.subscriptions.pattern is not None and self._pattern_version != view.version:
            self._pattern_version = view.version
            self.subscriptions.subscribe_from_pattern(list(view.topics))

    async def _prepare(self) -> None:
        """Commit and give back partitions before the group reassigns them (onJoinPrepare)."""
        assigned = self.subscriptions.assigned
        if not assigned:
            return
        if self.membership.is_lost:
            await self._give_up(assigned, self.listener.on_partitions_lost)
            return
        if self._protocol is RebalanceProtocol.EAGER:
            leaving = assigned
        else:
            leaving = [tp for tp in assigned if tp.topic not in self.subscriptions.topics]
        self.subscriptions.mark_pending_revocation(leaving)
        await self._commit_before_join()
        if leaving:
            await self._give_up(leaving, self.listener.on_partitions_revoked)

    async def _give_up(self, partitions: list[TopicPartition], method: ListenerMethod) -> None:
        """Call the listener, and give the partitions back."""

        def let_go() -> None:
            kept = [tp for tp in self.subscriptions.assigned if tp not in gone]
            self.subscriptions.assign_from_subscribed(kept)
            self._drop_other_records()

        gone = set(partitions)
        await self._call_listener(method, partitions, let_go)

    def _drop_other_records(self) -> None:
        self.buffer.retain_all(set(self.subscriptions.assigned))

    async def _call_listener(
        self, method: ListenerMethod, partitions: list[TopicPartition], done: Callable[[], None]
    ) -> None:
        """Call a listener; `done` follows also if it raises, but not if it is cancelled."""
        self._in_listener = True
        try:
            await call_listener(method, partitions)
        except Exception:
            done()
            raise
        else:
            done()
        finally:
            self._in_listener = False

    async def _commit_before_join(self) -> None:
        if not self.config.enable_auto_commit or self.membership.state is not MemberState.STABLE:
            return
        try:
            await self.commits.commit(self.consumed(), timeout_ms=_COMMIT_BEFORE_JOIN_MS)
        except KafkaError:
            return  # the next owner reads some records again

    def _begin_to_join(self) -> None:
        self.subscriptions.reset_group_subscription()
        self._join_scope = trio.CancelScope()
        self.metadata.network.nursery.start_soon(self._join, self._join_scope)

    async def _join(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                if self._failures:
                    await self.joining.finder.pause(self._failures)
                given_id = not self.membership.member_id
                self._joined = await self.joining.attempt()
                has_id_now = given_id and bool(self.membership.member_id)
                came = self._joined is not None or has_id_now
                self._failures = 0 if came else self._failures + 1
        except KafkaError as error:
            self._failures += 1
            self.membership.failed(str(error))
            self.keep(error)
        finally:
            if self._join_scope is scope:
                self._join_scope = None
        if self._joined is not None:
            self.heartbeats.wake()
        self.on_change()

    async def _take(self, joined: Joined) -> None:
        """Take the assignment of the group (onJoinComplete)."""
        assigned, owned = joined.partitions, self.subscriptions.assigned
        if not self.subscriptions.fits_subscription(assigned):
            self._joined = None
            self.membership.request_rejoin("it was given topics that it does not want any more")
            return
        revoked = [tp for tp in owned if tp not in set(assigned)]
        if revoked:
            await self._revoke_after(revoked)
        if not self.subscriptions.uses_group:
            return  # the listener has unsubscribed
        self.subscriptions.assign_from_group(assigned)
        self._current = joined
        self._drop_other_records()
        added = [tp for tp in assigned if self.subscriptions.state(tp).pending_on_assigned]
        self._commit_at = self.clock.now() + self.config.auto_commit_interval_ms / 1000

        def taken() -> None:
            self._joined = None
            self.subscriptions.enable(added)

        await self._call_listener(self.listener.on_partitions_assigned, added, taken)

    async def _revoke_after(self, revoked: list[TopicPartition]) -> None:
        """Give back partitions; cooperative members then join again, so that others get them."""
        self.subscriptions.mark_pending_revocation(revoked)
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            self.membership.request_rejoin("it has partitions to give up")
        await self._give_up(revoked, self.listener.on_partitions_revoked)

    # -- positions

    def fetch_committed(self) -> bool:
        """Begin to fetch the committed offsets of partitions without a position; return True."""
        is_new = self._joined is not None and not self._in_listener
        if self.subscriptions.uses_group and (
            is_new or self.membership.state is not MemberState.STABLE
        ):
            return True  # a commit may still come before the partitions are ours
        if self._loading is None:
            self._loading = trio.CancelScope()
            self.metadata.network.nursery.start_soon(self._load_committed, self._loading)
        return True

    async def _load_committed(self, scope: trio.CancelScope) -> None:
        assignment = self.subscriptions.assignment_id
        wanted = self.subscriptions.initializing()
        try:
            with scope:
                found = await self.commits.committed(wanted)
                if assignment == self.subscriptions.assignment_id:
                    self._begin_at(found)
        except KafkaError as error:
            self.keep(error)
        finally:
            self._loading = None
        self.on_change()

    def _begin_at(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        initializing, view = set(self.subscriptions.initializing()), self.metadata.view
        without = [tp for tp, at in found.items() if at is None and tp in initializing]
        for tp, at in found.items():
            if at is None or tp not in initializing:
                continue
            if view.note_epoch(tp, at.leader_epoch):
                self.metadata.request_update()
            position = FetchPosition(at.offset, at.leader_epoch, view.leader(tp))
            self.subscriptions.seek(tp, position)
        if without and self.subscriptions.default_strategy is None:
            raise NoOffsetForPartitionError(without)
        for tp in without:
            self.subscriptions.request_reset(tp)

    # -- committing

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions after all records that were handed over."""
        return {
            tp: OffsetAndMetadata(position.offset, leader_epoch=position.offset_epoch)
            for tp, position in self.subscriptions.consumed().items()
        }

    def _commit_if_due(self) -> None:
        if not self.config.enable_auto_commit or self.clock.now() < self._commit_at:
            return
        self._commit_at = self.clock.now() + self.config.auto_commit_interval_ms / 1000
        if self.subscriptions.uses_group and self.membership.state is not MemberState.STABLE:
            return
        self.commits.commit_soon(self.consumed(), self._auto_committed)

    def _auto_committed(self, _: Offsets, error: KafkaError | None) -> None:
        if isinstance(error, RetriableCommitFailedError):
            soon = self.clock.now() + self.config.retry_backoff_ms / 1000
            self._commit_at = min(self._commit_at, soon)

    # -- leaving

    async def close(self, *, commits: bool, timeout_ms: float) -> None:
        """Commit, give everything back, and leave; a failure of one does not stop the others."""
        self.cancel_joining()
        try:
            if commits and self.config.enable_auto_commit:
                await self.commits.commit(self.consumed(), timeout_ms=timeout_ms)
        except KafkaError as error:
            # Closing goes on: the next owner reads some records again.
            warn("commit_on_close_failed", group=self.membership.group_id, error=str(error))
        finally:
            await self.leave("the consumer is being closed")

    async def leave(self, reason: str) -> None:
        """Give everything back and leave; a static member only falls silent (KIP-345)."""
        self.cancel_joining()
        assigned = self.subscriptions.assigned
        try:
            if assigned and self.subscriptions.uses_group:
                lost, listener = self.membership.is_lost, self.listener
                method = listener.on_partitions_lost if lost else listener.on_partitions_revoked
                await self._give_up(assigned, method)
        finally:
            if self.membership.is_dynamic and self.membership.member_id:
                await self.heartbeats.leave(reason)
            else:
                self.membership.reset(reason)

    def cancel_joining(self) -> None:
        """Cancel the join and the fetch of offsets that are under way."""
        if self._join_scope is not None:
            self._join_scope.cancel()
            self.membership.failed("it was cancelled")
            # A broker that holds our JoinGroup back reads nothing else from that connection.
            self.joining.finder.hang_up()
        self._joined = self._current = None
        if self._loading is not None:
            self._loading.cancel()
