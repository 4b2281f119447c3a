"""What is read fast is what is read with care; and what is not plain is left to the careful."""

import pytest
from hypothesis import given, settings, strategies as st

from storage.errors import CorruptRecordError
from storage.plain_records import decode_plain
from storage.record_batch import HEADER_SIZE, NO_SEQUENCE, read_header
from storage.records import Record, decode_each, encode_batch

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
        base_sequence=header.base_sequence,
    )
    return None if found is None else [Record(*each) for each in found]


def with_care(batch: bytes) -> list[Record] | None:
    try:
        return decode_each(read_header(batch), batch[HEADER_SIZE:])
    except CorruptRecordError:
        return None


@given(batches())
def test_plain_records_are_read_as_with_care(batch: bytes) -> None:
    assert plain(batch) == with_care(batch)
    assert plain(batch) is not None


@settings(max_examples=400)
@given(batches(), st.data())
def test_what_is_damaged_is_read_as_with_care_or_left_to_it(
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


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Record(0, 0, None, b"x", (("h", b"v"),)), id="headers"),
        pytest.param(Record(0, 0, None, b"x" * 2**22, (("h", None),)), id="large, with headers"),
    ],
)
def test_what_has_headers_is_left_to_care(record: Record) -> None:
    assert plain(encode_batch([record])) is None


@pytest.mark.parametrize(
    ("base_offset", "timestamps"),
    [(FAR, (0, 1)), (-FAR, (0, 1)), (0, (FAR, FAR)), (0, (0, FAR)), (0, (0, -FAR))],
)
def test_what_is_far_away_is_left_to_care(base_offset: int, timestamps: tuple[int, int]) -> None:
    records = [Record(base_offset + n, at) for n, at in enumerate(timestamps)]
    batch = encode_batch(records, base_offset=base_offset)
    assert plain(batch) is None
    assert with_care(batch) == records
