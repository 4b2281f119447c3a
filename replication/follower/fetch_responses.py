"""What becomes of each partition that a fetch was answered about.

    answer                      becomes
    records, or none            appended; the next fetch goes on behind them
    bytes that are not sound    fetched again after a while
    a divergence                left for the truncator
    OFFSET_OUT_OF_RANGE         left for the truncator, which has to ask the leader
    FENCED_LEADER_EPOCH         given up until newer metadata comes
    anything else               asked again after a while

Nothing here is awaited, for the records lie in a receive buffer that the next answer will
overwrite. What takes more than that is handed back as the aftermath.
"""

from collections.abc import Mapping

import attrs

from replication.errors import ErrorCode
from replication.follower.followed_partitions import FollowedPartitions
from replication.follower.followed_replicas import AppendInfo, FollowedReplicas
from replication.follower.rules.fetch_session_handler import WantedPartition
from replication.follower.rules.fetch_state import (
    PartitionFetchState,
    PartitionStates,
    ReplicaState,
)
from replication.wire.fetch import PartitionData
from storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from storage.types import Offset, OffsetAndEpoch, TopicPartition


@attrs.define
class Aftermath:
    """What an answer leaves to be done once its records are appended."""

    diverging: dict[TopicPartition, OffsetAndEpoch] = attrs.field(factory=dict)
    out_of_range: dict[TopicPartition, PartitionFetchState] = attrs.field(factory=dict)
    errors: list[TopicPartition] = attrs.field(factory=list)


@attrs.define
class AnswerProcessor:
    partitions: FollowedPartitions
    _high_watermarks_moved: list[TopicPartition] = attrs.field(init=False, factory=list)

    @property
    def _states(self) -> PartitionStates:
        return self.partitions.states

    @property
    def _replicas(self) -> FollowedReplicas:
        return self.partitions.replicas

    def take_high_watermarks_moved(self) -> list[TopicPartition]:
        """Those that have moved since the last call."""
        moved, self._high_watermarks_moved = self._high_watermarks_moved, []
        return moved

    def process(
        self,
        requested: Mapping[TopicPartition, WantedPartition],
        answers: Mapping[TopicPartition, PartitionData],
    ) -> Aftermath:
        """Append what came. Skips whatever is not where the request said: removed, added
        again, truncated or delayed in the meantime; or followed in another reign, of which
        neither records nor a divergence of the former one say anything (KAFKA-18991).
        """
        aftermath = Aftermath()
        now = self.partitions.clock.now()
        for tp, data in answers.items():
            state, asked = self._states.get(tp), requested.get(tp)
            if (
                state is not None
                and asked is not None
                and state.fetch_offset == asked.fetch_offset
                and state.current_leader_epoch == asked.current_leader_epoch
                and state.is_ready_for_fetch(now)
            ):
                self._process_answer(tp, state, data, aftermath)
        return aftermath

    def _process_answer(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        data: PartitionData,
        aftermath: Aftermath,
    ) -> None:
        diverging = data.diverging_epoch
        match ErrorCode.of(data.error_code):
            case ErrorCode.NONE if self._tells_divergence(data):
                aftermath.diverging[tp] = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
            case ErrorCode.NONE:
                if not self._append(tp, state, data):
                    aftermath.errors.append(tp)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                aftermath.out_of_range[tp] = state
            case ErrorCode.FENCED_LEADER_EPOCH:
                self.partitions.on_fenced(tp, state.current_leader_epoch)
            case _:
                # A leader that has not heard of us, or of itself, yet; one that has moved; a
                # broken disk over there: all of it may be different after a while.
                self.partitions.tell_refused(tp, state.current_leader_epoch, data.error_code)
                aftermath.errors.append(tp)

    def _tells_divergence(self, data: PartitionData) -> bool:
        return self.partitions.truncation_on_fetch and data.diverging_epoch.epoch >= 0

    def _append(self, tp: TopicPartition, state: PartitionFetchState, data: PartitionData) -> bool:
        """False where these bytes must be fetched again. What else goes wrong fails `tp`."""
        try:
            high_watermark = self._replicas.high_watermark(tp)
            self._states.touch(tp)  # its log may start elsewhere now
            appended = self._replicas.process_partition_data(
                tp, state.fetch_offset, state.current_leader_epoch, data
            )
            if self._replicas.high_watermark(tp) != high_watermark:
                self._high_watermarks_moved.append(tp)
        except (RecordTooLargeError, RecordBatchTooLargeError) as error:
            self.partitions.fail_after(tp, error)
        except (CorruptRecordError, InvalidRecordError):
            refused = ErrorCode.CORRUPT_MESSAGE
            self.partitions.tell_refused(tp, state.current_leader_epoch, refused)
            return False
        except Exception as error:  # noqa: BLE001 - one partition's trouble is its own
            self.partitions.fail_after(tp, error)
        else:
            if appended is not None and tp in self._states:
                self._go_on(tp, state, appended, leader_high_watermark=data.high_watermark)
        return True

    def _go_on(
        self,
        tp: TopicPartition,
        state: PartitionFetchState,
        appended: AppendInfo,
        *,
        leader_high_watermark: Offset,
    ) -> None:
        """To the next offset, and to the end of the queue where there was something."""
        any_bytes = appended.valid_bytes > 0
        next_offset = appended.last_offset + 1 if any_bytes else state.fetch_offset
        lag = max(0, leader_high_watermark - next_offset)
        self.partitions.stats.set_lag(tp, lag)
        if any_bytes:
            self.partitions.stats.appended_bytes.mark(appended.valid_bytes)
        if not any_bytes and state.lag is not None:
            return
        self._states.update_and_move_to_end(
            tp,
            attrs.evolve(
                state,
                fetch_offset=next_offset,
                lag=lag,
                delayed_until=None,
                state=ReplicaState.FETCHING,
                last_fetched_epoch=(
                    appended.last_leader_epoch if any_bytes else state.last_fetched_epoch
                ),
            ),
        )
