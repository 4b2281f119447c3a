"""What is read fast is what is read with care; and what is not plain is left to the careful."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from storage.batch import plain_records
from storage.batch.plain_records import Alike, decode_plain, read_alike
from storage.batch.record_batch import HEADER_SIZE, MAX_SEQUENCE, NO_SEQUENCE, read_header
from storage.batch.records import Record, decode_batch, decode_each, encode_batch
from storage.errors import CorruptRecordError

FAR = 1 << 62
sizes = st.sampled_from((0, 1, 10, 63, 64, 100, 8191, 8192, 20_000))
contents = st.none() | st.builds(bytes, sizes)
steps = st.sampled_from((0, 1, 63, 64, 8191, 8192, 2**40))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    offset, timestamp, records = draw(st.sampled_from((0, 5, FAR - 1))), 1000, []
    base_offset = offset
    for _ in range(draw(st.integers(1, 4))):
        key, value = draw(contents), draw(contents)
        records.append(Record(offset, timestamp, key, value))
        offset += draw(st.sampled_from((1, 64, 8192)))
        timestamp += draw(steps) * draw(st.sampled_from((1, -1)))
    sequence = draw(st.sampled_from((NO_SEQUENCE, 0, 2**31 - 1)))
    return encode_batch(records, base_offset=base_offset, base_sequence=sequence, producer_id=7)


def plain(batch: bytes) -> list[Record] | None:
    header = read_header(batch)
    found = decode_plain(
        batch[HEADER_SIZE:],
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
    )
    if found is None:
        return None
    first = header.base_sequence - header.base_offset
    return [
        Record(
            *each, (), NO_SEQUENCE if header.base_sequence < 0 else (first + each[0]) & MAX_SEQUENCE
        )
        for each in zip(*found, strict=True)
    ]


def with_care(batch: bytes) -> list[Record] | None:
    try:
        return list(decode_each(read_header(batch), batch[HEADER_SIZE:]))
    except CorruptRecordError:
        return None


@given(batches())
def test_plain_records_are_decoded_as_by_the_general_decoder(batch: bytes) -> None:
    assert plain(batch) == with_care(batch)
    assert plain(batch) is not None


@given(batches(), st.data())
def test_damaged_plain_records_are_decoded_as_by_the_general_decoder_or_left_to_it(
    batch: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(batch)
    # Where the numbers are: at the front of a record, and behind its key.
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_SIZE, min(len(batch) - 1, HEADER_SIZE + 30)))
        damaged[at] = data.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF)))
    cut = data.draw(st.sampled_from((0, 0, 0, 1, 5)))
    left = bytes(damaged[: max(len(damaged) - cut, HEADER_SIZE)])
    found = plain(left)
    assert found is None or found == with_care(left)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches of many records, most of them like the one before."""
    fields, records = st.none() | st.binary(max_size=3), []
    offset, timestamp, like = 0, 1000, (draw(fields), draw(fields))
    step = draw(st.sampled_from((0, 1, -1, 40, 2**40)))
    for _ in range(draw(st.integers(1, 3))):
        for each in range(draw(st.sampled_from((1, 2, 16, 17, 18, 70)))):
            key, value = (None if it is None else bytes([each % 256]) * len(it) for it in like)
            records.append(Record(offset, timestamp, key, value))
            offset, timestamp = offset + 1, timestamp + step
        offset += draw(st.sampled_from((0, 0, 1, 8192)))
        timestamp += draw(st.sampled_from((0, 1, 100)))
        like = draw(st.sampled_from((like, (draw(fields), draw(fields)))))
    return encode_batch(records, base_sequence=draw(st.sampled_from((NO_SEQUENCE, 2**31 - 20))))


@settings(max_examples=60)
@given(runs())
def test_runs_are_decoded_as_by_the_general_decoder(batch: bytes) -> None:
    assert plain(batch) == with_care(batch) == decode_batch(batch)


@given(runs(), st.data())
def test_a_damaged_run_is_decoded_as_by_the_general_decoder_or_left_to_it(
    batch: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        damaged[at] = data.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF)))
    found = plain(bytes(damaged))
    assert found is None or found == with_care(bytes(damaged))


def test_times_of_ten_bytes_are_left_to_the_general_decoder() -> None:
    """They may be of more than 64 bits."""
    record = b"\x1e\0" + b"\x80" * 9 + b"\x01" + b"%c\1\1\0"
    data = b"".join(record.replace(b"%c", bytes((2 * delta,))) for delta in range(40))
    assert read_alike(data, 0, 16, base_timestamp=0, offset_delta=0, most=39) is None


def test_a_time_of_another_width_ends_the_run() -> None:
    def batch(time: bytes) -> bytes:
        times = [b"\x80\x01"] * 39 + [time]
        return b"".join(
            b"\x0e\0" + each + bytes((2 * delta,)) + b"\1\1\0" for delta, each in enumerate(times)
        )

    def read(data: bytes) -> Alike | None:
        return read_alike(data, 0, 8, base_timestamp=5, offset_delta=0, most=39)

    assert read(batch(b"\x80\x01")) == Alike([69] * 39, [None] * 39, [None] * 39)
    assert read(batch(b"\x82\x01")) == Alike([69] * 38 + [70], [None] * 39, [None] * 39)
    assert read(batch(b"\x02\x01")) is None
    assert read(batch(b"\x80\x81")) is None


def test_runs_are_looked_for_ever_more_rarely_where_there_are_none() -> None:
    """Pairs of one size look like the beginning of a run each time."""
    looks = 0

    def counted(*args: Any, **named: Any) -> Alike | None:
        nonlocal looks
        looks += 1
        return read_alike(*args, **named)

    records = [Record(at, 0, None, bytes(at // 2 % 2)) for at in range(4000)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plain_records, "read_alike", counted)
        assert plain(encode_batch(records)) is not None
    assert 1 < looks < 20


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Record(0, 0, None, b"x", (("h", b"v"),)), id="headers"),
        pytest.param(Record(0, 0, None, b"x" * 2**22, (("h", None),)), id="large, with headers"),
    ],
)
def test_records_with_headers_are_left_to_the_general_decoder(record: Record) -> None:
    assert plain(encode_batch([record])) is None


@pytest.mark.parametrize(
    ("base_offset", "timestamps"),
    [(FAR, (0, 1)), (-FAR, (0, 1)), (0, (FAR, FAR)), (0, (0, FAR)), (0, (0, -FAR))],
)
def test_offsets_and_times_far_from_zero_are_left_to_the_general_decoder(
    base_offset: int, timestamps: tuple[int, int]
) -> None:
    records = [Record(base_offset + n, at) for n, at in enumerate(timestamps)]
    batch = encode_batch(records, base_offset=base_offset)
    assert plain(batch) is None
    assert with_care(batch) == records
