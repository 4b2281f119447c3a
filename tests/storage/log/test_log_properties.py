"""A log against naive twins: what a read gives, when a segment rolls, what a truncation leaves."""

from typing import NamedTuple

import attrs
import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import NO_TIMESTAMP
from storage.config import LogConfig
from storage.errors import InvalidTimestampError, UnexpectedAppendOffsetError
from storage.log.log import Log
from tests.storage.logs import WALL_MS, bases, batch, contents, new_disk, open_log, small_config

ROOMY = LogConfig(segment_bytes=1 << 20, segment_index_bytes=1 << 12, index_interval_bytes=100)


@attrs.frozen
class Placed:
    """A batch as the twin keeps it."""

    first: int
    last: int
    data: bytes


class Shape(NamedTuple):
    """A batch to append: how many records, of which size, after a gap of so many offsets."""

    records: int
    size: int
    gap: int


shapes = st.lists(
    st.builds(Shape, st.integers(1, 4), st.integers(0, 100), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


def appended(log: Log, wanted: list[Shape]) -> list[Placed]:
    placed = []
    offset = log.log_end_offset
    for count, size, gap in wanted:
        first = offset + gap
        records = batch(count, at=first, epoch=0, size=size)
        log.append_as_follower(records, wall_ms=WALL_MS)
        placed.append(Placed(first, first + count - 1, bytes(records)))
        offset = first + count
    return placed


def segment_of(log: Log, placed: Placed) -> int:
    return max(base for base in bases(log) if base <= placed.first)


@given(wanted=shapes, data=st.data())
def test_a_read_gives_what_a_list_of_batches_would(
    wanted: list[Shape], data: st.DataObject
) -> None:
    log = open_log(new_disk(), small_config(segment_bytes=700))
    placed = appended(log, wanted)
    for _ in range(10):
        start = data.draw(st.integers(0, log.log_end_offset), label="start")
        bound = data.draw(st.integers(0, log.log_end_offset + 2), label="bound")
        most = data.draw(st.integers(0, 900), label="most")
        min_one = data.draw(st.booleans(), label="min_one")
        found = log.read(start, most, max_offset_exclusive=bound, min_one=min_one)
        got = found.records.read() if found.records else b""
        # Naive: from the first batch that ends at `start` or later, whole batches below the
        # bound (it lies at the start of the batch that holds it), in that batch's segment.
        rest = [each for each in placed if each.last >= start]
        if start >= min(bound, log.log_end_offset) or not rest:
            assert got == b""
            continue
        visible = b"".join(
            each.data
            for each in rest
            if each.last < bound and segment_of(log, each) == segment_of(log, rest[0])
        )
        limit = max(most, len(rest[0].data)) if min_one else most
        assert got == visible[:limit]
        assert found.first_entry_incomplete == (not min_one and most < len(rest[0].data))


@given(wanted=shapes, data=st.data())
def test_a_truncation_leaves_the_batches_that_end_below_it(
    wanted: list[Shape], data: st.DataObject
) -> None:
    log = open_log(new_disk(), small_config(segment_bytes=700))
    placed = appended(log, wanted)
    for _ in range(3):
        end = log.log_end_offset
        target = data.draw(st.integers(0, end + 1), label="target")
        high_watermark = data.draw(st.integers(0, end), label="high watermark")
        log.update_high_watermark(high_watermark)
        cut = log.truncate_to(target)
        assert cut == (target < end)
        if cut:
            placed = [each for each in placed if each.last < target]
            assert (log.log_end_offset, log.high_watermark) == (target, min(high_watermark, target))
        assert contents(log) == b"".join(each.data for each in placed)
        for segment in log.segments:
            entries = list(segment.offset_index.entries())
            assert all(each.offset < log.log_end_offset for each in entries)
            assert all(each.position < segment.size for each in entries)
        assert (
            all(entry.start_offset < target for entry in log.leader_epoch_cache.entries) or not cut
        )
        placed += appended(log, data.draw(shapes, label="more")[:3])
        assert contents(log) == b"".join(each.data for each in placed)


class Timed(NamedTuple):
    """An append: its records' timestamp, their size, and the broker's clock since the last."""

    timestamp: int
    size: int
    passed_ms: int


@given(
    wanted=st.lists(
        st.builds(
            Timed,
            st.just(NO_TIMESTAMP) | st.integers(WALL_MS - 3000, WALL_MS),
            st.integers(0, 300),
            st.integers(0, 900),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_segment_rolls_exactly_when_it_is_full_or_old(wanted: list[Timed]) -> None:
    segment_ms, segment_bytes = 1000, 800
    config = attrs.evolve(ROOMY, segment_ms=segment_ms, segment_bytes=segment_bytes)
    now = WALL_MS
    log = open_log(new_disk(), config, wall_ms=now)
    expected, size, first, created = [0], 0, NO_TIMESTAMP, now
    for offset, (timestamp, value_size, passed_ms) in enumerate(wanted):
        now += passed_ms
        records = batch(at=offset, epoch=0, timestamp=timestamp, size=value_size)
        waited = timestamp - first if first != NO_TIMESTAMP else now - created
        if size > segment_bytes - len(records) or (size and waited > segment_ms):
            expected.append(offset)
            size, created = 0, now
        if size == 0:
            first = timestamp
        size += len(records)
        log.append_as_follower(records, wall_ms=now)
        assert bases(log) == expected


@given(
    before=st.integers(0, 5000),
    after=st.integers(0, 5000),
    age=st.integers(-6000, 6000),
    append_time=st.booleans(),
    known=st.booleans(),
)
def test_a_timestamp_is_taken_inside_the_bounds_and_only_there(
    *, before: int, after: int, age: int, append_time: bool, known: bool
) -> None:
    config = attrs.evolve(
        ROOMY,
        message_timestamp_before_max_ms=before,
        message_timestamp_after_max_ms=after,
        message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
    )
    log = open_log(new_disk(), config)
    sent = batch(2, timestamp=WALL_MS - age if known else NO_TIMESTAMP)
    allowed = append_time or not known or -after <= age <= before
    if allowed:
        info = log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
        assert (info.log_append_time == WALL_MS) == append_time
    else:
        with pytest.raises(InvalidTimestampError) as refused:
            log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
        assert sorted(refused.value.record_errors) == [0, 1]
        assert log.size == 0


@given(wanted=shapes, back=st.integers(1, 6))
def test_a_follower_takes_a_gap_and_never_an_offset_that_it_has(
    wanted: list[Shape], back: int
) -> None:
    log = open_log(new_disk(), ROOMY)
    placed = appended(log, wanted)
    first = log.log_end_offset - back
    if first >= 0:
        before = contents(log)
        with pytest.raises(UnexpectedAppendOffsetError) as refused:
            log.append_as_follower(batch(back, at=first, epoch=0))
        named = (refused.value.first_offset, refused.value.last_offset)
        assert named == (first, log.log_end_offset - 1)
        assert contents(log) == before == b"".join(each.data for each in placed)
