"""Reading a compacted log where its batches have no record for the reader."""

import random
from collections.abc import Iterator

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, leading_empty, walk
from storage.batch.records import Record, encode_batch, last_record_offset
from storage.log import empty_batches
from storage.log.log import Log
from storage.log.segment import Segment
from storage.types import Offset
from tests.storage.cleaning import clean, compacted, put, roll
from tests.storage.logs import bases, headers, lead, new_disk, open_log

A, B = b"a", b"b"
RECORD_BATCH = encode_batch([Record(timestamp=0, key=A, value=b"1")])


def log_of_producers(
    before: int, *, segment_bytes: int = 1 << 20, active: bool = True, clean_too: bool = True
) -> Log:
    """Return a log with the empty batches of `before` producers, and a record after them."""
    log = open_log(new_disk(), compacted(segment_bytes=segment_bytes))
    for number in range(before):
        put(log, (A, b""), producer_id=number, producer_epoch=0, base_sequence=0)
    put(log, (A, b"last"))
    roll(log)
    if active:
        put(log, (B, b"active"))
    if clean_too:
        clean(log)
    return log


def read(
    log: Log, offset: Offset, *, max_bytes: int = 1, end: Offset | None = None, passes: bool = True
) -> list[BatchHeader]:
    """Return the headers that a consumer is given at `offset`, which may be answered with little."""
    found = log.read(
        offset,
        max_bytes,
        max_offset_exclusive=log.log_end_offset if end is None else end,
        min_one=True,
        passes_empty=passes,
    )
    if found.records is None:
        return []
    return [header for _, header in walk(found.records.read())]


@pytest.mark.parametrize("before", [0, 1, 999, 1000, 1001, 2500])
def test_the_empty_batches_that_a_buffer_begins_with_are_counted(before: int) -> None:
    log = log_of_producers(1)
    empty = log.segments[0].pins.file.read(0, HEADER_SIZE)
    assert leading_empty(empty * before) == before
    assert leading_empty(empty * before + RECORD_BATCH + empty) == before
    assert leading_empty(empty * before + empty[:-1]) == before
    segment = log.segments[0]
    segment.pins.file.write(0, empty * before + RECORD_BATCH)
    end = before * HEADER_SIZE
    for limit in (end, end + 1, end + HEADER_SIZE, end + len(RECORD_BATCH)):
        assert segment.end_of_empty(0, limit) == end
    assert segment.end_of_empty(0, max(0, end - 1)) == max(0, end - HEADER_SIZE)


def test_a_consumer_is_given_the_batch_that_has_records_and_a_follower_every_batch() -> None:
    log = log_of_producers(3)
    assert [each.record_count for each in headers(log)] == [0, 0, 0, 1, 1]
    for offset in range(4):
        assert [each.base_offset for each in read(log, offset)] == [3]
        assert [each.base_offset for each in read(log, offset, passes=False)] == [offset]
    assert [each.base_offset for each in read(log, 0, max_bytes=1000, passes=False)] == [0, 1, 2, 3]


def test_records_are_found_in_later_segments() -> None:
    log = log_of_producers(12, segment_bytes=200)
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) > 5
    assert max(sizes[:4]) <= 3 * HEADER_SIZE
    for offset in range(13):
        assert [each.base_offset for each in read(log, offset)] == [12]


def test_a_consumer_is_given_empty_batches_where_no_records_follow() -> None:
    """As in Kafka: a client that goes by the headers gets to the end by them."""
    log = open_log(new_disk(), compacted())
    put(log, (A, b"1"))
    put(log, (None, b"1"), at=1)
    put(log, (None, b"2"), at=2, producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (None, b"3"), at=3)
    roll(log)
    clean(log)
    assert [each.record_count for each in headers(log)] == [1, 0, 0]
    for _ in range(2):
        assert [each.base_offset for each in read(log, 1)] == [2]
        assert [each.base_offset for each in read(log, 3)] == [3]
    lead(log, key=B)
    assert [each.base_offset for each in read(log, 1)] == [4]
    assert [each.base_offset for each in read(log, 3)] == [4]


def test_records_beyond_the_high_watermark_do_not_count_as_following() -> None:
    log = log_of_producers(3)
    for end in (1, 2, 3):
        assert [each.base_offset for each in read(log, 0, end=end)] == [0]
    assert [each.base_offset for each in read(log, 0, end=4)] == [3]
    assert [each.base_offset for each in read(log, 0, end=5)] == [3]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 200])
def test_one_read_passes_a_bounded_number_and_the_next_goes_on(
    segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(empty_batches, "MOST_BYTES", 10 * HEADER_SIZE)
    monkeypatch.setattr(empty_batches, "_SEGMENT_COST", HEADER_SIZE)
    passed = []
    honest = Segment.end_of_empty

    def counting(self: Segment, position: int, limit: int) -> int:
        end = honest(self, position, limit)
        passed.append((end - position) // HEADER_SIZE)
        return end

    monkeypatch.setattr(Segment, "end_of_empty", counting)
    log = log_of_producers(35, segment_bytes=segment_bytes)
    reads = 0
    while (found := read(log, 2))[0].record_count == 0:
        assert [each.base_offset for each in found] == [2], "answered as in Kafka until then"
        assert sum(passed) <= 10
        assert len(passed) <= 10
        passed.clear()
        reads += 1
    assert found[0].base_offset == 35
    assert 3 <= reads <= 8
    passed.clear()
    assert read(log, 2)[0].base_offset == 35
    assert sum(passed) == 0, "what was found is known"


def test_a_bounded_number_of_readers_is_remembered() -> None:
    log = log_of_producers(100)
    for offset in range(100):
        assert read(log, offset)[0].base_offset == 100
    assert len(log.local._empty_batches._passed) == 64
    assert read(log, 0)[0].base_offset == 100


def test_after_a_truncation_empty_batches_are_looked_for_again() -> None:
    log = log_of_producers(3)
    assert read(log, 0)[0].base_offset == 3
    log.truncate_to(2)
    put(log, (B, b"2"))
    assert [each.base_offset for each in read(log, 0)] == [2]
    log.truncate_fully_and_start_at(0)
    put(log, (B, b"3"))
    assert [each.base_offset for each in read(log, 0)] == [0]


# Answers that would end with them.


def log_that_goes_on(empty: int, *, segment_bytes: int = 1 << 20) -> Log:
    """Return [0: only], `empty` batches without records, and a record after them."""
    log = open_log(new_disk(), compacted(segment_bytes=segment_bytes))
    put(log, (b"only", b""))
    for number in range(empty):
        put(log, (A, b""), producer_id=number, producer_epoch=0, base_sequence=0)
    put(log, (A, b"last"))
    roll(log)
    clean(log)
    return log


@pytest.mark.parametrize("empty", [1, 2, 70, 300])
def test_an_answer_does_not_end_with_empty_batches_where_records_follow(empty: int) -> None:
    log = log_that_goes_on(empty)
    first = headers(log)[0].size
    for more in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, empty * HEADER_SIZE, empty * HEADER_SIZE + 9):
        assert [each.base_offset for each in read(log, 0, max_bytes=first + more)] == [0]
    whole = read(log, 0, max_bytes=1 << 20)
    assert [each.base_offset for each in whole] == list(range(empty + 2))
    # Where none follow, they say how far the log goes.
    end = empty + 1
    assert len(read(log, 0, max_bytes=1 << 20, end=end)) == end
    assert len(read(log, 0, max_bytes=1 << 20, passes=False)) == empty + 2


def test_an_answer_at_a_segments_end_does_not_end_with_empty_batches() -> None:
    log = log_that_goes_on(4, segment_bytes=400)
    assert bases(log)[1] > 2, "an empty batch follows the first one in its segment"
    assert [each.base_offset for each in read(log, 0, max_bytes=1 << 20)] == [0]


def test_the_end_of_an_answer_is_looked_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_batches, "MOST_BYTES", 100 * HEADER_SIZE)
    log = log_that_goes_on(300)
    looked_at = []
    honest = Segment.headers

    def counting(self: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        for each in honest(self, position):
            looked_at.append(each)
            yield each

    found = read(log, 0, max_bytes=280 * HEADER_SIZE)
    monkeypatch.setattr(Segment, "headers", counting)
    assert read(log, 0, max_bytes=280 * HEADER_SIZE) == found
    assert len(found) > 250, "answered as by Kafka"
    assert len(looked_at) < 200


# Batches whose last records are gone.


def log_with_a_sparse_batch(codec: Codec = Codec.NONE, *, parted: bool = False) -> Log:
    """Return [0: only .. only too .. ..] and [5: a], in segments of their own if `parted`."""
    log = open_log(new_disk(), compacted(segment_bytes=500 if parted else 1000))
    # Too large for its neighbour, in any codec.
    value = random.Random(1).randbytes(360)
    put(log, (b"only", value), (A, b""), (b"only too", b""), (A, b""), (A, b""), codec=codec)
    put(log, (A, b"last"), codec=codec)
    roll(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(0, 2), (5, 1)]
    return log


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("parted", [False, True])
def test_a_batch_whose_records_all_lie_before_the_offset_is_passed(
    codec: Codec, parted: bool
) -> None:
    log = log_with_a_sparse_batch(codec, parted=parted)
    assert bases(log) == ([0, 5, 6] if parted else [0, 6])
    assert [read(log, offset)[0].base_offset for offset in range(6)] == [0, 0, 0, 5, 5, 5]
    # Where nothing follows it is given, as in Kafka.
    assert [read(log, offset, end=5)[0].base_offset for offset in range(5)] == [0] * 5


def test_a_batch_too_large_to_look_into_or_not_sound_is_given_to_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_with_a_sparse_batch(Codec.GZIP)
    size = headers(log)[0].size
    for limit, first in ((size - 1, 0), (size, 5)):
        monkeypatch.setattr(empty_batches, "_MOST_LOOKED_INTO", limit)
        log.local._empty_batches.forget()
        assert read(log, 3)[0].base_offset == first
    log.segments[0].pins.file.write(HEADER_SIZE, b"\xff" * 9)
    log.local._empty_batches.forget()
    assert read(log, 3)[0].base_offset == 0


def test_the_offset_of_the_last_record_is_read() -> None:
    records = [Record(offset=each, timestamp=0, key=A, value=None) for each in (7, 9, 4000)]
    for count in (1, 2, 3):
        assert last_record_offset(encode_batch(records[:count])) == records[count - 1].offset


def test_an_empty_batch_may_lack_every_offset_and_a_whole_one_none() -> None:
    located = log_with_a_sparse_batch().segments[0].locate(3)
    assert located is not None
    assert [located.may_lack(offset) for offset in (0, 1, 4)] == [False, True, True]
    whole = located._replace(record_count=5)
    assert not any(whole.may_lack(offset) for offset in range(5))
    assert located._replace(record_count=0).may_lack(0)
