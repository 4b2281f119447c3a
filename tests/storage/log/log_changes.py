"""What a log goes through while its process lives, done to its naive twin as well.

The rules of `log_machine` but for those that end a life. A change of another kind is a rule in a
subclass, or here.
"""

import contextlib
from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from storage.batch.record_batch import read_header
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_control_batch
from storage.config import LogConfig
from storage.errors import OutOfOrderSequenceError
from storage.log.log import Log
from storage.types import LeaderEpoch, Offset, TopicPartition
from tests.storage.compacting import compact
from tests.storage.log.naive_log import NaiveLog
from tests.storage.logs import WALL_MS, batch, joined, new_disk, small_config, started

T0 = TopicPartition("t", 0)
ID = b"\1" * 16
# Idempotent ones, and transactional ones.
IDEMPOTENT, TRANSACTIONAL = (1, 2), (11, 12)
_PARTS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 150), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=8,
)


class LogChanges(RuleBasedStateMachine):
    config: LogConfig = small_config()

    def __init__(self) -> None:
        super().__init__()
        self.naive = NaiveLog()
        self.epoch: LeaderEpoch = 0
        self.producer_epochs = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), -1)
        # States that a power cut may take the log back to, and how much of each must be left.
        self.branches: list[list[bytes]] = []
        self.synced: Offset = 0
        self.serial = 0
        # Below it things may be gone.
        self.start: Offset = 0

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = new_disk(seed)
        self.start_up()
        self.log: Log = self.logs.get_or_create(T0, ID)
        self.log.flush()

    def start_up(self) -> None:
        self.logs = started(self.disk, config=self.config)

    # Batches.

    def make(self, count: int, size: int, *, at: Offset = 0, epoch: int = -1) -> memoryview:
        self.serial += 1
        key = self.serial.to_bytes(4, "big")
        return batch(count, at=at, epoch=epoch, size=size, key=key, timestamp=WALL_MS + self.serial)

    def make_next_of(
        self, producer: int, count: int, *, at: Offset = 0, epoch: int = -1, ahead: int = 0
    ) -> memoryview:
        """Return what `producer` sends next, in a new epoch where the log may have forgotten it."""
        self.serial += 1
        known = self.naive.producers().get(producer)
        if known is None or known.last_data_offset < self.log.log_start_offset:
            self.producer_epochs[producer] += 1
            sequence = 0
        else:
            self.producer_epochs[producer] = known.epoch
            sequence = known.last_sequence + 1
        return batch(
            count,
            at=at,
            epoch=epoch,
            timestamp=WALL_MS + self.serial,
            producer_id=producer,
            producer_epoch=self.producer_epochs[producer],
            base_sequence=sequence + ahead,
            transactional=producer in TRANSACTIONAL,
        )

    def make_marker(self, producer: int, kind: ControlRecordType) -> memoryview:
        self.serial += 1
        marker = encode_control_batch(
            EndTransactionMarker(kind, 0),
            timestamp=WALL_MS + self.serial,
            producer_id=producer,
            producer_epoch=self.naive.producers()[producer].epoch,
        )
        return memoryview(bytearray(marker))

    def lead(self, records: memoryview, *, from_client: bool = True) -> None:
        info = self.log.append_as_leader(
            records, leader_epoch=self.epoch, wall_ms=WALL_MS, from_client=from_client
        )
        assert info.first_offset == self.naive.end
        self.naive.took(bytes(records))

    # Appending.

    @rule(count=st.integers(1, 4), size=st.integers(0, 150))
    def append_as_leader(self, count: int, size: int) -> None:
        self.lead(self.make(count, size))

    @rule(parts=_PARTS, producer=st.sampled_from([None, 1, 11]))
    def append_as_follower(
        self, parts: list[tuple[int, int, int, bool]], producer: int | None
    ) -> None:
        before, made = NaiveLog([*self.naive.batches], self.naive.end), []
        for count, size, gap, new_epoch in parts:
            self.epoch += new_epoch
            at = self.naive.end + gap
            if producer is None:
                made.append(self.make(count, size, at=at, epoch=self.epoch))
            else:
                made.append(self.make_next_of(producer, count, at=at, epoch=self.epoch))
            self.naive.took(bytes(made[-1]))
        try:
            info = self.log.append_as_follower(joined(*made))
        except BaseException:
            self.naive = before
            raise
        assert info.last_offset == self.naive.end - 1

    @rule(
        producer=st.sampled_from(IDEMPOTENT + TRANSACTIONAL),
        count=st.integers(1, 4),
        retry=st.booleans(),
    )
    def append_as_a_producer(self, producer: int, count: int, retry: bool) -> None:
        records = self.make_next_of(producer, count)
        first = self.naive.end
        again = memoryview(bytearray(records))
        self.lead(records)
        if retry:
            info = self.log.append_as_leader(again, leader_epoch=self.epoch, wall_ms=WALL_MS)
            assert (info.duplicate, info.first_offset) == (True, first)

    @rule(producer=st.sampled_from(IDEMPOTENT), ahead=st.integers(1, 5))
    def append_what_does_not_follow(self, producer: int, ahead: int) -> None:
        known = self.naive.producers().get(producer)
        if known is None or known.last_data_offset < self.log.log_start_offset:
            return  # a producer that the log does not know may begin anywhere
        records = self.make_next_of(producer, 1, ahead=ahead)
        with contextlib.suppress(OutOfOrderSequenceError):
            self.log.append_as_leader(records, leader_epoch=self.epoch, wall_ms=WALL_MS)
            raise AssertionError("a sequence was left out")

    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_a_transaction(self, producer: int, commit: bool) -> None:
        known = self.naive.producers().get(producer)
        if known is not None and known.open_since is not None:
            kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
            self.lead(self.make_marker(producer, kind), from_client=False)

    @rule()
    def lead_a_new_epoch(self) -> None:
        self.epoch += 1
        self.log.leader_epoch_cache.assign(self.epoch, self.naive.end)
        self.log.leader_epoch_cache.flush()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # Truncating.

    @rule(share=st.floats(0, 1.1))
    def truncate(self, share: float) -> None:
        self.truncate_to(int(self.naive.end * share))

    @precondition(lambda self: any(read_header(b).last_offset_delta for b in self.naive.batches))
    @rule(data=st.data())
    def truncate_inside_a_batch(self, data: st.DataObject) -> None:
        wide = [read_header(each) for each in self.naive.batches]
        inside = [h for h in wide if h.last_offset_delta and h.base_offset >= self.start]
        if inside:
            self.truncate_to(data.draw(st.sampled_from(inside)).last_offset)

    def truncate_to(self, offset: Offset) -> None:
        changed = self.log.truncate_to(offset)
        assert changed == (offset < self.naive.end)
        if changed:
            self.branches.append(list(self.naive.batches))
            self.naive.cut(offset)
            self.synced = min(self.synced, offset)
            self.epoch += 1  # nobody truncates but for a new leader

    @precondition(lambda self: self.naive.end > 50)
    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.branches.append(list(self.naive.batches))
        end = self.naive.end + ahead
        self.log.truncate_fully_and_start_at(end)
        self.naive, self.synced = NaiveLog([], end), 0
        self.epoch += 1

    # Syncing, and giving up what is old.

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.naive.end
        self.synced, self.branches = self.naive.end, []

    @rule()
    def checkpoint(self) -> None:
        self.logs.checkpoint_recovery_points()

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        self.log.update_high_watermark(int(self.naive.end * share))

    @rule(share=st.floats(0, 1), delete=st.booleans(), checkpoint=st.booleans())
    def move_log_start(self, share: float, delete: bool, checkpoint: bool) -> None:
        low, high = self.log.log_start_offset, self.log.high_watermark
        offset = low + int((high - low) * share)
        assert self.log.increment_log_start_offset(offset) == (offset > low)
        self.start = max(self.start, offset)
        if delete:
            self.log.delete_segments_below_log_start()
        if checkpoint:
            self.logs.checkpoint_log_start_offsets()

    @rule(share=st.floats(0, 1), by_time=st.booleans())
    def retain(self, share: float, by_time: bool) -> None:
        before = self.log.segments.base_offsets
        if by_time:
            self.delete_older_than(share)
        else:
            self.delete_old_segments(share)
        log = self.log
        going = [base for base in before if base < log.segments[0].base_offset]
        assert len(before) == len(going) or log.segments.base_offsets == before[len(going) :]
        assert log.log_end_offset == self.naive.end

    def delete_old_segments(self, share: float) -> None:
        """So much of the log is kept."""
        config = small_config(retention_bytes=int(self.log.size * share), retention_ms=-1)
        self._delete(config, WALL_MS)

    def delete_older_than(self, share: float) -> None:
        """So many of the batches ever made are too old."""
        config = small_config(retention_bytes=-1, retention_ms=0)
        self._delete(config, WALL_MS + int(self.serial * share))

    def _delete(self, config: LogConfig, wall_ms: int) -> None:
        self.log.config = config
        try:
            self.log.delete_old_segments(wall_ms)
        finally:
            self.log.config = self.config
            self.start = max(self.start, self.log.log_start_offset)

    @rule()
    def compact(self) -> None:
        compact(self)

    # What an append that died may have left behind.
    attempted: Sequence[list[bytes]] = ()

    def append_some(self) -> None:
        """As a leader, over the end of a segment, with a producer and a transaction."""
        makes: list[Callable[[], memoryview]] = [
            lambda: self.make(2, 150),
            lambda: self.make_next_of(1, 2),
            lambda: self.make_next_of(11, 3),
            lambda: self.make(1, 700),
        ]
        for make in makes:
            self.attempt(make())

    def abort_a_transaction(self) -> None:
        known = self.naive.producers().get(11)
        if known is not None and known.open_since is not None:
            self.attempt(self.make_marker(11, ControlRecordType.ABORT), from_client=False)

    def attempt(self, records: memoryview, *, from_client: bool = True) -> None:
        before = list(self.naive.batches)
        try:
            self.lead(records, from_client=from_client)
        finally:
            # Stamped in place: this is what was written, if it was.
            self.attempted = [*self.attempted, [*before, bytes(records)]]

    def give_up_half(self) -> None:
        self.log.update_high_watermark(self.naive.end)
        self.move_log_start(0.5, delete=True, checkpoint=True)
