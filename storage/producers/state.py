"""The last batches of each idempotent producer, so that a retry is not written twice (KIP-98).

    producer 7, epoch 0     the last five batches, as (first sequence - last sequence -> offsets)
                            0-4 -> 100-104, 5-5 -> 105, 6-9 -> 110-113
    next batch 10-12        appended: it follows
               6-9          a duplicate: answered with 110-113, nothing written
               12-13        OutOfOrderSequenceError: 10 is missing

Rule 1: `check` comes before the write and changes nothing; `update` comes after it. A leader asks
of a batch that

    its epoch        is not below the last one; that of a marker, under version 2 (KIP-890), above it
    its sequence     is the next one, or 0 in a new epoch
    its coordinator, of a marker, has not been replaced

Rule 2: a new epoch starts at sequence 0. A producer that we know nothing of (any more) may
start anywhere. Sequences wrap from 2^31-1 to 0.

Rule 3: a replica takes what its leader took: `update` checks nothing.

Rule 4: what opens a transaction has been asked about (`storage.producers.verification`).

Rule 5: the state is a function of the log. A snapshot (`<offset>.snapshot`) is that state just
before `offset`, and saves reading the log up to there. One that does not parse is deleted
and the one before it is taken.

A transaction's records are unstable from its first offset until it has ended *and* its end
is below the high watermark; the least of these is the first unstable offset.

(ProducerStateManager, ProducerAppendInfo in Kafka.)
"""

from collections.abc import Collection
from typing import Final

import attrs

from storage.attributes import define, frozen
from storage.batch.record_batch import NO_PRODUCER_EPOCH, BatchHeader, next_sequence
from storage.batch.records import ControlRecordType, EndTransactionMarker
from storage.checkpoint import read_file
from storage.errors import (
    CheckpointError,
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from storage.filesystem import FileSystem
from storage.producers.snapshot import (
    SNAPSHOT_BYTES,
    BatchMetadata,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    snapshot_path,
)
from storage.producers.verification import (
    NO_TERMS,
    TransactionTerms,
    VerificationGuard,
    Verifications,
)
from storage.types import Offset

# producer.id.expiration.ms
DEFAULT_EXPIRATION_MS: Final = 86_400_000


@frozen(kw_only=True)
class CompletedTransaction:
    """A transaction's first offset, and that of the marker that ended it."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    aborted: bool


@define(eq=False)
class ProducerStateManager:
    """The producers of one log, whose snapshots lie in `directory`."""

    file_system: FileSystem
    directory: str
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    # The offsets of the snapshots in the directory, where it has been listed already.
    _snapshots: set[Offset] = attrs.field(
        kw_only=True,
        default=attrs.Factory(
            lambda self: set(list_snapshots(self.file_system, self.directory)), takes_self=True
        ),
    )
    producers: dict[int, ProducerState] = attrs.field(init=False, factory=dict)
    # Everything below it is in `producers`.
    map_end_offset: Offset = attrs.field(init=False, default=0)
    last_snapshot_offset: Offset = attrs.field(init=False, default=0)
    # A snapshot's name is gone, and may come back in a crash.
    _removal_unsynced: bool = attrs.field(init=False, default=False)
    # First offset -> producer id, and first offset -> offset of the marker.
    _ongoing: dict[Offset, int] = attrs.field(init=False, factory=dict)
    _unreplicated: dict[Offset, Offset] = attrs.field(init=False, factory=dict)
    _verifications: Verifications = attrs.field(init=False, factory=Verifications)

    # Appending.

    def begin_verification(
        self,
        producer_id: int,
        *,
        producer_epoch: int,
        sequence: int,
        bumps_epoch: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Return a guard for a batch that would open a transaction; None where one is open."""
        if self._has_open_transaction(producer_id, producer_epoch):
            return None
        return self._verifications.begin(
            producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            bumps_epoch=bumps_epoch,
            now_ms=now_ms,
        )

    def is_verifying(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Return whether the verification still counts: no batch and no end marker has come in
        between.
        """
        return self._verifications.holds(producer_id, guard)

    def _has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        state = self.producers.get(producer_id)
        return (
            state is not None
            and state.transaction_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def check(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker | None = None,
        *,
        from_client: bool = True,
        terms: TransactionTerms = NO_TERMS,
    ) -> BatchMetadata | None:
        """Return the batch that `header` repeats, if it does, before it is written. Raise
        ProducerStateError if it may not follow.

        `marker` is what a control batch says. What is not `from_client` has no sequence.
        """
        if not header.has_producer:
            return None
        state = self.producers.get(header.producer_id)
        is_data = not header.is_control
        if is_data and from_client and state and (duplicate := state.find_duplicate(header)):
            return duplicate
        if state is not None:
            check_epoch(state, header, terms)
        if header.is_control:
            check_coordinator(state, marker)
            return None
        opens = header.is_transactional and not self._has_open_transaction(
            header.producer_id, header.producer_epoch
        )
        if opens and terms.must_be_verified:
            self._verifications.check_guard(header, terms.guard)
        if from_client:
            self._check_sequence(state, header)
        if state and state.transaction_first_offset is not None and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has a transaction open,"
                " and this batch is not part of it"
            )
        return None

    def _check_sequence(self, state: ProducerState | None, header: BatchHeader) -> None:
        is_first = state is None or not state.batches
        self._verifications.check_sequence(header, is_first=is_first)
        if state is not None:
            check_sequence(state, header)

    def update(
        self, header: BatchHeader, marker: EndTransactionMarker | None = None
    ) -> CompletedTransaction | None:
        """Note that `header` is in the log; return the transaction that it ends, if it does."""
        completed = None
        if header.has_producer and header.is_control:
            completed = self._end_transaction(header, marker) if marker else None
        elif header.has_producer:
            self._add_batch(header)
        if header.is_transactional:  # it is open, or over: nothing that was asked before counts
            self._verifications.done(header.producer_id)
        self.update_map_end_offset(header.next_offset)
        return completed

    def update_map_end_offset(self, offset: Offset) -> None:
        """Note that the log now ends at `offset`."""
        self.map_end_offset = offset

    def _add_batch(self, header: BatchHeader) -> None:
        state = self._state_of(header.producer_id)
        state.move_to_epoch(header.producer_epoch)
        state.batches.append(
            BatchMetadata(
                last_sequence=header.last_sequence,
                last_offset=header.last_offset,
                offset_delta=header.last_offset_delta,
                timestamp=header.max_timestamp,
            )
        )
        state.last_timestamp = header.max_timestamp
        if header.is_transactional and state.transaction_first_offset is None:
            state.transaction_first_offset = header.base_offset
            self._ongoing[header.base_offset] = header.producer_id

    def _end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker
    ) -> CompletedTransaction | None:
        state = self._state_of(header.producer_id)
        state.move_to_epoch(header.producer_epoch)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = header.max_timestamp
        first_offset, state.transaction_first_offset = state.transaction_first_offset, None
        if first_offset is None:
            return None  # a transaction that wrote nothing to this partition
        return CompletedTransaction(
            producer_id=header.producer_id,
            first_offset=first_offset,
            last_offset=header.base_offset,
            aborted=marker.type is ControlRecordType.ABORT,
        )

    def _state_of(self, producer_id: int) -> ProducerState:
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_id)
        return state

    # Transactions.

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """Return where the log is stable up to once `completed` is, for its entry in the
        `.txnindex`.
        """
        others = (first for first in self._ongoing if first != completed.first_offset)
        return min(others, default=completed.last_offset + 1)

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Note the end of a transaction, which is stable once the high watermark has passed it."""
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    @property
    def first_unstable_offset(self) -> Offset | None:
        if not self._ongoing and not self._unreplicated:
            return None
        return min((*self._ongoing, *self._unreplicated))

    @property
    def oldest_transaction_timestamp(self) -> int | None:
        """The time at which its producer last wrote here; None where no transaction is open."""
        oldest = min(self._ongoing, default=None)
        return None if oldest is None else self.producers[self._ongoing[oldest]].last_timestamp

    def on_high_watermark_updated(self, high_watermark: Offset) -> None:
        """Note that the transactions that ended below the high watermark are stable."""
        if not self._unreplicated:
            return
        for first in [f for f, last in self._unreplicated.items() if last < high_watermark]:
            del self._unreplicated[first]

    def on_log_start_offset_incremented(self, log_start_offset: Offset) -> None:
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self.last_snapshot_offset = max(self._snapshots, default=log_start_offset)

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers that have been silent for `expiration_ms`."""
        for state in [s for s in self.producers.values() if self._has_expired(s, now_ms)]:
            del self.producers[state.producer_id]
        self._verifications.remove_expired(now_ms=now_ms, expiration_ms=self.expiration_ms)

    def _has_expired(self, state: ProducerState, now_ms: int) -> bool:
        silent = now_ms - state.last_timestamp >= self.expiration_ms
        return silent and state.transaction_first_offset is None

    # Truncation.

    def truncate_and_reload(
        self, log_start_offset: Offset, log_end_offset: Offset, *, now_ms: int | None = None
    ) -> None:
        """Go back to the last snapshot inside of the log, which is [start, end) now.

        The caller then feeds `update` the batches from `map_end_offset` to the end. `now_ms`
        leaves out producers that have expired meanwhile.
        """
        for offset in sorted(self._snapshots):
            if offset > log_end_offset or offset <= log_start_offset:
                self.delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            self._clear()
            self._load_latest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Forget producers and snapshots: the log is empty and starts at `offset`."""
        self._clear()
        for snapshot in sorted(self._snapshots):
            self.delete_snapshot(snapshot)
        self.last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_latest_snapshot(self, log_start_offset: Offset, now_ms: int | None) -> None:
        for offset in sorted(self._snapshots, reverse=True):
            path = self.snapshot_path(offset)
            try:
                data = read_file(self.file_system, path, most=SNAPSHOT_BYTES)
                states = decode_snapshot(data or b"")
            except (CorruptRecordError, CheckpointError):
                self.delete_snapshot(offset)
                continue
            for state in states:
                if now_ms is None or not self._has_expired(state, now_ms):
                    self._load(state)
            self.last_snapshot_offset = self.map_end_offset = offset
            return
        self.last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load(self, state: ProducerState) -> None:
        self.producers[state.producer_id] = state
        if state.transaction_first_offset is not None:
            self._ongoing[state.transaction_first_offset] = state.producer_id

    # Snapshots.

    @property
    def snapshots(self) -> list[Offset]:
        """The offsets of the snapshots, in order."""
        return sorted(self._snapshots)

    @property
    def latest_snapshot_offset(self) -> Offset | None:
        return max(self._snapshots, default=None)

    def snapshot_path(self, offset: Offset) -> str:
        return snapshot_path(self.directory, offset)

    def take_snapshot(self) -> bool:
        """Write the state at `map_end_offset`, unless nothing was added since the last snapshot; return
        whether that made a file.

        The next flush of the log syncs the file.
        """
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return False
        file = self.file_system.open(self.snapshot_path(offset), create=True)
        try:
            file.truncate(0)
            file.write(0, encode_snapshot(self.producers.values()))
        finally:
            file.close()
        self._snapshots.add(offset)
        self.last_snapshot_offset = offset
        return True

    def delete_snapshot(self, offset: Offset) -> None:
        """Remove the snapshot of `offset`, if there is one."""
        self._snapshots.discard(offset)
        self.file_system.remove(self.snapshot_path(offset))
        self._removal_unsynced = True

    def sync_removals(self) -> None:
        """Make sure that no deleted snapshot comes back: the log is about to go on differently,
        and would take what that one says for its own.
        """
        if self._removal_unsynced:
            self.file_system.sync_directory(self.directory)
            self._removal_unsynced = False

    def remove_stray_snapshots(self, segment_base_offsets: Collection[Offset]) -> None:
        """Delete all snapshots but those at a segment's base, and the newest if it is beyond them
        all.
        """
        strays = sorted(self._snapshots - set(segment_base_offsets))
        if strays and strays[-1] >= max(segment_base_offsets, default=strays[-1]):
            strays.pop()
        for offset in strays:
            self.delete_snapshot(offset)


def check_epoch(state: ProducerState, header: BatchHeader, terms: TransactionTerms) -> None:
    last = state.producer_epoch
    if header.is_control and terms.marker_bumps_epoch and header.producer_epoch == last:
        # Under version 2 a marker ends what has the epoch before. With nothing open it is one
        # that has been written already; else it is late, and what is open is not what it ends.
        if state.transaction_first_offset is None:
            return
    elif header.producer_epoch >= last:
        return
    raise InvalidProducerEpochError(
        f"epoch {header.producer_epoch} of producer {header.producer_id} comes too late:"
        f" its last is {last}"
    )


def check_sequence(state: ProducerState, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != state.producer_epoch:
        if first != 0 and state.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} starts epoch {header.producer_epoch}"
                f" at sequence {first}, not at 0"
            )
    elif first != next_sequence(state.last_sequence):
        raise OutOfOrderSequenceError(
            f"sequence {first} of producer {header.producer_id}, epoch {header.producer_epoch},"
            f" does not follow {state.last_sequence}"
        )


def check_coordinator(state: ProducerState | None, marker: EndTransactionMarker | None) -> None:
    if (
        state is not None
        and marker is not None
        and marker.coordinator_epoch < state.coordinator_epoch
    ):
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {marker.coordinator_epoch} of producer {state.producer_id}"
            f" is older than {state.coordinator_epoch}, its last"
        )
