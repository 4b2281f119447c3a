"""The log against its naive twin: chance walks, and a death at each change to the disk.

The rules are those of `log_machine`; here stands what always holds.
"""

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from storage.batch.record_batch import read_header
from storage.batch.records import decode_batch
from tests.deep import one_in
from tests.storage.log.log_machine import OPERATIONS, LogMachine
from tests.storage.logs import contents, headers


class LogModel(LogMachine):
    @invariant()
    def the_log_is_its_batches(self) -> None:
        held = self.naive.held(self.log.log_start_offset)
        assert contents(self.log) == b"".join(held)
        assert self.log.log_end_offset == self.naive.end
        assert self.log.size >= sum(map(len, held))

    @invariant()
    def the_marks_are_in_order(self) -> None:
        log = self.log
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.log_start_offset >= log.segments[0].base_offset
        assert log.recovery_point <= log.log_end_offset
        assert log.last_stable_offset <= log.high_watermark

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
        assert all(entry.start_offset <= self.naive.end for entry in entries)

    @invariant()
    def every_offset_leads_to_its_batch(self) -> None:
        start = self.log.log_start_offset
        batches = self.naive.batches
        for each in batches[:: max(1, len(batches) // 5)]:
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
    def time_leads_to_the_first_record_that_is_young_enough(self) -> None:
        start = self.log.log_start_offset
        batches = self.naive.batches
        there = [record for each in batches for record in decode_batch(each)]
        for each in batches[:: max(1, len(batches) // 3)]:
            header = read_header(each)
            if header.base_offset < start:
                continue
            found = self.log.offset_for_timestamp(header.max_timestamp)
            young = (r.offset for r in there if r.timestamp >= header.max_timestamp)
            expected = next((offset for offset in young if offset >= start), None)
            # Compaction may have left nothing of that batch, nor of any after it.
            assert (None if found is None else found.offset) == expected

    @invariant()
    def producers_are_those_of_the_batches(self) -> None:
        """A producer whose records are all below the log start may be remembered or not."""
        start = self.log.log_start_offset
        for producer_id, naive in self.naive.producers().items():
            if naive.last_data_offset < start:
                continue
            state = self.log.producers.producers[producer_id]
            assert state.producer_epoch == naive.epoch
            assert state.last_sequence == naive.last_sequence
            if naive.open_since is None or naive.open_since >= start:
                assert state.transaction_first_offset == naive.open_since

    @invariant()
    def what_is_open_is_not_stable(self) -> None:
        start = self.log.log_start_offset
        for naive in self.naive.producers().values():
            if naive.open_since is not None and naive.open_since >= start:
                assert self.log.last_stable_offset <= naive.open_since

    @invariant()
    def who_reads_what_is_committed_is_told_what_was_aborted(self) -> None:
        log, aborted = self.log, self.naive.aborted()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True)
            if data.records is None:
                break
            last = read_header(self.split(data.records.read())[-1]).last_offset
            given = {(e.producer_id, e.last_offset): e for e in log.aborted_transactions(data)}
            for each in aborted:
                if offset <= each.last_offset and log.log_start_offset <= each.first_offset <= last:
                    # It may have begun below the log start: the twin has forgotten that part.
                    found = given[each.producer_id, each.last_offset]
                    assert found.first_offset <= each.first_offset
            offset = last + 1

    def check(self) -> None:
        """All of it, for who does not walk by chance."""
        for law in (
            self.the_log_is_its_batches,
            self.the_marks_are_in_order,
            self.the_epochs_are_those_of_the_batches,
            self.every_offset_leads_to_its_batch,
            self.time_leads_to_the_first_record_that_is_young_enough,
            self.producers_are_those_of_the_batches,
            self.what_is_open_is_not_stable,
            self.who_reads_what_is_committed_is_told_what_was_aborted,
        ):
            law()


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(stateful_step_count=20)


def prepared(seed: int) -> LogModel:
    """Three segments, half of it synced, producers, one transaction aborted and one open."""
    machine = LogModel()
    machine.begin(seed)
    for turn in range(4):
        machine.append_as_leader(3, 120)
        machine.append_as_a_producer(1, 2, retry=True)
        machine.append_as_a_producer(11, 2, retry=False)
        if turn == 1:
            machine.end_a_transaction(11, commit=False)
            machine.flush()
            machine.checkpoint()
        machine.append_as_leader(4, 140)
    machine.move_high_watermark(0.9)
    assert len(machine.log.segments) >= 3
    return machine


def test_a_prepared_log_is_sound() -> None:
    prepared(0).check()


def changes_of(what: str) -> int:
    """Return how many changes to the disk it makes: each is a place to die at."""
    machine = prepared(0)
    before = machine.disk.changes
    OPERATIONS[what](machine)
    return machine.disk.changes - before


@pytest.mark.parametrize("power", one_in(2, [True, False]), ids=["power cut", "killed"])
@pytest.mark.parametrize("what", OPERATIONS)
def test_a_log_survives_death_at_each_change_of(what: str, power: bool) -> None:
    changes = changes_of(what)
    assert changes > 0
    for after in range(changes):
        machine = prepared(after)
        assert machine.die(what, after=after, again=None, power=power), "it died in the middle"
        machine.check()
        machine.append_as_a_producer(1, 1, retry=True)
        machine.check()


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_log_survives_death_at_each_change_of_its_recovery(power: bool) -> None:
    machine = prepared(0)
    machine.end_this_life(power=power)
    machine.start_up()
    changes = machine.disk.changes
    assert changes > 20
    for again in range(changes):
        machine = prepared(again)
        machine.die("append", after=3, again=again, power=power)
        machine.check()
