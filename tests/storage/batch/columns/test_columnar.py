"""Columns against records: whatever `decode_batch` says of a batch, the columns say too.

The file is long because each column has its cases against the same twin.
"""

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

import pyarrow as pa

from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns import columnar, vectors
from storage.batch.columns.columnar import CorruptBatchError
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, TimestampType, computed_crc, read_header, walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.batch.varint import varint
from storage.errors import StorageError
from storage.testing import FaultyFileSystem

# Both sides of Arrow's 12 inline bytes, and of one and two bytes of length.
maybe_bytes = st.none() | st.binary(max_size=16) | st.binary(min_size=60, max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=14), maybe_bytes), max_size=3).map(tuple)
records = st.builds(
    lambda timestamp, key, value, headers: Record(
        timestamp=timestamp, key=key, value=value, headers=headers
    ),
    st.integers(-1, 2**41),
    maybe_bytes,
    maybe_bytes,
    st.just(()) | header_lists,
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches in offset order, of any kind, with gaps."""
    batches, offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 5)) == 0:
            marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
            batch = encode_control_batch(
                marker, producer_id=7, producer_epoch=1, timestamp=5, base_offset=offset
            )
        else:
            content = draw(st.lists(records, max_size=8))
            batch = encode_batch(
                spread(content, offset, draw(st.integers(1, 3))),
                base_offset=offset,
                leader_epoch=draw(st.integers(-1, 9)),
                codec=draw(st.sampled_from(Codec)),
                producer_id=draw(st.sampled_from([-1, 0, 2**40])),
                timestamp_type=draw(st.sampled_from(TimestampType)),
            )
        batches.append(batch)
        offset = read_header(batch).next_offset + draw(st.sampled_from([0, 0, 5]))
    return batches


def spread(content: Sequence[Record], offset: int, step: int) -> list[Record]:
    return [record._replace(offset=offset + n * step) for n, record in enumerate(content)]


def slowly(batches: Sequence[bytes], *, control: bool = False) -> list[dict[str, Any]]:
    """The rows as the record-by-record decoder has them."""
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(header.timestamp_type),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
        }
        for batch in batches
        for header in [read_header(batch)]
        if control or not header.is_control
        for record in decode_batch(batch)
    ]


def rows(found: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Timestamps as the numbers that they are: Python's dates end in the year 9999."""
    listed = []
    for batch in found:
        batch.validate(full=True)
        place = batch.schema.get_field_index("timestamp")
        numbers = batch.column(place).cast(pa.int64())
        listed += batch.set_column(place, "timestamp", numbers).to_pylist()
    return listed


@given(logs(), st.sampled_from([1, 2, 3, columnar._RECORDS_MOST]))
def test_the_columns_say_what_the_records_say(batches: list[bytes], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "_RECORDS_MOST", most)
        assert rows(list(columnar.decode(b"".join(batches)))) == slowly(batches)


@given(logs(), st.data())
def test_a_range_of_offsets_is_what_stands_in_it(batches: list[bytes], data: st.DataObject) -> None:
    whole = slowly(batches)
    places = [row["offset"] for row in whole] or [0]
    within = st.integers(min(places) - 2, max(places) + 2)
    start, end = data.draw(within), data.draw(within)
    young = data.draw(st.integers(0, 2**41))
    expected = [row for row in whole if start <= row["offset"] < end]
    found = columnar.decode(b"".join(batches), start_offset=start, end_offset=end)
    assert rows(list(found)) == expected
    # And of those, the batches that somebody wants by their header.
    kept = [batch for batch in batches if read_header(batch).max_timestamp >= young]
    found = columnar.decode(
        b"".join(batches),
        start_offset=start,
        end_offset=end,
        keep=lambda headers: headers["max_timestamp"] >= young,
    )
    assert rows(list(found)) == [row for row in slowly(kept) if start <= row["offset"] < end]


@given(logs())
@settings(max_examples=50)
def test_a_record_knows_its_batch(batches: list[bytes]) -> None:
    names = ["base_offset", "last_offset", "batch_size", "producer_epoch"]
    found = [
        row
        for each in columnar.decode(b"".join(batches), columns=names)
        for row in each.to_pylist()
    ]
    assert found == [
        {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "batch_size": header.size,
            "producer_epoch": header.producer_epoch,
        }
        for batch in batches
        for header in [read_header(batch)]
        if not header.is_control
        for _ in decode_batch(batch)
    ]


@given(logs(), st.data())
@settings(max_examples=50)
def test_a_torn_tail_is_the_end(batches: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(batches)
    cut = data.draw(st.integers(0, len(whole)))
    kept = [whole[at : at + header.size] for at, header in walk(whole[:cut])]
    assert rows(list(columnar.decode(whole[:cut]))) == slowly(kept)


@given(st.lists(records, min_size=1, max_size=6), st.sampled_from(Codec), st.data())
def test_bytes_that_changed_never_give_another_record(
    content: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = bytearray(encode_batch(content, codec=codec))
    # After the CRC, which covers all that follows it.
    at = data.draw(st.integers(21, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatchError):
        list(columnar.decode(bytes(batch)))


@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_a_batch_that_lies_with_a_sound_crc_is_read_as_the_slow_decoder_reads_it(
    content: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(encode_batch(content))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    batch[17:21] = computed_crc(bytes(batch)).to_bytes(4, "big")
    try:
        expected = slowly([bytes(batch)])
    except StorageError:
        with pytest.raises(StorageError):
            list(columnar.decode(bytes(batch)))
        return
    if all(-(2**63) <= row[name] < 2**63 for row in expected for name in ("offset", "timestamp")):
        assert rows(list(columnar.decode(bytes(batch)))) == expected


def many_batches(chance: random.Random, count: int, most: int) -> list[bytes]:
    """Batches of uneven counts and sizes, one after another."""
    batches, offset = [], 0
    for _ in range(count):
        content = [
            Record(
                timestamp=1000 + chance.randrange(300),
                key=chance.choice([None, b"k" * chance.randrange(20)]),
                value=bytes(chance.choice([10, 100, chance.randrange(300)])),
                headers=(("h", b"v"), ("other", None))[: chance.choice([0, 0, 1, 2])],
            )
            for _ in range(chance.randrange(most))
        ]
        batches.append(encode_batch(content, base_offset=offset))
        offset = read_header(batches[-1]).next_offset
    return batches


@pytest.mark.parametrize(
    ("count", "most"),
    [
        pytest.param(3 * vectors.LOCK_STEP_LEAST, 20, id="lock-step over many batches"),
        pytest.param(vectors.LOCK_STEP_LEAST // 2, 200, id="few batches, one by one"),
        pytest.param(1, 3000, id="one large batch"),
    ],
)
def test_every_way_to_find_records_finds_the_same(count: int, most: int) -> None:
    batches = many_batches(random.Random(count), count, most)
    assert rows(list(columnar.decode(b"".join(batches)))) == slowly(batches)


def test_lengths_of_three_bytes_and_longer_than_needed_are_read_in_lock_step() -> None:
    record = bytes([0, 0, 0, 1, 2]) + b"v" + b"\0"
    longer = bytes([0x80 | len(record) << 1, 0]) + record
    batches = []
    for number in range(2 * vectors.LOCK_STEP_LEAST):
        content = [Record(timestamp=1, value=bytes(size)) for size in (3, 9000 * (number % 3), 70)]
        whole = encode_batch(content)
        whole = whole[:HEADER_SIZE] + longer + whole[HEADER_SIZE:]
        head = bytearray(whole[:HEADER_SIZE])
        head[8:12] = (len(whole) - 12).to_bytes(4, "big")
        head[57:61] = (len(content) + 1).to_bytes(4, "big")
        batches.append(bytes(head) + whole[HEADER_SIZE:])
    found = columnar.decode(b"".join(batches), columns=["value"], check_crcs=False)
    values = [value for each in found for value in each.column("value").to_pylist()]
    expected = [record.value for batch in batches for record in decode_batch(batch)]
    assert values == expected


@pytest.mark.parametrize("size", [5, 100, 9000])
def test_a_guess_at_equal_lengths_ends_where_they_differ(size: int) -> None:
    # Offsets of one, two and three bytes change the length inside of a run.
    content = [Record(timestamp=1, value=bytes(size)) for _ in range(9000 if size == 5 else 400)]
    content += [Record(timestamp=1, value=b"!"), *content[:50]]
    batch = encode_batch(content)
    assert rows(list(columnar.decode(batch))) == slowly([batch])


def test_a_record_with_very_many_headers() -> None:
    headers = tuple((f"h{n}", bytes(n % 20)) for n in range(2000))
    batch = encode_batch([Record(timestamp=1, headers=headers), Record(timestamp=2)])
    assert rows(list(columnar.decode(batch))) == slowly([batch])


def test_control_batches_are_decoded_on_request() -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 3)
    batch = encode_control_batch(marker, producer_id=7, producer_epoch=1, timestamp=5)
    assert list(columnar.decode(batch)) == []
    found = list(columnar.decode(batch, control_batches=True))
    assert rows(found) == slowly([batch], control=True)


def test_values_are_not_copied() -> None:
    value = random.Random(1).randbytes(100)
    data = encode_batch([Record(timestamp=1, value=value)])
    (found,) = columnar.decode(data)
    _, _, values = found.column("value").buffers()
    address = pa.py_buffer(data).address
    assert address <= values.address < address + len(data)


def test_only_the_columns_asked_for_are_built() -> None:
    data = encode_batch([Record(timestamp=1, value=b"v")], base_offset=7)
    (found,) = columnar.decode(data, columns=["value", "offset"])
    assert found.to_pydict() == {"value": [b"v"], "offset": [7]}
    with pytest.raises(KeyError, match="no column 'colour'"):
        list(columnar.decode(data, columns=["colour"]))


def test_plain_columns_hold_the_same() -> None:
    batches = many_batches(random.Random(3), 5, 20)
    for found in columnar.decode(b"".join(batches)):
        simple = columnar.plain(found)
        assert simple.schema == columnar.PLAIN_SCHEMA
        assert simple.to_pylist() == found.to_pylist()


def test_batches_before_damage_are_read() -> None:
    batches = many_batches(random.Random(4), 4, 20)
    damaged = bytearray(b"".join(batches))
    at = len(batches[0]) + len(batches[1])
    damaged[at + HEADER_SIZE - 1] ^= 1
    stream = columnar.decode(bytes(damaged))
    found: list[pa.RecordBatch] = []
    with pytest.raises(CorruptBatchError) as caught:
        found.extend(stream)
    assert caught.value.position == at
    assert rows(found) == slowly(batches[:2])


def test_more_records_than_bytes_are_not_allocated() -> None:
    batch = bytearray(encode_batch([Record(timestamp=1, value=b"v")]))
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match="more records counted"):
        list(columnar.decode(bytes(batch), check_crcs=False))


@pytest.mark.parametrize("count", [-1, 2, 2**20, 2**31 - 1])
def test_more_headers_than_bytes_are_not_allocated(count: int) -> None:
    batch = encode_batch([Record(timestamp=1, value=b"v")])
    record = bytes([0, 0, 0, 1, 2]) + b"v" + varint(count)
    lying = batch[:HEADER_SIZE] + varint(len(record)) + record
    lying = lying[:8] + (len(lying) - 12).to_bytes(4, "big") + lying[12:]
    with pytest.raises(CorruptBatchError, match="more headers counted"):
        list(columnar.decode(lying, check_crcs=False))


@pytest.mark.parametrize("length", [b"\xff" * 9 + b"\x02", b"\xff" * 9 + b"\x01", b"\xff" * 12])
def test_lengths_of_too_many_bits_are_refused(length: bytes) -> None:
    batch = encode_batch([Record(timestamp=1, value=b"v" * 30)])
    lying = batch[:HEADER_SIZE] + length + batch[HEADER_SIZE + len(length) :]
    copies = lying * (2 * vectors.LOCK_STEP_LEAST)
    for log in (lying, copies):
        with pytest.raises(CorruptBatchError):
            list(columnar.decode(log, check_crcs=False))


def test_a_header_without_a_name_is_refused() -> None:
    batch = encode_batch([Record(timestamp=1, headers=(("", b"v"),))])
    for log in (batch, batch * (2 * vectors.LOCK_STEP_LEAST)):
        lying = log.replace(b"\x02\x00\x02v", b"\x02\x01\x02v")
        with pytest.raises(CorruptBatchError, match=r"name|a length of"):
            list(columnar.decode(lying, check_crcs=False))


def test_a_name_that_is_no_text_is_read_as_java_reads_it() -> None:
    batch = encode_batch([Record(timestamp=1, headers=(("name", b"v"), ("n", None)))])
    sent = batch.replace(b"name", b"\xffame")
    (found,) = columnar.decode(sent, check_crcs=False)
    assert [each["key"] for each in found["headers"].to_pylist()[0]] == ["\ufffdame", "n"]


def test_a_log_is_cut_into_batches_of_bounded_size() -> None:
    one = encode_batch([Record(timestamp=1, value=bytes(1024 * 1024))])
    found = [batch.num_rows for batch in columnar.decode(one * 10)]
    assert found == [7, 3]
    zeroes = [Record(timestamp=1, value=bytes(8 * 1024 * 1024))]
    small = encode_batch(zeroes, codec=Codec.ZSTD)
    assert [batch.num_rows for batch in columnar.decode(small * 10)] == [8, 2]


def test_one_piece_of_what_inflates_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    size, count = 1 << 20, 24
    monkeypatch.setattr(columnar, "_INFLATED_MOST", size)
    one = encode_batch([Record(timestamp=1, value=bytes(size))], codec=Codec.ZSTD)
    assert len(one) * count < size, "it is one chunk as it comes"
    tracemalloc.start()
    try:
        assert sum(found.num_rows for found in columnar.decode(one * count)) == count
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * size


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_are_taken_apart_so_many_at_a_time(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "_RECORDS_MOST", 100)
    large = encode_batch([Record(timestamp=1)] * 250, codec=codec)
    assert [each.num_rows for each in columnar.decode(large)] == [100, 100, 50]


def test_compressed_batches_of_many_records_are_taken_apart_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar, "_RECORDS_MOST", 100)
    counts = [250, 60, 40, 60, 250]
    batches = [encode_batch([Record(timestamp=1)] * each, codec=Codec.ZSTD) for each in counts]
    found = [each.num_rows for each in columnar.decode(b"".join(batches))]
    assert found == [100, 100, 50, 100, 60, 100, 100, 50]


def test_a_large_batch_that_is_damaged_at_its_end_gives_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar, "_RECORDS_MOST", 10)
    batch = encode_batch([Record(timestamp=1)] * 25)
    damaged = batch[:-1] + b"\x01"  # a header that is not there
    found: list[pa.RecordBatch] = []
    with pytest.raises(CorruptBatchError):
        found.extend(columnar.decode(damaged, check_crcs=False))
    assert found == []


def test_offsets_that_fall_from_batch_to_batch_are_read_within_bounds() -> None:
    high, low = (encode_batch([Record(timestamp=1)] * 2, base_offset=at) for at in (10, 5))
    (first, second) = columnar.decode(high + low, start_offset=6, end_offset=11)
    assert first["offset"].to_pylist() == [10]
    assert second["offset"].to_pylist() == [6]


def test_garbage_in_a_buffer_is_an_error() -> None:
    batches = many_batches(random.Random(6), 3, 20)
    stream = columnar.decode(b"".join(batches) + bytes(100))
    found: list[pa.RecordBatch] = []
    with pytest.raises(CorruptBatchError, match="no batch begins here") as caught:
        found.extend(stream)
    assert caught.value.position == sum(map(len, batches))
    assert rows(found) == slowly(batches)


@given(logs(), st.integers(1, 400))
@settings(max_examples=40)
def test_a_file_is_read_in_pieces_of_any_size(batches: list[bytes], chunk_size: int) -> None:
    disk = FaultyFileSystem(random.Random(1))
    file = disk.open("/0.log", create=True)
    file.write(0, b"".join(batches) + b"torn")
    assert rows(list(columnar.read(file, chunk_size=chunk_size))) == slowly(batches)


@pytest.mark.parametrize("missing", [1, 100])
def test_a_file_may_end_inside_of_a_batch(missing: int) -> None:
    whole, torn = many_batches(random.Random(5), 1, 20)[0], encode_batch([Record(value=bytes(200))])
    disk = FaultyFileSystem(random.Random(1))
    file = disk.open("/0.log", create=True)
    file.write(0, whole + torn[:-missing])
    assert rows(list(columnar.read(file))) == slowly([whole])


def test_damage_in_a_file_has_a_place() -> None:
    batches = many_batches(random.Random(5), 6, 20)
    disk = FaultyFileSystem(random.Random(1))
    file = disk.open("/0.log", create=True)
    at = sum(map(len, batches[:4]))
    for damage in (at + 16, at + 30):
        file.write(0, b"".join(batches))
        file.write(damage, b"\x55")
        with pytest.raises(DamagedLogError) as caught:
            list(columnar.read(file, chunk_size=300))
        assert (caught.value.path, caught.value.position) == ("/0.log", at)


def test_offsets_of_two_ends_of_the_numbers_are_no_overflow() -> None:
    """Each batch by itself fits, though the largest base and the largest delta would not."""
    far = encode_batch([Record(timestamp=1)], base_offset=2**63 - 2)
    near = encode_batch([Record(timestamp=1) for _ in range(9)], base_offset=0)
    (found,) = columnar.decode(near + far)
    assert found.column("offset").to_pylist() == [*range(9), 2**63 - 2]


def test_records_whose_fields_are_shorter_than_they_say_are_refused() -> None:
    record = bytes([0, 0, 0, 1, 1, 0, 9])  # a byte after the header count
    body = varint(len(record)) + record
    batch = encode_batch([Record(timestamp=1)])[:HEADER_SIZE] + body
    batch = batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]
    with pytest.raises(CorruptBatchError, match="not as long as the record"):
        list(columnar.decode(batch, check_crcs=False))


def test_many_batches_of_the_same_count_are_read_in_lock_step() -> None:
    batches = [
        encode_batch([Record(timestamp=1, value=b"%d" % n)] * 5, base_offset=n * 5)
        for n in range(2 * vectors.LOCK_STEP_LEAST)
    ]
    (found,) = columnar.decode(b"".join(batches))
    assert found.column("offset").to_pylist() == list(range(5 * len(batches)))
    values = found.column("value").to_pylist()
    assert values == [b"%d" % (n // 5) for n in range(5 * len(batches))]
