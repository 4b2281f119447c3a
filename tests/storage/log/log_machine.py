"""A log against a list of batches, through truncations, kills, power cuts and failing disks.

What a power cut may leave is a first part of some state that the log went through since it
was last synced, and all that was synced:

    synced     A B C
    then       truncate to A B, append D E, power cut
    may be     A B C    the truncation was lost, and D E with it
               A B      A B D     A B D E
    never      A, A B E, A B C D, or half of any of them

An operation that a process can die in the middle of is a method in `OPERATIONS`: one that is
added there is killed at each of its changes to the disk by `test_log_model`, and at chance ones
by Hypothesis. A rule of another kind of change goes into a subclass.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from storage.batch.record_batch import read_header
from storage.errors import KafkaStorageError
from storage.testing import Fault
from storage.types import Offset
from tests.storage.log.log_changes import ID, T0, LogChanges
from tests.storage.log.naive_log import NaiveLog
from tests.storage.logs import WALL_MS, contents


class LogMachine(LogChanges):
    # Ending it.

    @rule()
    def shut_down_and_restart(self) -> None:
        self.logs.shutdown(3)
        self.restart()
        assert self.logs.previous_broker_epoch == 3
        self.expect([self.naive.batches], at_least=self.naive.end)
        self.synced, self.branches = self.naive.end, []

    @rule()
    def be_killed(self) -> None:
        self.disk.detach()
        self.logs.close_uncleanly()
        self.restart()
        self.expect([self.naive.batches], at_least=self.naive.end)

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.logs.close_uncleanly()
        self.restart()
        self.expect([*self.branches, self.naive.batches], at_least=self.synced)
        self.synced, self.branches = self.naive.end, []

    @rule(data=st.data(), after=st.integers(0, 20), again=st.integers(0, 30), power=st.booleans())
    def die_in_the_middle(self, data: st.DataObject, after: int, again: int, power: bool) -> None:
        what = data.draw(st.sampled_from(sorted(OPERATIONS)))
        self.die(what, after=after, again=again, power=power)

    def die(self, what: str, *, after: int, again: int | None, power: bool) -> bool:
        """In the middle of an operation, and once more while it recovers; whether it died in it."""
        self.disk.die_after(after)
        before = NaiveLog([*self.naive.batches], self.naive.end)
        branches, synced = [*self.branches], self.synced
        with contextlib.suppress(KafkaStorageError, OSError):
            OPERATIONS[what](self)
        died = self.disk.detached
        # What it went through, whether or not the model has heard of its end.
        branches = [*branches, *self.branches, before.batches, self.naive.batches, *self.attempted]
        self.attempted = []
        low = min(synced, _CUT_TO[what](before.end)) if what in _CUT_TO else synced
        untouched = not power and what not in _CUT_TO
        self.naive = before
        self.end_this_life(power=power)
        if again is not None:
            self.disk.die_after(again)
            with contextlib.suppress(KafkaStorageError, OSError):
                self.start_up()
            self.logs.close_uncleanly()
            self.end_this_life(power=power)
        self.restart()
        self.expect(branches, at_least=before.end if untouched else low)
        self.synced = self.naive.end if power else min(low, self.naive.end)
        self.branches = [] if power else branches
        return died

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
        self.start_up()
        self.log = self.logs.get_or_create(T0, ID)
        assert self.log.topic_id == ID

    def expect(self, branches: list[list[bytes]], *, at_least: Offset) -> None:
        """The log is a first part of one of `branches`, and holds all below `at_least`."""
        found = self.split(contents(self.log))
        for branch in branches:
            # A crash may bring back what was given up below the log start.
            held = [
                each
                for each in branch
                if each in found or read_header(each).last_offset >= self.start
            ]
            needed = [each for each in held if read_header(each).last_offset < at_least]
            if found == held[: len(found)] and len(found) >= len(needed):
                break
        else:
            raise AssertionError(f"{len(found)} batches are no first part of any state")
        self.naive = NaiveLog(found, self.log.log_end_offset)
        self.start = min(self.start, self.log.log_start_offset)
        if found:
            assert self.naive.end > read_header(found[-1]).last_offset
        self.epoch = max(self.epoch, self.log.latest_epoch or 0) + 1

    def split(self, data: bytes) -> list[bytes]:
        position, parts = 0, []
        while position < len(data):
            size = read_header(data, position).size
            parts.append(data[position : position + size])
            position += size
        return parts


OPERATIONS: dict[str, Callable[[Any], None]] = {
    "append": LogMachine.append_some,
    "abort": LogMachine.abort_a_transaction,
    "truncate": lambda machine: machine.truncate_to(machine.naive.end // 2),
    "truncate a little": lambda machine: machine.truncate_to(max(0, machine.naive.end - 1)),
    "truncate all": lambda machine: machine.truncate_fully(0),
    "flush": LogMachine.flush,
    "checkpoint": LogMachine.checkpoint,
    "roll": LogMachine.roll,
    "begin a leader epoch": LogMachine.lead_a_new_epoch,
    "retain": lambda machine: machine.retain(0.5, by_time=False),
    "retain the young": lambda machine: machine.retain(0.5, by_time=True),
    "give up": LogMachine.give_up_half,
    "compact": LogMachine.compact,
    "shut down": lambda machine: machine.logs.shutdown(4),
}
# Above it an operation leaves what it leaves, synced or not.
_CUT_TO: dict[str, Callable[[Offset], Offset]] = {
    "truncate": lambda end: end // 2,
    "truncate a little": lambda end: max(0, end - 1),
    "truncate all": lambda _: 0,
}
