"""Brings one fetcher's logs to where they agree with the leader's.

Three ways lead here, and `truncation.py` holds the rule of each:

    before fetching   a partition is Truncating: ask the leader where our last epoch ends, or,
                      in a log without any epoch, cut to the high watermark we began with
    while fetching    the answer names the epoch at which the logs part (Fetch v12, KIP-595)
    out of range      the leader does not have our offset: ask for its two ends

Who fetches as a consumer is not told where the leader's log ends: LATEST is its high watermark,
which may lag behind what was committed long ago. There only the leader's start decides whether
to start over, and only epochs whether to cut.

A cut that is not *completed* has to be followed by another question. Where fetches carry
epochs the next fetch is that question; otherwise the partition stays Truncating.

Whoever awaited the leader finds the partition again by *identity* of its state: states are
values that are replaced as a whole, so the same object means that nothing has happened.
"""

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from replication.errors import (
    ErrorCode,
    KafkaError,
    PeerUnavailableError,
    ProtocolError,
    UnderstudyError,
)
from replication.events import LogTruncated
from replication.follower.followed_partitions import FollowedPartitions
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.leader_endpoint import EpochEnd, EpochWanted, LeaderEndpoint
from replication.follower.rules.fetch_state import (
    PartitionFetchState,
    PartitionStates,
    ReplicaState,
)
from replication.follower.rules.truncation import (
    OffsetReset,
    OffsetTruncationState,
    Reset,
    reset_above_leader,
    reset_as_consumer,
    reset_offset,
    truncation_offset,
)
from storage.errors import StorageError
from storage.types import Offset, OffsetAndEpoch, TopicPartition


@attrs.define
class Truncator:
    partitions: FollowedPartitions
    leader: LeaderEndpoint
    as_consumer: bool = attrs.field(default=False, kw_only=True)

    @property
    def _states(self) -> PartitionStates:
        return self.partitions.states

    @property
    def _replicas(self) -> FollowedReplicas:
        return self.partitions.replicas

    # -- before fetching ------------------------------------------------------

    async def maybe_truncate(self) -> None:
        """Cut what must be cut first. ProtocolError where the leader answers something else."""
        now = self.partitions.clock.now()
        truncating = self._states.truncating(now)
        if not truncating:
            return
        for tp, state in truncating:
            if state.needs_offset:
                await self.find_offset(tp, state)
        with_epochs = self._cut_those_without_epochs()
        if with_epochs:
            await self._truncate_to_epoch_ends(with_epochs)

    def _cut_those_without_epochs(self) -> dict[TopicPartition, EpochWanted]:
        """Cut to where we began; the others, with what is to be asked about them."""
        now = self.partitions.clock.now()
        with_epochs: dict[TopicPartition, EpochWanted] = {}
        cut: dict[TopicPartition, PartitionFetchState] = {}
        for tp, state in self._states.truncating(now):
            if state.needs_offset:
                continue
            try:
                latest = self._replicas.latest_epoch(tp)
            except (StorageError, UnderstudyError):
                self.partitions.delay([tp])
                continue
            if latest is not None:
                with_epochs[tp] = EpochWanted(state.current_leader_epoch, latest)
            elif self._cut(tp, state, state.fetch_offset, cause="no leader epoch"):
                cut[tp] = self._after_cut(tp, state, state.fetch_offset, completed=True)
        if cut:
            self._regroup(cut)
        return with_epochs

    async def _truncate_to_epoch_ends(self, wanted: Mapping[TopicPartition, EpochWanted]) -> None:
        answers = await self.leader.fetch_epoch_end_offsets(wanted)
        if not answers.keys() <= wanted.keys():
            extra = sorted(answers.keys() - wanted.keys())
            raise ProtocolError(f"broker {self.leader.broker.id} answers for {extra}, unasked")
        ends: dict[TopicPartition, OffsetAndEpoch] = {}
        for tp, asked in wanted.items():
            state = self._states.get(tp)
            if state is None or state.current_leader_epoch != asked.current_leader_epoch:
                continue  # it moved on while we asked
            answer = answers.get(tp, EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
            if answer.error is ErrorCode.NONE:
                ends[tp] = answer.end
            elif answer.error is ErrorCode.FENCED_LEADER_EPOCH:
                self.partitions.on_fenced(tp, asked.current_leader_epoch)
            else:
                self.partitions.delay([tp])
        self.truncate_to_ends(ends, cause="leader epoch")

    # -- where two logs part --------------------------------------------------

    def truncate_to_ends(
        self, ends: Mapping[TopicPartition, OffsetAndEpoch], *, cause: str
    ) -> None:
        """Cut each to where it and the leader may agree; those that cannot be cut have failed."""
        cut: dict[TopicPartition, PartitionFetchState] = {}
        for tp, end in ends.items():
            state = self._states.get(tp)
            if state is None:
                continue
            try:
                found = self._truncation_offset(tp, state, end)
            except Exception as error:  # noqa: BLE001 - one partition's trouble is its own
                self.partitions.fail_after(tp, error)
                continue
            if self._cut(tp, state, found.offset, completed=found.completed, cause=cause):
                cut[tp] = self._after_cut(tp, state, found.offset, completed=found.completed)
        if ends:
            self._regroup(cut)

    def _truncation_offset(
        self, tp: TopicPartition, state: PartitionFetchState, end: OffsetAndEpoch
    ) -> OffsetTruncationState:
        return truncation_offset(
            leader=end,
            fetch_offset=state.fetch_offset,
            log_end=self._replicas.log_end_offset(tp),
            local_end=partial(self._replicas.end_offset_for_epoch, tp),
        )

    def _after_cut(
        self, tp: TopicPartition, state: PartitionFetchState, offset: Offset, *, completed: bool
    ) -> PartitionFetchState:
        fetches = completed or self.partitions.truncation_on_fetch
        return attrs.evolve(
            state,
            fetch_offset=offset,
            last_fetched_epoch=self._replicas.latest_epoch(tp),
            state=ReplicaState.FETCHING if fetches else ReplicaState.TRUNCATING,
        )

    def _regroup(self, cut: Mapping[TopicPartition, PartitionFetchState]) -> None:
        self._states.regroup(cut)
        for tp, state in cut.items():
            self.partitions.tell_if_fetching(tp, state)

    # -- out of range ---------------------------------------------------------

    async def find_offset(self, tp: TopicPartition, state: PartitionFetchState) -> None:
        """Where to go on, given the leader's two ends (fetchOffsetAndTruncate)."""
        try:
            reset = await self._find_reset(tp, state)
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                self.partitions.on_fenced(tp, state.current_leader_epoch)
            elif self._states.get(tp) is state:
                self.partitions.delay([tp])
            return
        except (StorageError, PeerUnavailableError, ProtocolError):
            if self._states.get(tp) is state:
                self.partitions.delay([tp])
            return
        if self._states.get(tp) is state:
            self._reset(tp, state, reset)

    async def _find_reset(self, tp: TopicPartition, state: PartitionFetchState) -> OffsetReset:
        epoch = state.current_leader_epoch
        if self.as_consumer:
            leader_start = (await self.leader.fetch_earliest_offset(tp, epoch)).offset
            return reset_as_consumer(
                leader_start=leader_start, local_end=self._replicas.log_end_offset(tp)
            )
        leader_end = (await self.leader.fetch_latest_offset(tp, epoch)).offset
        local_end = self._replicas.log_end_offset(tp)
        above = reset_above_leader(leader_end=leader_end, local_end=local_end)
        if above is not None:
            return above
        leader_start = (await self.leader.fetch_earliest_offset(tp, epoch)).offset
        return reset_offset(leader_start=leader_start, leader_end=leader_end, local_end=local_end)

    def _reset(self, tp: TopicPartition, state: PartitionFetchState, reset: OffsetReset) -> None:
        cause = "offset out of range"
        if reset.reset is Reset.CUT and not self._cut(tp, state, reset.fetch_offset, cause=cause):
            return
        if reset.reset is Reset.START_OVER and not self._start_over(
            tp, state, reset.fetch_offset, cause=cause
        ):
            return
        if reset.reset is Reset.ASK_EPOCHS:
            self._ask_epochs(tp, state, reset.fetch_offset)
            return
        found = attrs.evolve(
            state,
            fetch_offset=reset.fetch_offset,
            lag=reset.lag,
            delayed_until=None,
            state=ReplicaState.FETCHING,
            last_fetched_epoch=self._replicas.latest_epoch(tp),
        )
        self._states.update_and_move_to_end(tp, found)
        self.partitions.stats.set_lag(tp, reset.lag)
        self.partitions.tell_if_fetching(tp, found)

    def _ask_epochs(
        self, tp: TopicPartition, state: PartitionFetchState, fetch_offset: Offset
    ) -> None:
        """After a while, for a leader whose epochs say nothing either is asked for ever."""
        asking = attrs.evolve(state, fetch_offset=fetch_offset, state=ReplicaState.TRUNCATING)
        self._states.update_and_move_to_end(tp, asking)
        self.partitions.tell_refused(tp, state.current_leader_epoch, ErrorCode.OFFSET_OUT_OF_RANGE)
        self.partitions.delay([tp])

    # -- the log --------------------------------------------------------------

    def _cut(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        offset: Offset,
        *,
        completed: bool = True,
        cause: str,
    ) -> bool:
        return self._shorten(
            tp,
            state,
            lambda: self._replicas.truncate_to(tp, offset, completed=completed),
            cause=cause,
        )

    def _start_over(
        self, tp: TopicPartition, state: PartitionFetchState, offset: Offset, *, cause: str
    ) -> bool:
        return self._shorten(
            tp,
            state,
            lambda: self._replicas.truncate_fully_and_start_at(tp, offset),
            cause=cause,
        )

    def _shorten(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        shorten: Callable[[], None],
        *,
        cause: str,
    ) -> bool:
        """Do it and tell; False where it could not be done, and the partition has failed."""
        replicas = self._replicas
        try:
            from_offset = replicas.log_end_offset(tp)
            high_watermark = replicas.high_watermark(tp)
            shorten()
            to_offset = replicas.log_end_offset(tp)
        except Exception as error:  # noqa: BLE001 - one partition's trouble is its own
            self.partitions.fail_after(tp, error)
            return False
        if to_offset != from_offset:
            self.partitions.sink(
                LogTruncated(
                    partition=tp,
                    from_offset=from_offset,
                    to_offset=to_offset,
                    high_watermark=high_watermark,
                    cause=cause,
                    leader_epoch=state.current_leader_epoch,
                )
            )
        return True
