"""Compaction as the log's state machine does it, and what it makes of each state.

A group's files are synced before they count, and everything below a group's end is in some
group. So once one has been put in place, what lies below its end is on the disk in just that
form, whatever the log went through before:

    states that a power cut might have left      A B C D    A B E
    A B become a                                 a C D      a E
"""

from typing import TYPE_CHECKING

from storage.batch.record_batch import read_header, walk
from storage.batch.records import decode_batch
from storage.cleaner.cleaner import Cleaning
from storage.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, file_name
from storage.types import Offset
from tests.storage.cleaning import begin
from tests.storage.log.naive_log import NaiveLog

if TYPE_CHECKING:
    from tests.storage.log.log_changes import LogChanges


def compact(machine: "LogChanges") -> None:
    """One round over all that may be cleaned."""
    machine.log.update_high_watermark(machine.naive.end)
    cleaning = begin(machine.log)
    end = cleaning.plan.dirty.first_uncleanable_offset
    before = NaiveLog(list(machine.naive.batches), machine.naive.end)
    while not cleaning.done:
        cleaning.advance(1)
        if cleaning.ready:
            swap(machine, cleaning)
    cleaning.close()
    found = {offset: key for offset, key in keys(machine.naive) if offset < end}
    assert found == last_of_each_key(before, end)


def swap(machine: "LogChanges", cleaning: Cleaning) -> None:
    first, last = cleaning.ready[0], cleaning.ready[-1]
    written = split(read_cleaned(machine, first.base_offset))
    after = [
        changed
        for each in (machine.naive.batches, *machine.branches)
        if (changed := replaced(machine, each, first.base_offset, last.next_base_offset, written))
        is not None
    ]
    machine.attempted = [*machine.attempted, *after]
    cleaning.commit()
    machine.naive.batches, *machine.branches = after
    machine.synced = max(machine.synced, last.next_base_offset)


def replaced(
    machine: "LogChanges", state: list[bytes], start: Offset, end: Offset, written: list[bytes]
) -> list[bytes] | None:
    """`state` with `written` from `start` to `end`; None where it was another log by then."""
    now = [each for each in machine.naive.batches if read_header(each).base_offset < end]
    if state[: len(now)] != now:
        return None
    below = [each for each in now if read_header(each).base_offset < start]
    return [*below, *written, *state[len(now) :]]


def read_cleaned(machine: "LogChanges", base_offset: Offset) -> bytes:
    path = f"{machine.log.directory}/{file_name(base_offset, LOG_SUFFIX)}{CLEANED_SUFFIX}"
    file = machine.disk.open_for_reading(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def split(data: bytes) -> list[bytes]:
    return [data[position : position + header.size] for position, header in walk(data)]


def keys(log: NaiveLog) -> list[tuple[Offset, bytes | None]]:
    """Return offset and key of every record that a producer wrote, and did not abort."""
    return [
        (record.offset, record.key)
        for header, each in log.headers()
        if not header.is_control and not is_aborted(log, header.producer_id, header.base_offset)
        for record in decode_batch(each)
    ]


def is_aborted(log: NaiveLog, producer_id: int, offset: Offset) -> bool:
    return any(
        each.producer_id == producer_id and each.first_offset <= offset < each.last_offset
        for each in log.aborted()
    )


def last_of_each_key(log: NaiveLog, end: Offset) -> dict[Offset, bytes | None]:
    """Return what compaction up to `end` should leave."""
    last = {key: offset for offset, key in keys(log) if offset < end}
    return {offset: key for key, offset in last.items()}
