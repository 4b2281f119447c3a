"""A consumer's side of its group: it calls the program's listener, and commits.

    poll ──> the protocol: joins, and learns what is ours      classic, consumer_protocol
         ──> partitions that are ours     taken: the listener is called, offsets are fetched
         ──> partitions that are not      given up: committed, the listener is called
         ──> commit, if it is time

Rule 1: listeners run in the program's own call. What the protocol sends is a task beside it: a
poll that ends or is cancelled meanwhile interrupts nothing.

Rule 2: a listener that could not be called is called by the next poll: nothing newly assigned
is fetched before `on_partitions_assigned` has run to its end.

Rule 3: positions are committed at `auto.commit.interval.ms` by polls, before partitions are
given back, and on leaving; never beside the program, so never records it was not handed.

(Kafka: ConsumerCoordinator, AsyncKafkaConsumer: what both group protocols share.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import trio

from replication.client.consumer.completed_fetch import FetchBuffer
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.errors import (
    FencedInstanceIdError,
    NoOffsetForPartitionError,
    RetriableCommitFailedError,
)
from replication.client.consumer.group.commits import Commits, Offsets
from replication.client.consumer.group.membership import CommittingMember
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
from storage.attributes import define
from storage.types import TopicPartition

# The longest time that a rebalance waits for an automatic commit; the group waits for us.
_COMMIT_BEFORE_REVOKING_MS = 5_000


@define(eq=False)
class KeptErrors:
    """The error that the next poll raises."""

    on_change: Callable[[], None]
    _error: KafkaError | None = attrs.field(init=False, default=None)
    _stays: bool = attrs.field(init=False, default=False)

    def keep(self, error: KafkaError, *, for_good: bool = False) -> None:
        """Keep an error for the next poll to raise; for every poll, if no poll would mend it."""
        if self._error is None or for_good:
            self._error, self._stays = error, for_good
        self.on_change()

    @property
    def is_kept_for_good(self) -> bool:
        """Whether the member stays out of its group until the program subscribes anew."""
        return self._stays

    def raise_error(self) -> None:
        error = self._error
        # A member that joined again after being fenced would fence the other, and so on for ever.
        if not self._stays and not isinstance(error, FencedInstanceIdError):
            self._error = None
        if error is not None:
            raise error

    def forget(self) -> None:
        """Forget an error that was kept for good: the program begins anew."""
        if self._stays:
            self._error, self._stays = None, False


class GroupProtocol(Protocol):
    """The way in which a member learns which partitions are its own."""

    @property
    def membership(self) -> CommittingMember: ...

    def polled(self) -> None:
        """Note that the program is alive (max.poll.interval.ms)."""

    async def poll(self, coordinator: "ConsumerCoordinator") -> None:
        """Join as far as possible now, and hand to `coordinator` what is ours and what is not."""

    @property
    def may_load(self) -> bool:
        """Whether the assigned partitions are ours, so that no other member commits for them."""

    def cancel(self) -> None:
        """Stop what is under way, before the member leaves."""

    async def leave(self, reason: str) -> None:
        """Leave the group; the program has given everything up."""


@define(eq=False, kw_only=True)
class ConsumerCoordinator:
    """The membership of one consumer, as its polls and its listener see it."""

    config: ConsumerConfig
    protocol: GroupProtocol
    subscriptions: SubscriptionState
    metadata: Metadata
    finder: CoordinatorFinder
    buffer: FetchBuffer
    errors: KeptErrors
    on_change: Callable[[], None]
    on_committed: Callable[[Offsets], None]
    listener: ConsumerRebalanceListener
    commits: Commits = attrs.field(init=False)
    _in_listener: bool = attrs.field(init=False, default=False)
    _polling: bool = attrs.field(init=False, default=False)
    _commit_at: float = attrs.field(init=False, default=0.0)
    _loading: trio.CancelScope | None = attrs.field(init=False, default=None)
    _pattern_version: int = attrs.field(init=False, default=-1)

    def __attrs_post_init__(self) -> None:
        self.commits = Commits(
            membership=self.protocol.membership,
            subscriptions=self.subscriptions,
            finder=self.finder,
            on_committed=self.on_committed,
            on_change=self.on_change,
        )
        self._put_off_commit()

    @property
    def clock(self) -> NodeClock:
        return self.metadata.network.clock

    # -- polling

    def polled(self) -> None:
        self.protocol.polled()

    async def poll(self) -> None:
        self.polled()
        if self.errors.is_kept_for_good and not self._polling:
            await self._lose_all()
        self.errors.raise_error()
        if self._polling:
            return  # a listener or another task asks for a position: one thing at a time
        self._polling = True
        try:
            if self.subscriptions.uses_group and self._knows_its_topics():
                await self.protocol.poll(self)
            self._commit_if_due()
        finally:
            self._polling = False

    def _knows_its_topics(self) -> bool:
        """Match the pattern; return False as long as there is no metadata to match it with."""
        view = self.metadata.view
        if self.subscriptions.pattern is not None and self._pattern_version != view.version:
            self._pattern_version = view.version
            self.subscriptions.subscribe_from_pattern(list(view.topics))
        return self.subscriptions.pattern is None or view.version > 0

    def due_in(self) -> float:
        """Return the seconds until a poll has to commit."""
        if not self.config.enable_auto_commit:
            return 3600.0
        return self._commit_at - self.clock.now()

    # -- taking and giving up

    async def take(
        self, partitions: Iterable[TopicPartition], done: Callable[[], None] = lambda: None
    ) -> None:
        """Take what the group has given; `done` follows the listener, unless it is cancelled."""
        self.subscriptions.assign_from_group(partitions)
        self._drop_other_records()
        added = [
            tp
            for tp in self.subscriptions.assigned
            if self.subscriptions.state(tp).pending_on_assigned
        ]
        self._put_off_commit()

        def taken() -> None:
            self.subscriptions.enable(added)
            done()

        await self._call_listener(self.listener.on_partitions_assigned, added, taken)

    async def give_up(self, partitions: Sequence[TopicPartition], method: ListenerMethod) -> None:
        """Call the listener, and give the partitions back."""

        def let_go() -> None:
            kept = [tp for tp in self.subscriptions.assigned if tp not in gone]
            self.subscriptions.assign_from_subscribed(kept)
            self._drop_other_records()

        gone = set(partitions)
        await self._call_listener(method, list(partitions), let_go)

    async def _lose_all(self) -> None:
        self._polling = True
        try:
            if assigned := self.subscriptions.assigned:
                await self.give_up(assigned, self.listener.on_partitions_lost)
        finally:
            self._polling = False

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

    # -- positions

    def fetch_committed(self) -> bool:
        """Begin to fetch the committed offsets of partitions without a position; return True."""
        if self.subscriptions.uses_group and not (
            self.protocol.membership.may_commit and (self._in_listener or self.protocol.may_load)
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
            self.errors.keep(error)
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

    async def commit_before_revoking(self) -> None:
        if not self.config.enable_auto_commit or not self.protocol.membership.may_commit:
            return
        try:
            await self.commits.commit(self.consumed(), timeout_ms=_COMMIT_BEFORE_REVOKING_MS)
        except KafkaError:
            return  # the next owner reads some records again

    def _commit_if_due(self) -> None:
        if not self.config.enable_auto_commit or self.clock.now() < self._commit_at:
            return
        self._put_off_commit()
        if self.subscriptions.uses_group and not self.protocol.membership.may_commit:
            return
        self.commits.commit_soon(self.consumed(), self._auto_committed)

    def _auto_committed(self, _: Offsets, error: KafkaError | None) -> None:
        if isinstance(error, RetriableCommitFailedError):
            soon = self.clock.now() + self.config.retry_backoff_ms / 1000
            self._commit_at = min(self._commit_at, soon)

    def _put_off_commit(self) -> None:
        self._commit_at = self.clock.now() + self.config.auto_commit_interval_ms / 1000

    # -- leaving

    async def close(self, *, commits: bool, timeout_ms: float) -> None:
        """Commit, give everything back, and leave; a failure of one does not stop the others."""
        self._cancel()
        try:
            if commits and self.config.enable_auto_commit:
                await self.commits.commit(self.consumed(), timeout_ms=timeout_ms)
        except KafkaError as error:
            # Closing goes on: the next owner reads some records again.
            warn(
                "commit_on_close_failed",
                group=self.protocol.membership.group_id,
                error=str(error),
            )
        finally:
            await self.leave("the consumer is being closed")

    async def leave(self, reason: str) -> None:
        """Give everything back and leave; a static member says nothing, or that it comes back."""
        self._cancel()
        assigned = self.subscriptions.assigned
        try:
            if assigned and self.subscriptions.uses_group:
                lost, listener = self.protocol.membership.is_lost, self.listener
                method = listener.on_partitions_lost if lost else listener.on_partitions_revoked
                await self.give_up(assigned, method)
        finally:
            await self.protocol.leave(reason)
            self.errors.forget()

    def _cancel(self) -> None:
        """Cancel the join and the fetch of offsets that are under way."""
        self.protocol.cancel()
        if self._loading is not None:
            self._loading.cancel()
