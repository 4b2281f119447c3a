"""A log against a list of batches, through truncations, kills, power cuts and failing disks.

What a power cut may leave is a first part of some state that the log went through since it
was last synced, and all that was synced:

    synced     A B C
    then       truncate to A B, append D E, power cut
    may be     A B C    the truncation was lost, and D E with it
               A B      A B D     A B D E
    never      A, A B E, A B C D, or half of any of them
"""

import contextlib
from itertools import pairwise

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.errors import KafkaStorageError
from storage.log import Log
from storage.log_manager import LogManager
from storage.record_batch import read_header
from storage.testing import Fault
from storage.types import LeaderEpoch, Offset, TopicPartition
from tests.storage.logs import WALL_MS, batch, contents, headers, joined, new_disk, small_config

T0 = TopicPartition("t", 0)
ID = b"\1" * 16


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[bytes] = []
        self.end: Offset = 0
        self.epoch: LeaderEpoch = 0
        # States that a power cut may take the log back to, and how much of each must be left.
        self.branches: list[list[bytes]] = []
        self.synced: Offset = 0
        self.serial = 0
        # Below it things may be gone.
        self.start: Offset = 0

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = new_disk(seed)
        self.logs = LogManager(self.disk, ["/d"], node_id=1, config=small_config())
        self.logs.startup()
        self.log: Log = self.logs.get_or_create(T0, ID)
        self.log.flush()

    # What the model knows of offsets.

    def last_offset(self, each: bytes) -> Offset:
        return read_header(each).last_offset

    def make(self, count: int, size: int, *, at: Offset = 0, epoch: int = -1) -> memoryview:
        self.serial += 1
        key = self.serial.to_bytes(4, "big")
        return batch(count, at=at, epoch=epoch, size=size, key=key, timestamp=WALL_MS + self.serial)

    # Changing it.

    @rule(count=st.integers(1, 4), size=st.integers(0, 150))
    def append_as_leader(self, count: int, size: int) -> None:
        records = self.make(count, size)
        info = self.log.append_as_leader(records, leader_epoch=self.epoch, wall_ms=WALL_MS)
        assert info.first_offset == self.end
        self.took(bytes(records))

    @rule(
        parts=st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 150), st.integers(0, 3), st.booleans()),
            min_size=1,
            max_size=8,
        )
    )
    def append_as_follower(self, parts: list[tuple[int, int, int, bool]]) -> None:
        made = []
        end = self.end
        for count, size, gap, new_epoch in parts:
            self.epoch += new_epoch
            made.append(self.make(count, size, at=end + gap, epoch=self.epoch))
            end += gap + count
        info = self.log.append_as_follower(joined(*made))
        assert info.last_offset == end - 1
        for each in made:
            self.took(bytes(each))

    def took(self, each: bytes) -> None:
        self.batches.append(each)
        self.end = self.last_offset(each) + 1

    @rule()
    def lead_a_new_epoch(self) -> None:
        self.epoch += 1
        self.log.leader_epoch_cache.assign(self.epoch, self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(share=st.floats(0, 1.1))
    def truncate(self, share: float) -> None:
        offset = int(self.end * share)
        changed = self.log.truncate_to(offset)
        assert changed == (offset < self.end)
        self.truncated(offset)

    def truncated(self, offset: Offset) -> None:
        if offset < self.end:
            self.branches.append(list(self.batches))
            self.batches = [each for each in self.batches if self.last_offset(each) < offset]
            self.end = offset
            self.synced = min(self.synced, offset)
            self.epoch += 1  # nobody truncates but for a new leader

    @precondition(lambda self: self.end > 50)
    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.branches.append(list(self.batches))
        self.log.truncate_fully_and_start_at(self.end + ahead)
        self.batches, self.end, self.synced = [], self.end + ahead, 0
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end
        self.synced, self.branches = self.end, []

    @rule()
    def checkpoint(self) -> None:
        self.logs.checkpoint_recovery_points()

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        self.log.update_high_watermark(int(self.end * share))

    @rule(share=st.floats(0, 1), delete=st.booleans(), checkpoint=st.booleans())
    def move_log_start(self, share: float, delete: bool, checkpoint: bool) -> None:
        low, high = self.log.log_start_offset, self.log.high_watermark
        offset = low + int((high - low) * share)
        assert self.log.increment_log_start_offset(offset) == (offset > low)
        if delete:
            self.log.delete_segments_below_log_start()
        if checkpoint:
            self.logs.checkpoint_log_start_offsets()
        self.start = max(self.start, offset)

    @rule(share=st.floats(0, 1))
    def retain(self, share: float) -> None:
        before = self.log.segments.base_offsets
        self.delete_old_segments(share)
        log = self.log
        going = [base for base in before if base < log.segments[0].base_offset]
        assert len(before) == len(going) or log.segments.base_offsets == before[len(going) :]
        assert log.log_end_offset == self.end

    def delete_old_segments(self, share: float) -> None:
        """So much of the log is kept."""
        size = int(self.log.size * share)
        self.log.config = small_config(retention_bytes=size, retention_ms=-1)
        try:
            self.log.delete_old_segments(WALL_MS)
        finally:
            self.start = max(self.start, self.log.log_start_offset)

    # Ending it.

    @rule()
    def shut_down_and_restart(self) -> None:
        self.logs.shutdown(3)
        self.restart()
        assert self.logs.previous_broker_epoch == 3
        self.expect([self.batches], at_least=self.end)
        self.synced, self.branches = self.end, []

    @rule()
    def be_killed(self) -> None:
        self.disk.detach()
        self.logs.close_uncleanly()
        self.restart()
        self.expect([self.batches], at_least=self.end)

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.logs.close_uncleanly()
        self.restart()
        self.expect([*self.branches, self.batches], at_least=self.synced)
        self.synced, self.branches = self.end, []

    @rule(
        what=st.sampled_from(
            ["append", "truncate", "truncate all", "flush", "roll", "retain", "shut down"]
        ),
        after=st.integers(0, 20),
        again=st.integers(0, 30),
        power=st.booleans(),
    )
    def die_in_the_middle(self, what: str, after: int, again: int, power: bool) -> None:
        self.disk.die_after(after)
        records = self.make(2, 50)
        before = list(self.batches)
        low = self.synced
        try:
            if what == "append":
                self.log.append_as_leader(records, leader_epoch=self.epoch, wall_ms=WALL_MS)
            elif what == "truncate":
                low = min(low, self.end // 2)
                self.log.truncate_to(self.end // 2)
            elif what == "truncate all":
                low = 0
                self.log.truncate_fully_and_start_at(self.end)
            elif what == "flush":
                self.log.flush()
            elif what == "roll":
                self.log.roll()
            elif what == "retain":
                self.delete_old_segments(0.5)
            else:
                self.logs.shutdown(4)
        except KafkaStorageError:
            pass
        self.end_this_life(power=power)
        # And once more while it recovers.
        self.disk.die_after(again)
        logs = LogManager(self.disk, ["/d"], node_id=1, config=small_config())
        with contextlib.suppress(KafkaStorageError, OSError):
            logs.startup()
        logs.close_uncleanly()
        self.end_this_life(power=power)
        self.restart()
        branches = [*self.branches, before]
        if what == "append":
            branches.append([*before, bytes(records)])
        untouched = not power and "truncate" not in what
        self.expect(branches, at_least=self.end if untouched else low)
        self.synced = self.end if power else min(low, self.end)
        self.branches = [] if power else branches

    def end_this_life(self, *, power: bool) -> None:
        if power:
            self.disk.crash()
        else:
            self.disk.detach()
        self.logs.close_uncleanly()
        self.disk = self.disk.reopen()

    @rule()
    def fail_to_write(self) -> None:
        self.disk.inject(Fault(operation="write", names="*.log", partial=True))
        for _ in range(2):
            try:
                self.log.append_as_leader(
                    self.make(1, 50), leader_epoch=self.epoch, wall_ms=WALL_MS
                )
            except KafkaStorageError:
                continue
            raise AssertionError("appended after a failed write")
        self.be_killed()

    def restart(self) -> None:
        if self.disk.detached:
            self.disk = self.disk.reopen()
        self.logs = LogManager(self.disk, ["/d"], node_id=1, config=small_config())
        self.logs.startup()
        self.log = self.logs.get_or_create(T0, ID)
        assert self.log.topic_id == ID

    def expect(self, branches: list[list[bytes]], *, at_least: Offset) -> None:
        """The log is a first part of one of `branches`, and holds all below `at_least`."""
        found = [bytes(each) for each in self.split(contents(self.log))]
        for branch in branches:
            # A crash may bring back what was given up below the log start.
            held = [
                each for each in branch if each in found or self.last_offset(each) >= self.start
            ]
            needed = [each for each in held if self.last_offset(each) < at_least]
            if found == held[: len(found)] and len(found) >= len(needed):
                break
        else:
            raise AssertionError(f"{len(found)} batches are no first part of any state")
        self.batches = found
        self.start = min(self.start, self.log.log_start_offset)
        self.end = self.log.log_end_offset
        if found:
            assert self.end > self.last_offset(found[-1])
        self.epoch = max(self.epoch, self.log.latest_epoch or 0) + 1

    def split(self, data: bytes) -> list[bytes]:
        position, parts = 0, []
        while position < len(data):
            size = read_header(data, position).size
            parts.append(data[position : position + size])
            position += size
        return parts

    # What always holds.

    @invariant()
    def the_log_is_its_batches(self) -> None:
        start = self.log.log_start_offset
        held = [each for each in self.batches if self.last_offset(each) >= start]
        assert contents(self.log) == b"".join(held)
        assert self.log.log_end_offset == self.end
        assert self.log.size >= sum(map(len, held))

    @invariant()
    def the_marks_are_in_order(self) -> None:
        log = self.log
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.log_start_offset >= log.segments[0].base_offset
        assert log.recovery_point <= log.log_end_offset

    @invariant()
    def the_epochs_are_those_of_the_batches(self) -> None:
        """An epoch that wrote nothing (or whose batch was cut whole) may stand between."""
        cache = self.log.leader_epoch_cache
        for header in headers(self.log):
            if header.base_offset >= self.log.log_start_offset:
                assert cache.epoch_for_offset(header.base_offset) == header.leader_epoch
            assert cache.epoch_for_offset(header.last_offset) == header.leader_epoch
        entries = cache.entries
        for earlier, later in pairwise(entries):
            assert earlier.epoch < later.epoch
            assert earlier.start_offset < later.start_offset
        assert all(entry.start_offset <= self.end for entry in entries)

    @invariant()
    def every_offset_leads_to_its_batch(self) -> None:
        start = self.log.log_start_offset
        for each in self.batches[:: max(1, len(self.batches) // 5)]:
            header = read_header(each)
            if header.base_offset < start:
                continue
            for offset in (header.base_offset, header.last_offset):
                data = self.log.read(
                    offset, 1, max_offset_exclusive=self.log.log_end_offset, min_one=True
                )
                assert data.records is not None
                assert data.records.read() == each

    @invariant()
    def time_leads_to_the_first_batch_that_is_young_enough(self) -> None:
        start = self.log.log_start_offset
        for each in self.batches[:: max(1, len(self.batches) // 3)]:
            header = read_header(each)
            if header.base_offset < start:
                continue
            found = self.log.offset_for_timestamp(header.max_timestamp)
            assert found is not None
            assert found.offset == header.base_offset


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=20)
