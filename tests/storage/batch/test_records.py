"""Records and varints: round trips, other libraries as the oracle, and batches that lie."""

import contextlib
from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from hypothesis import given, strategies as st
from kio.records.readers import read_batch as kio_read_batch

from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER, HEADER_SIZE, TimestampType, check_crc, read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Header,
    Record,
    decode_batch,
    decode_control_record,
    encode_batch,
    encode_control_batch,
    read_marker,
    unpack,
)
from storage.batch.sound_records import check_records
from storage.batch.varint import read_varint, read_varlong, varint
from storage.errors import CorruptRecordError, ExpansionError, UnsupportedCompressionTypeError
from tests.storage.logs import outlined

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple)
timestamps = st.integers(0, 2**41)
records = st.builds(
    lambda timestamp, key, value, headers: Record(
        timestamp=timestamp, key=key, value=value, headers=headers
    ),
    timestamps,
    maybe_bytes,
    maybe_bytes,
    headers,
)


def placed(records: Sequence[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + n) for n, record in enumerate(records)]


@pytest.mark.parametrize("codec", Codec)
@given(records=st.lists(records, max_size=20), base_offset=st.integers(0, 2**62))
def test_records_survive_the_round_trip(
    codec: Codec, records: list[Record], base_offset: int
) -> None:
    batch = memoryview(encode_batch(records, base_offset=base_offset, codec=codec))

    header = read_header(batch)
    assert decode_batch(batch) == placed(records, base_offset)
    assert (header.size, header.codec, header.record_count) == (len(batch), codec, len(records))
    assert header.last_offset == base_offset + max(len(records) - 1, 0)
    assert header.max_timestamp == max((r.timestamp for r in records), default=-1)
    assert check_crc(batch)


@given(st.lists(records, max_size=20))
def test_an_outline_says_the_same_as_decoding(records: list[Record]) -> None:
    batch = encode_batch(records, base_offset=7, codec=Codec.ZSTD)
    outline = [(o.offset, o.timestamp, o.has_key) for o in outlined(batch)]
    decoded = [(r.offset, r.timestamp, r.key is not None) for r in decode_batch(batch)]
    assert outline == decoded


def test_gaps_between_offsets_are_kept() -> None:
    thinned = [Record(offset=12, value=b"a"), Record(offset=17, value=b"b")]
    batch = encode_batch(thinned, base_offset=10, last_offset_delta=9)
    assert [record.offset for record in decode_batch(batch)] == [12, 17]
    assert read_header(batch).last_offset == 19


def test_an_empty_batch_is_legal() -> None:
    batch = encode_batch([], base_offset=10, last_offset_delta=4)
    assert decode_batch(batch) == []
    assert read_header(batch).next_offset == 15


def test_records_carry_their_sequences_over_the_wrap() -> None:
    batch = encode_batch([Record()] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert [record.sequence for record in decode_batch(batch)] == [2**31 - 2, 2**31 - 1, 0]


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_batch(
        [Record(timestamp=1), Record(timestamp=9)], timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert [record.timestamp for record in decode_batch(batch)] == [9, 9]
    assert [outline.timestamp for outline in outlined(batch)] == [9, 9]


# Other people's codecs: aiokafka has all of them, kio shares no ancestor with it.

foreign = st.lists(
    st.tuples(timestamps, maybe_bytes, st.binary(max_size=300), headers), min_size=1, max_size=10
)
Fields = tuple[int, bytes | None, bytes, tuple[Header, ...]]


@pytest.mark.parametrize("codec", Codec)
@given(fields=foreign)
def test_we_read_what_aiokafka_writes(codec: Codec, fields: list[Fields]) -> None:
    theirs = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value, headers) in enumerate(fields):
        theirs.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    batch = bytes(theirs.build())

    assert check_crc(batch)
    assert decode_batch(batch) == [
        Record(offset, timestamp, key, value, headers)
        for offset, (timestamp, key, value, headers) in enumerate(fields)
    ]


@pytest.mark.parametrize("codec", Codec)
@given(fields=foreign)
def test_aiokafka_reads_what_we_write(codec: Codec, fields: list[Fields]) -> None:
    ours = [Record(timestamp=t, key=k, value=v, headers=h) for t, k, v, h in fields]
    theirs = AiokafkaBatch(bytearray(encode_batch(ours, base_offset=100, codec=codec)))
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(100 + n, t, k, v, h) for n, (t, k, v, h) in enumerate(fields)]


@given(fields=foreign)
def test_kio_reads_what_we_write(fields: list[Fields]) -> None:
    ours = [Record(timestamp=t, key=k, value=v, headers=h) for t, k, v, h in fields]
    batch, size = kio_read_batch(encode_batch(ours, base_offset=100, leader_epoch=3), 0)
    assert batch.partition_leader_epoch == 3
    assert size == batch.batch_length + 12
    read = [
        (r.offset, r.key, r.value, tuple(((h.key or b"").decode(), h.value) for h in r.headers))
        for r in batch.records
    ]
    assert read == [(100 + n, k, v, h) for n, (_, k, v, h) in enumerate(fields)]


# Batches that lie.


def rebuilt(records_section: bytes, *, count: int, attributes: int = 0) -> bytes:
    fields = (0, HEADER_SIZE - 12 + len(records_section), -1, 2, 0, attributes)
    return HEADER.pack(*fields, max(count - 1, 0), 0, 0, -1, -1, -1, count) + records_section


ONE = encode_batch([Record(timestamp=0, key=b"key", value=b"value", headers=(("h", b"x"),))])
BODY = ONE[HEADER_SIZE:]


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(rebuilt(BODY, count=2), id="more counted than there are"),
        pytest.param(rebuilt(BODY + BODY, count=1), id="fewer counted than there are"),
        pytest.param(rebuilt(BODY, count=2**31 - 1), id="two billion counted"),
        pytest.param(rebuilt(BODY, count=-1), id="a negative count"),
        pytest.param(rebuilt(varint(2**40) + BODY[1:], count=1), id="a record of a terabyte"),
        pytest.param(rebuilt(varint(-5) + BODY[1:], count=1), id="a negative record"),
        pytest.param(rebuilt(b"\xff" * 20, count=1), id="a varint without an end"),
        pytest.param(rebuilt(b"\x02\x00", count=1), id="a record of its attributes alone"),
        pytest.param(rebuilt(b"\x0c\0\0\0\x7e\0\0", count=1), id="a key past its record"),
        pytest.param(rebuilt(b"\x0c\0\0\0\x01\x01\x03", count=1), id="-2 headers"),
        pytest.param(rebuilt(b"\x0e\0\0\0\x01\x01\x02\x01", count=1), id="a header without a name"),
        pytest.param(rebuilt(b"\x0c\0\0\0\x01\x01\x7e", count=1), id="63 headers in no bytes"),
        pytest.param(rebuilt(b"\x0e\0\0\0\x01\x01\0\0", count=1), id="a byte left over"),
        pytest.param(ONE[:-1], id="a batch cut off"),
    ],
)
def test_a_batch_that_lies_is_corrupt(batch: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_batch(memoryview(batch))
    with pytest.raises(CorruptRecordError):
        list(outlined(memoryview(batch)))


def test_a_header_name_that_is_not_text_is_read_as_java_reads_it() -> None:
    (record,) = decode_batch(rebuilt(b"\x12\0\0\0\x01\x01\x02\x02\xff\x01", count=1))
    assert record.headers == (("\ufffd", None),)


@given(st.data())
def test_a_damaged_batch_is_corrupt_or_decodes_and_nothing_worse(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Codec))
    values = data.draw(st.lists(records, min_size=1, max_size=5))
    batch = bytearray(encode_batch(values, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(16, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    for reader in (decode_batch, lambda damaged: list(outlined(damaged))):
        with contextlib.suppress(CorruptRecordError, UnsupportedCompressionTypeError):
            reader(memoryview(batch))


@given(st.binary(max_size=100), st.integers(-1, 10), st.integers(0, 4))
def test_garbage_records_are_corrupt_and_nothing_worse(
    garbage: bytes, count: int, codec: int
) -> None:
    batch = rebuilt(garbage, count=count, attributes=codec)
    with contextlib.suppress(CorruptRecordError):
        decode_batch(batch)
    with contextlib.suppress(CorruptRecordError):
        list(outlined(batch))


# Control records.


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_a_transaction_marker_is_in_kafkas_bytes(kind: ControlRecordType) -> None:
    batch = encode_control_batch(
        EndTransactionMarker(kind, 7), timestamp=5, producer_id=1, producer_epoch=2, base_offset=9
    )
    header = read_header(batch)
    (record,) = decode_batch(batch)

    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])
    assert read_marker(batch) == EndTransactionMarker(kind, 7)


def test_a_control_record_of_a_newer_type_says_nothing() -> None:
    assert decode_control_record(Record(key=b"\0\0\0\x09", value=b"?")) is None
    assert read_marker(encode_batch([], control=True)) is None


def test_a_control_batch_is_not_inflated_past_a_megabyte() -> None:
    """An event loop reads it, before anything else has looked at it."""
    large = Record(key=b"\0\0\0\1", value=bytes(2 << 20))
    with pytest.raises(ExpansionError):
        read_marker(encode_batch([large], control=True, codec=Codec.ZSTD))


def test_only_the_first_record_of_a_control_batch_is_read() -> None:
    marker = Record(key=b"\0\0\0\1", value=bytes(6))
    batch = encode_batch([marker, Record(key=b"no type")], control=True)
    broken = batch[:-8] + b"\xff" * 8
    assert read_marker(broken) == EndTransactionMarker(ControlRecordType.COMMIT, 0)


@pytest.mark.parametrize(
    "record",
    [
        Record(key=None),
        Record(key=b"\0\0\0"),
        Record(key=b"\xff\xff\0\0"),
        Record(key=b"\0\0\0\0", value=None),
        Record(key=b"\0\0\0\0", value=b"\0\0\0"),
    ],
)
def test_a_malformed_control_record_is_corrupt(record: Record) -> None:
    with pytest.raises(CorruptRecordError):
        decode_control_record(record)


def frames_one_by_one(batch: bytes) -> bool:
    """The naive twin of `check_framing`, without its runs."""
    data, position = batch[HEADER_SIZE:], 0
    for _ in range(read_header(batch).record_count):
        try:
            length, position = read_varint(data, position)
        except (IndexError, CorruptRecordError):
            return False
        position += length
        if length < 1 or position > len(data):
            return False
    return position == len(data)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0, 1, 50, 60, 200])), min_size=1, max_size=6
    ),
    st.integers(-2, 2),
    st.none() | st.tuples(st.integers(0, 10_000), st.integers(0, 255)),
    st.integers(0, 3),
)
def test_framing_is_as_records_looked_at_one_by_one_say(
    runs: list[tuple[int, int]], miscounted: int, broken: tuple[int, int] | None, cut: int
) -> None:
    """Runs of one size, among others, with a byte changed, some cut off, or a wrong count."""
    values = [bytes(size) for count, size in runs for _ in range(count)]
    batch = bytearray(encode_batch([Record(timestamp=0, value=value) for value in values or [b""]]))
    if broken is not None:
        at, byte = broken
        batch[HEADER_SIZE + at % (len(batch) - HEADER_SIZE)] = byte
    del batch[len(batch) - cut :]
    fields = list(HEADER.unpack_from(batch))
    fields[1] -= cut
    fields[-1] = max(0, fields[-1] + miscounted)
    HEADER.pack_into(batch, 0, *fields)
    sound = True
    try:
        header = read_header(batch)
        check_records(header, unpack(header, batch), counted=False)
    except CorruptRecordError:
        sound = False
    assert sound is frames_one_by_one(bytes(batch))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_survive_the_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 10
    if -(2**31) <= value < 2**31:
        assert read_varint(encoded, 0) == (value, len(encoded))
    else:
        with pytest.raises(CorruptRecordError, match="more than 32 bits"):
            read_varint(encoded, 0)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints_are_kafkas(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@pytest.mark.parametrize("read", [read_varint, read_varlong])
def test_a_varint_without_an_end_is_corrupt(read: Callable[[bytes, int], object]) -> None:
    with pytest.raises(CorruptRecordError):
        read(b"\xff" * 11, 0)
