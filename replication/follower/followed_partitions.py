"""The partitions of one fetcher: which they are, where each stands, which were given up.

Everything here is a plain call: nobody can come between reading a state and writing it.

Rule 1: a partition is here, or in the failed set of all fetchers, or nowhere; never in two
of them. Adding takes it out of the failed set, failing takes it out of here.

Rule 2: a failed partition comes back only by being added: at a newer leader epoch, or
because its log has been made anew.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs

from replication.errors import ErrorCode, UnderstudyError
from replication.events import EventSink, FetchRefused, FollowerFetching, PartitionFailed, ignore
from replication.follower.fetcher_stats import FetcherStats
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    FailedPartitions,
    InitialFetchState,
    PartitionFetchState,
    PartitionStates,
    ReplicaState,
    initial_state,
)
from replication.net.seams import NodeClock
from storage.errors import ShortageError, StorageError
from storage.types import LeaderEpoch, TopicId, TopicPartition

OnBug = Callable[[BaseException], None]


@attrs.define(kw_only=True)
class FollowedPartitions:
    leader: BrokerEndPoint
    replicas: FollowedReplicas
    truncation_on_fetch: bool
    clock: NodeClock
    backoff: float
    failed: FailedPartitions
    stats: FetcherStats
    on_bug: OnBug
    sink: EventSink = ignore
    states: PartitionStates = attrs.field(init=False, factory=PartitionStates)

    def add(self, initial_states: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Follow these too, or from here on at a new epoch."""
        self.failed.remove_all(initial_states)
        for tp, initial in initial_states.items():
            try:
                latest_epoch = self.replicas.latest_epoch(tp)
            except (StorageError, UnderstudyError) as error:
                self.mark_failed(tp, f"{type(error).__name__}: {error}")
            else:
                self._add_one(tp, initial, latest_epoch)

    def _add_one(
        self, tp: TopicPartition, initial: InitialFetchState, latest_epoch: LeaderEpoch | None
    ) -> None:
        existing = self.states.get(tp)
        state = initial_state(
            initial,
            existing=existing,
            latest_epoch=latest_epoch,
            truncation_on_fetch=self.truncation_on_fetch,
        )
        self.states.update_and_move_to_end(tp, state)
        self.stats.follow(tp)
        if state is not existing:
            self.tell_if_fetching(tp, state)

    def remove(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionFetchState]:
        """Follow these no more; the states of those that were followed."""
        removed = {}
        for tp in partitions:
            state = self.states.remove(tp)
            self.stats.forget_lag(tp)
            if state is not None:
                removed[tp] = state
        return removed

    def update_topic_ids(self, topic_ids: Mapping[TopicPartition, TopicId]) -> None:
        """Ids that were not known when the partitions were added."""
        for tp, topic_id in topic_ids.items():
            state = self.states.get(tp)
            if state is not None:
                self.states.update(tp, attrs.evolve(state, topic_id=topic_id))

    def delay(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask nothing about these for one backoff; a delay already running is not prolonged."""
        if delayed := list(partitions):
            now = self.clock.now()
            for tp in delayed:
                self.states.delay(tp, until=now + self.backoff, now=now)

    def mark_failed(self, partition: TopicPartition, cause: str) -> None:
        """Give up on it until somebody adds it again."""
        self.failed.add(partition)
        self.remove([partition])
        self.sink(PartitionFailed(partition=partition, cause=cause))

    def fail_after(self, partition: TopicPartition, error: Exception) -> None:
        """Its log could not be worked on; where that is a mistake of ours, say so. One that was
        taken away on the way, with the rest of its log directory, is nobody's failure here. A
        shortage is over after a while.
        """
        if isinstance(error, ShortageError):
            self.delay([partition])
            return
        if not isinstance(error, (StorageError, UnderstudyError)):
            self.on_bug(error)
        if partition in self.states:
            self.mark_failed(partition, f"{type(error).__name__}: {error}")

    def on_fenced(self, partition: TopicPartition, request_epoch: LeaderEpoch) -> bool:
        """The leader is at a newer epoch than we were when we asked. True: ask again, for we
        have moved on since; False: given up until the news reaches us, or gone.
        """
        state = self.states.get(partition)
        if state is None:
            return False
        if state.current_leader_epoch == request_epoch:
            self.mark_failed(partition, f"fenced at leader epoch {request_epoch}")
            return False
        return True

    def tell_refused(
        self, partition: TopicPartition, leader_epoch: LeaderEpoch, error_code: int
    ) -> None:
        self.sink(
            FetchRefused(
                partition=partition,
                leader=self.leader.id,
                leader_epoch=leader_epoch,
                error=ErrorCode.of(error_code).name,
            )
        )

    def tell_if_fetching(self, partition: TopicPartition, state: PartitionFetchState) -> None:
        if state.state is ReplicaState.FETCHING:
            self.sink(
                FollowerFetching(
                    partition=partition,
                    leader=self.leader.id,
                    leader_epoch=state.current_leader_epoch,
                    fetch_offset=state.fetch_offset,
                )
            )
