"""Reads of one log by a fetch or ListOffsets: from where, how far, and where two logs diverge.

    log start            high watermark            log end
        [ ─────────────────── ) ────────────────────── )
          consumers read here      followers read here too

Rule 1: a fetch that names the leader epoch it fetched last is first compared with this log
(KIP-595, `diverging_end`). The two logs diverge where that epoch ends earlier here, or where an
older epoch is the last one that both can have:

    leader    [e0: 0-1][e3: 2-7][e4: 8-12]
    follower  [e0: 0-3]                      fetches 4 after epoch 0: they diverge at 2

Rule 2: below the log start nothing can be compared: out of range comes before divergence.

Rule 3: most fetches of most partitions find nothing new, so that answer is kept, and made
anew only when the offsets in it have changed.

Rule 4: an append answers the followers that wait, one after the other and without a pause. Those that
ask for the same have the same answer, which is not kept beyond that.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.leader.rules.fetch_data import (
    FetchInfo,
    FetchPartitionData,
    Isolation,
)
from replication.wire.fetch import AbortedTransactionData
from storage.attributes import define
from storage.errors import StorageError
from storage.log.log import Log
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, OffsetAndEpoch


class EpochLog(Protocol):
    """A log whose leader epochs can be compared with a follower's."""

    @property
    def log_start_offset(self) -> Offset: ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch, /) -> OffsetAndEpoch:
        """Return the greatest epoch up to `epoch` and where it ends; -1, -1 if there is none."""


def diverging_end(
    log: EpochLog, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch
) -> OffsetAndEpoch | None:
    """Return where the follower's log diverges from `log` (KIP-595), or None if it does not.

    The follower holds records up to `fetch_offset`, the last of them of `last_fetched_epoch`.
    Raises KafkaError (OFFSET_OUT_OF_RANGE) if `log` does not reach back that far.
    """
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    end = log.end_offset_for_epoch(last_fetched_epoch)
    if end.offset == NO_OFFSET or end.leader_epoch == NO_LEADER_EPOCH:
        why = f"epoch {last_fetched_epoch} is not known here"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    if fetch_offset < log.log_start_offset:
        why = f"the log starts at {log.log_start_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    if end.leader_epoch < last_fetched_epoch or end.offset < fetch_offset:
        return end
    return None


_Asked: TypeAlias = tuple[FetchInfo, Isolation, int, bool, bool, bool]


@define(eq=False)
class LogReader:
    """The reads of followers and consumers from `log`."""

    log: Log
    _idle_answer: FetchPartitionData = attrs.field(factory=FetchPartitionData, init=False)
    _shared: dict[_Asked, FetchPartitionData] | None = attrs.field(default=None, init=False)
    """The answers since `share` began; None outside of it."""

    def share(self, answer_those_who_wait: Callable[[], object]) -> None:
        """Call that function, in which the log does not change, and read once for equal fetches."""
        self._shared = {}
        try:
            answer_those_who_wait()
        finally:
            self._shared = None

    def read(
        self,
        info: FetchInfo,
        isolation: Isolation,
        *,
        max_bytes: int,
        min_one: bool,
        allow_incomplete: bool = False,
        passes_empty: bool = False,
    ) -> FetchPartitionData:
        """Return the records at `info.fetch_offset`, or where the logs diverge, or neither."""
        shared = self._shared
        asked = info, isolation, max_bytes, min_one, allow_incomplete, passes_empty
        if shared is not None and asked in shared:
            return shared[asked]
        answer = self._read(
            info,
            isolation,
            max_bytes=max_bytes,
            min_one=min_one,
            allow_incomplete=allow_incomplete,
            passes_empty=passes_empty,
        )
        if shared is not None:
            shared[asked] = answer
        return answer

    def _read(
        self,
        info: FetchInfo,
        isolation: Isolation,
        *,
        max_bytes: int,
        min_one: bool,
        allow_incomplete: bool,
        passes_empty: bool,
    ) -> FetchPartitionData:
        diverging = self._diverging_end(info)
        if diverging is not None:
            return attrs.evolve(self.idle(isolation), diverging_epoch=diverging)
        log, end = self.log, self.end_for(isolation)
        if info.fetch_offset == end:
            return self.idle(isolation)
        data = log.read(
            info.fetch_offset,
            max_bytes,
            max_offset_exclusive=end,
            min_one=min_one,
            passes_empty=passes_empty,
        )
        if data.records is None or (data.first_entry_incomplete and not allow_incomplete):
            return self.idle(isolation)
        aborted: tuple[AbortedTransactionData, ...] | None = None
        if isolation is Isolation.LAST_STABLE:
            aborted = tuple(
                AbortedTransactionData(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.aborted_transactions(data)
            )
        return FetchPartitionData(
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=data.records,
            aborted_transactions=aborted,
        )

    def _diverging_end(self, info: FetchInfo) -> OffsetAndEpoch | None:
        """Return `diverging_end`; most followers are in the latest epoch, and not past its end."""
        log, fetch_offset = self.log, info.fetch_offset
        latest = log.leader_epoch_cache.latest_entry
        if (
            latest is not None
            and latest.epoch == info.last_fetched_epoch
            and log.log_start_offset <= fetch_offset <= log.local.log_end_offset
        ):
            return None
        return diverging_end(
            log, fetch_offset=fetch_offset, last_fetched_epoch=info.last_fetched_epoch
        )

    def idle(self, isolation: Isolation) -> FetchPartitionData:
        """Return the answer without records (Rule 3)."""
        log, idle = self.log, self._idle_answer
        aborted: tuple[AbortedTransactionData, ...] | None = (
            () if isolation is Isolation.LAST_STABLE else None
        )
        if (
            idle.high_watermark != log.high_watermark
            or idle.last_stable_offset != log.last_stable_offset
            or idle.log_start_offset != log.log_start_offset
            or idle.aborted_transactions != aborted
        ):
            idle = self._idle_answer = FetchPartitionData(
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=aborted,
            )
        return idle

    def end_for(self, isolation: Isolation) -> Offset:
        """Return the offset up to which a reader at this isolation may see, exclusive."""
        match isolation:
            case Isolation.LOG_END:
                return self.log.local.log_end_offset
            case Isolation.HIGH_WATERMARK:
                return self.log.high_watermark
            case Isolation.LAST_STABLE:
                return self.log.last_stable_offset

    def available_bytes(self, info: FetchInfo, isolation: Isolation, *, enough: int) -> int | None:
        """Return how many bytes a waiting fetch would get now, at most `enough` if that is certain.

        Return None if the fetch has to be answered at once: this log was truncated below its
        offset, diverges from the follower's log, or has failed.
        """
        try:
            if self._diverging_end(info) is not None:
                return None
        except KafkaError:
            return None
        end = self.end_for(isolation)
        if info.fetch_offset >= end:
            return 0 if info.fetch_offset == end else None
        if enough <= 1:
            return 1  # there is a record, and its size does not matter
        try:
            data = self.log.read(
                info.fetch_offset, max(0, info.max_bytes), max_offset_exclusive=end, min_one=True
            )
        except StorageError:
            return None
        return 0 if data.records is None else data.records.size
