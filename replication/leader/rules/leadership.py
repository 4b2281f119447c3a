"""The leader's side of a partition: its followers, the ISR, the high watermark.

    fetch of a follower ──> FollowerState ──┬─> may it join? ──> propose to the controller
    time passes ────────────────────────────┼─> must it leave? ─> propose to the controller
    append, answer of the controller ───────┴─> how far is everything committed?

Rule 1: a `Leadership` exists while this broker leads, for any number of leader epochs. The
progress of the followers is forgotten with it, and also if a leader epoch in between was missed:
metadata comes in steps of any size, and another leader may have made the followers truncate.

Rule 2: the high watermark only grows. It is computed after everything that may let it advance:
an append (the ISR may be this broker alone), a follower's fetch, a changed ISR.

Rule 3: nothing here waits. The `observer` wakes the requests that wait for a change.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import NO_REPLICA, ClientMetadata
from replication.leader.rules.isr import (
    AwaitMetadata,
    Commit,
    CommittedIsr,
    FollowerState,
    Ignore,
    IsrAnswer,
    IsrMember,
    IsrProposal,
    IsrState,
    Pending,
    PendingExpand,
    PendingShrink,
    Resubmit,
    Revert,
    committed,
    committed_end,
    effective_min_isr,
    is_eligible,
    may_expand,
    out_of_sync,
    outcome_of,
)
from replication.leader.rules.replica_selector import PartitionView, ReplicaSelector, ReplicaView
from replication.leader.rules.settled import Settled
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from storage.attributes import define, frozen
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, TopicPartition


class PartitionObserver(Protocol):
    """The broker, as a partition reports changes to it; it must only take note of them."""

    def log_end_moved(self, leadership: "Leadership", /) -> None:
        """Note that the leader has appended, without a move of the high watermark."""

    def high_watermark_moved(self, leadership: "Leadership", /) -> None: ...

    def log_start_moved(self, topic_partition: TopicPartition, /) -> None:
        """Note that a follower's log start has moved."""

    def isr_change_proposed(self, leadership: "Leadership", pending: Pending, /) -> None:
        """Send the proposal to the controller, and its answer to `on_isr_answer`."""

    def isr_changed(self, leadership: "Leadership", previous: frozenset[int], /) -> None:
        """Note that the controller has agreed to a change that this leader proposed."""


@frozen(kw_only=True)
class Surroundings:
    """The broker as its partitions see it; all of them share this object."""

    broker_id: int
    broker_epoch: Callable[[], int]
    metadata: Callable[[], MetadataImage]
    now_ms: Callable[[], int]
    max_lag_ms: int
    observer: PartitionObserver
    selector: ReplicaSelector | None = None


@define(eq=False, kw_only=True)
class Leadership:
    """One partition as its leader knows it (see the head of this module)."""

    topic_partition: TopicPartition
    log: Log
    around: Surroundings
    min_insync_replicas: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr_state: IsrState
    epoch_start: Offset = -1
    """The log end when this leader epoch began."""
    followers: dict[int, FollowerState] = attrs.field(factory=dict)
    settled: Settled = attrs.field(factory=Settled)
    failed_isr_updates: int = 0
    effective_min_isr: int = attrs.field(init=False, default=1)
    """`min.insync.replicas`, at most the number of replicas."""

    @property
    def isr(self) -> frozenset[int]:
        return self.isr_state.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr_state.maximal_isr

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr_state.isr) < self.effective_min_isr

    def configure(self, *, min_insync_replicas: int) -> None:
        """Set the minimum ISR; a smaller one may let the high watermark advance."""
        self.min_insync_replicas = min_insync_replicas
        self.effective_min_isr = effective_min_isr(
            min_insync_replicas=min_insync_replicas, remote_replicas=len(self.followers)
        )
        self.maybe_advance_high_watermark()

    # Metadata.

    def install(self, registration: PartitionRegistration) -> None:
        """Take what the controller has decided; a pending proposal is dropped."""
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.isr_state = committed(registration.isr)
        others = [each for each in registration.replicas if each != self.around.broker_id]
        # The state of a replica that stays is kept.
        self.followers = {each: self.followers.get(each) or FollowerState() for each in others}
        self.effective_min_isr = effective_min_isr(
            min_insync_replicas=self.min_insync_replicas, remote_replicas=len(others)
        )

    def begin_leader_epoch(self, *, reelected: bool, is_recorded: bool = True) -> None:
        """Lead at a new leader epoch from here on.

        The log's epoch cache records it (`is_recorded`), except in a copy of another cluster's
        partition, which holds only the epochs of its source.
        """
        log_end = self.log.log_end_offset
        self.epoch_start = log_end
        # Before any append: a follower may ask where the epochs before this one end
        # (KAFKA-7415), and an epoch without records must be seen to have existed.
        # The owner flushes the entry: a crash before that ends this epoch together with it.
        if is_recorded:
            self.log.leader_epoch_cache.assign(self.leader_epoch, log_end)
        now_ms = self.around.now_ms()
        for broker, follower in self.followers.items():
            follower.on_new_leader_epoch(
                in_isr=broker in self.isr,
                reelected=reelected,
                leader_log_end=log_end,
                now_ms=now_ms,
            )

    # Fetches of followers.

    def on_fetch(
        self,
        broker: int,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        leader_log_end: Offset,
        broker_epoch: int,
    ) -> None:
        """Note a follower's fetch that was read when the log ended at `leader_log_end`."""
        follower = self.followers[broker]
        moved = follower.log_end_offset != fetch_offset
        start_moved = follower.log_start_offset != log_start_offset
        follower.on_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_log_end=leader_log_end,
            now_ms=self.around.now_ms(),
            broker_epoch=broker_epoch,
        )
        if broker not in self.isr_state.isr:
            self._maybe_expand_isr(broker, follower)
        if moved:
            self.maybe_advance_high_watermark()
        if start_moved:
            self.around.observer.log_start_moved(self.topic_partition)

    def _is_eligible(self, broker: int, follower: FollowerState) -> bool:
        image = self.around.metadata()
        return is_eligible(
            fetched_epoch=follower.broker_epoch,
            registered_epoch=image.broker_epoch(broker),
            may_lead=image.may_join_isr(broker) and self._is_in_place(image, broker),
        )

    def _is_in_place(self, image: MetadataImage, broker: int) -> bool:
        """Return whether the replica's log directory is online (KIP-858)."""
        partition = image.partition(self.topic_partition)
        return partition is None or image.is_in_place(partition, broker)

    # Reading from followers.

    def preferred_replica(self, client: ClientMetadata, fetch_offset: Offset) -> int:
        """Return the replica that the consumer should read from; NO_REPLICA for this broker."""
        if self.around.selector is None:
            return NO_REPLICA
        view = self._view(fetch_offset)
        chosen = self.around.selector(client, view)
        return NO_REPLICA if chosen == view.leader else chosen.broker_id

    def _view(self, fetch_offset: Offset) -> PartitionView:
        image, now_ms = self.around.metadata(), self.around.now_ms()

        def view(broker: int, log_end_offset: Offset, ms_since_caught_up: int) -> ReplicaView:
            registration = image.broker(broker)
            return ReplicaView(
                broker_id=broker,
                rack=None if registration is None or registration.fenced else registration.rack,
                log_end_offset=log_end_offset,
                ms_since_caught_up=ms_since_caught_up,
            )

        leader = view(self.around.broker_id, self.log.log_end_offset, 0)
        others = (
            view(broker, each.log_end_offset, now_ms - each.last_caught_up_ms)
            for broker, each in self.followers.items()
            if broker in self.isr and each.log_start_offset <= fetch_offset <= each.log_end_offset
        )
        return PartitionView(leader=leader, replicas=(leader, *others))

    # The high watermark.

    def maybe_advance_high_watermark(self) -> bool:
        log_end = self.log.local.log_end_offset
        if self.log.high_watermark >= log_end:
            return False
        end = committed_end(
            self.isr_state,
            self.followers.items(),
            leader_log_end=log_end,
            may_join=self._is_about_to_join,
            min_isr=self.effective_min_isr,
        )
        if end is None or end <= self.log.high_watermark:
            return False
        self.log.update_high_watermark(end)
        self.around.observer.high_watermark_moved(self)
        return True

    def _is_about_to_join(self, broker: int, follower: FollowerState) -> bool:
        caught_up = follower.caught_up(
            leader_log_end=self.log.log_end_offset,
            now_ms=self.around.now_ms(),
            max_lag_ms=self.around.max_lag_ms,
        )
        return caught_up and self._is_eligible(broker, follower)

    @property
    def low_watermark(self) -> Offset:
        """The offset below which no live replica has records (KIP-107)."""
        image = self.around.metadata()
        starts = (
            follower.log_start_offset
            for broker, follower in self.followers.items()
            if image.is_alive(broker)
        )
        return min([self.log.log_start_offset, *starts])

    def produced(self, required_offset: Offset) -> ErrorCode | None:
        """Return the outcome of an acks=all append up to `required_offset`; None while it waits."""
        if self.log.high_watermark < required_offset:
            return None
        if len(self.isr_state.maximal_isr) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # The ISR.

    def _maybe_expand_isr(self, broker: int, follower: FollowerState) -> None:
        """Ask the controller to add a follower outside the ISR that may join it."""
        if not isinstance(self.isr_state, CommittedIsr):
            return
        if may_expand(
            follower,
            high_watermark=self.log.high_watermark,
            leader_epoch_start=self.epoch_start,
            leader_log_start=self.log.log_start_offset,
        ) and self._is_eligible(broker, follower):
            proposal = self._proposal(self.isr | {broker})
            self._propose(PendingExpand(broker, proposal, self.isr_state))

    def maybe_shrink_isr(self) -> None:
        """Ask the controller to remove the members that have lagged for too long."""
        if not isinstance(self.isr_state, CommittedIsr):
            return
        leaving = out_of_sync(
            self.isr_state,
            self.followers,
            leader=self.around.broker_id,
            leader_log_end=self.log.log_end_offset,
            now_ms=self.around.now_ms(),
            max_lag_ms=self.around.max_lag_ms,
        )
        if leaving:
            proposal = self._proposal(self.isr - leaving)
            self._propose(PendingShrink(leaving, proposal, self.isr_state))

    def _propose(self, pending: Pending) -> None:
        self.isr_state = pending
        self.around.observer.isr_change_proposed(self, pending)

    def _proposal(self, isr: Iterable[int]) -> IsrProposal:
        return IsrProposal(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=tuple(IsrMember(each, self._epoch_of(each)) for each in sorted(isr)),
        )

    def _epoch_of(self, broker: int) -> int:
        if broker == self.around.broker_id:
            return self.around.broker_epoch()
        follower = self.followers.get(broker)
        return -1 if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def on_isr_answer(self, pending: Pending, answer: IsrAnswer) -> bool:
        """Do what the controller says; return whether to send the same proposal again."""
        if self.isr_state is not pending:
            return False  # newer metadata has overtaken the answer
        outcome = outcome_of(
            answer, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )
        if not isinstance(outcome, Commit):
            self.failed_isr_updates += 1
        match outcome:
            case Commit(isr, partition_epoch):
                self.isr_state = CommittedIsr(isr)
                self.settled.unsettle()
                self.partition_epoch = partition_epoch
                self.around.observer.isr_changed(self, pending.isr)
                self.maybe_advance_high_watermark()
            case Revert():
                self.isr_state = pending.last_committed
                # It may have waited only for the follower that was about to join.
                self.maybe_advance_high_watermark()
            case AwaitMetadata() | Ignore():
                pass
            case Resubmit():
                return True
        return False
