"""What a fetch and a ListOffsets see of one log: how far, from where, and on which branch.

    log start            high watermark            log end
        [ ─────────────────── ) ────────────────────── )
          consumers read here      followers read here too

Rule 1: a fetch that says which epoch it has fetched last is first asked whether the two
logs still run side by side (KIP-595). What it names, and where that epoch ends here, tell:

    leader    [e0: 0-1][e3: 2-7][e4: 8-12]
    follower  [e0: 0-3]                      fetches 4 after epoch 0: they part at 2

Rule 2: below the log start nothing can be compared: out of range comes before divergence.

Rule 3: most fetches of most partitions find nothing new, so that answer is kept, and made
anew only when the offsets in it have changed.
"""

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.leader.rules.fetch_data import (
    AbortedTransaction,
    FetchInfo,
    FetchPartitionData,
    Isolation,
)
from storage.errors import StorageError
from storage.log.log import Log
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, Offset, OffsetAndEpoch


@attrs.define(eq=False)
class LogReader:
    """Reads `log` for others."""

    log: Log
    _idle_answer: FetchPartitionData = attrs.field(factory=FetchPartitionData, init=False)

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
        """The records at `info.fetch_offset`, or where the two logs part, or nothing new."""
        idle = self.idle(isolation)
        diverging = self.diverging(info)
        if diverging is not None:
            return attrs.evolve(idle, diverging_epoch=diverging)
        end = self.end_for(isolation)
        if info.fetch_offset == end:
            return idle
        data = self.log.read(
            info.fetch_offset,
            max_bytes,
            max_offset_exclusive=end,
            min_one=min_one,
            passes_empty=passes_empty,
        )
        if data.records is None or (data.first_entry_incomplete and not allow_incomplete):
            return idle
        aborted: tuple[AbortedTransaction, ...] | None = None
        if isolation is Isolation.LAST_STABLE:
            aborted = tuple(
                AbortedTransaction(each.producer_id, each.first_offset)
                for each in self.log.aborted_transactions(data)
            )
        return FetchPartitionData(
            high_watermark=idle.high_watermark,
            last_stable_offset=idle.last_stable_offset,
            log_start_offset=idle.log_start_offset,
            records=data.records,
            aborted_transactions=aborted,
        )

    def idle(self, isolation: Isolation) -> FetchPartitionData:
        """The answer without records (Rule 3)."""
        log, idle = self.log, self._idle_answer
        aborted: tuple[AbortedTransaction, ...] | None = (
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
        """How far such a reader may see."""
        match isolation:
            case Isolation.LOG_END:
                return self.log.log_end_offset
            case Isolation.HIGH_WATERMARK:
                return self.log.high_watermark
            case Isolation.LAST_STABLE:
                return self.log.last_stable_offset

    def diverging(self, info: FetchInfo) -> OffsetAndEpoch | None:
        """Where the fetcher's log and this one part, if their epochs show that they do."""
        asked = info.last_fetched_epoch
        if asked == NO_LEADER_EPOCH:
            return None
        end = self.log.end_offset_for_epoch(asked)
        if end.offset == NO_OFFSET or end.leader_epoch == NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {asked} is not known here")
        log_start = self.log.log_start_offset
        if info.fetch_offset < log_start:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log starts at {log_start}")
        if end.leader_epoch < asked or end.offset < info.fetch_offset:
            return end
        return None

    def available_bytes(self, info: FetchInfo, isolation: Isolation, *, enough: int) -> int | None:
        """What a waiting fetch would get now, or `enough` if it is surely that; None where
        it is to be answered at once.

        That is so where this log has been cut below its offset, shows it another branch, or has
        failed: whoever asks has only moved something else, and is not the one to tell.
        """
        try:
            if self.diverging(info) is not None:
                return None
        except KafkaError:
            return None
        end = self.end_for(isolation)
        if info.fetch_offset >= end:
            return 0 if info.fetch_offset == end else None
        if enough <= 1:
            return 1  # there is a record, and nobody needs to know how large it is
        try:
            data = self.log.read(
                info.fetch_offset, max(0, info.max_bytes), max_offset_exclusive=end, min_one=True
            )
        except StorageError:
            return None
        return 0 if data.records is None else data.records.size
