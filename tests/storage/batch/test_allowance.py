"""Appends whose few bytes ask for much work: what is refused, and what is left to a thread."""

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from storage.batch.allowance import BYTES_PER_STEP, STEPS, Allowance
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.batch.records import Record, encode_batch, unpack
from storage.batch.sound_records import check_records
from storage.config import LogConfig
from storage.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    LongCheckError,
    RecordTooLargeError,
)
from storage.log.append import MAX_RECORDS_PER_BYTE, LogAppendInfo, most_decompressed
from storage.log.log import Log, prepare_append
from storage.types import Buffer
from tests.storage.logs import WALL_MS, batch, claiming, contents, new_disk, open_log

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20


def log_of(**changes: object) -> Log:
    return open_log(new_disk(), LogConfig(**changes))  # type: ignore[arg-type]  # any of them


def of_two_sizes(count: int) -> bytes:
    """Records, encoded, of which no two neighbours have the same size."""
    return encode_batch([Record(timestamp=0, value=bytes(each % 2)) for each in range(count)])


def append(log: Log, sent: Buffer, allowance: Allowance | None = None) -> LogAppendInfo:
    return log.append_as_leader(
        memoryview(bytearray(sent)), leader_epoch=0, wall_ms=WALL_MS, allowance=allowance
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_records_than_the_bytes_can_hold_are_refused_before_they_are_decompressed(
    codec: Codec,
) -> None:
    count = MAX_RECORDS_PER_BYTE * (HEADER_SIZE + 100)
    log = log_of()
    with pytest.raises(RecordTooLargeError, match=f"{count + 1} records"):
        append(log, claiming(count + 1, bytes(100), codec))
    with pytest.raises(InvalidRecordError, match=f"not .*{codec.name.lower()}|snappy|gzip"):
        append(log, claiming(count, bytes(100), codec))
    assert contents(log) == b""


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("count", [100, 10_000, 100_000])
def test_no_codec_comes_near_the_records_that_a_byte_may_hold(codec: Codec, count: int) -> None:
    """The least records there are: no key, no value, one timestamp."""
    smallest = encode_batch([Record(timestamp=WALL_MS)] * count, codec=codec)
    assert count < len(smallest) * MAX_RECORDS_PER_BYTE / 4


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_decompresses_to_more_than_is_allowed_is_too_large(codec: Codec) -> None:
    """Snappy turns a byte into 22 at most, and lz4 into 255."""
    sent = batch(1, size=17 * MIB, codec=codec)
    log = log_of()
    if codec in {Codec.SNAPPY, Codec.LZ4}:
        append(log, sent)
    else:
        with pytest.raises(RecordTooLargeError, match="decompresses to more than"):
            append(log, sent)
    assert log.log_end_offset == (codec in {Codec.SNAPPY, Codec.LZ4})


def test_the_decompressed_size_allowed_grows_with_the_batch() -> None:
    assert [
        most_decompressed(size) // MIB for size in (70, MIB // 16, MIB // 8, MIB, 50 * MIB)
    ] == [
        16,
        16,
        32,
        256,
        256,
    ]


def test_the_framing_of_many_records_is_checked_in_little_memory() -> None:
    """Records of two sizes, and of one size for long, are checked in different ways."""
    alike = encode_batch([Record(timestamp=0)] * 4000)
    one_by_one = of_two_sizes(10_000)
    for encoded, count in ((one_by_one, 10_000), (alike, 4000)):
        header = read_header(encoded)
        data = unpack(header, encoded)
        assert header.record_count == count
        tracemalloc.start()
        try:
            check_records(header, data, counted=False)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000


def test_records_of_one_size_are_looked_at_a_bounded_number_at_a_time() -> None:
    """The records of a compressed batch may be a million; a look takes as many bytes."""
    record = encode_batch([Record(timestamp=0)])[HEADER_SIZE:]
    data = record * 1_000_000
    header = read_header(encode_batch([]))._replace(record_count=1_000_000)
    tracemalloc.start()
    try:
        check_records(header, data, counted=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize(
    ("sent", "config"),
    [
        pytest.param(of_two_sizes(STEPS), {}, id="records of many sizes"),
        pytest.param(
            batch(STEPS // 5, codec=Codec.LZ4),
            {"cleanup_policy": frozenset({"compact"})},
            id="records that are looked at one by one",
        ),
        pytest.param(
            encode_batch([Record(key=b"k", timestamp=0, headers=(("", None),) * STEPS)]),
            {"cleanup_policy": frozenset({"compact"})},
            id="headers",
        ),
        pytest.param(batch(1, size=STEPS * BYTES_PER_STEP, codec=Codec.ZSTD), {}, id="many bytes"),
        pytest.param(
            batch(1, size=STEPS * BYTES_PER_STEP // 32),
            {"compression_type": "gzip"},
            id="many bytes to compress",
        ),
    ],
)
def test_a_long_check_stops_having_changed_nothing_and_is_made_elsewhere(
    sent: bytes, config: dict[str, object]
) -> None:
    log, other = log_of(**config), log_of(**config)
    with pytest.raises(LongCheckError):
        append(log, sent, Allowance())
    assert (log.log_end_offset, contents(log)) == (0, b"")
    prepared = prepare_append(
        memoryview(bytearray(sent)), log.config, wall_ms=WALL_MS, from_client=True
    )
    info = log.append_as_leader(prepared, leader_epoch=0, wall_ms=WALL_MS)
    assert info == append(other, sent)
    assert contents(log) == contents(other)


def test_a_long_check_finds_refused_timestamps_too() -> None:
    sent = batch(STEPS // 5, timestamp=WALL_MS + 7_200_000, codec=Codec.LZ4)
    log = log_of()
    with pytest.raises(LongCheckError):
        append(log, sent, Allowance())
    with pytest.raises(InvalidTimestampError, match="ahead of the broker's clock"):
        append(log, sent)


def test_an_ordinary_batch_needs_a_part_of_one_allowance() -> None:
    for sent in (batch(500, size=1000), batch(500, size=200, codec=Codec.LZ4)):
        allowance = Allowance()
        append(log_of(), sent, allowance)
        assert not allowance.is_low


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 70)), min_size=1, max_size=5),
    st.integers(0, 400),
)
def test_framing_that_its_allowance_suffices_for_is_as_without(
    runs: list[tuple[int, int]], steps: int
) -> None:
    values = [bytes(size) for count, size in runs for _ in range(count)]
    encoded = encode_batch([Record(timestamp=0, value=value) for value in values])
    header, data = read_header(encoded), encoded[HEADER_SIZE:]
    check_records(header, data, counted=False)
    allowance = Allowance(steps)
    try:
        check_records(header, data, counted=False, allowance=allowance)
    except LongCheckError:
        assert steps < 20 * len(values)
    assert 0 <= allowance.steps <= steps
    with pytest.raises(LongCheckError):
        check_records(header, data, counted=False, allowance=Allowance(0))


def test_zstd_of_level_22_and_its_large_window_is_taken() -> None:
    records = encode_batch([Record(timestamp=WALL_MS, value=bytes(100))] * 3)[HEADER_SIZE:]
    log = log_of()
    append(log, claiming(3, compress(Codec.ZSTD, records, 22), Codec.ZSTD))
    assert log.log_end_offset == 3
