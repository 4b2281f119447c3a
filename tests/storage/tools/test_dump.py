"""Dumps: Kafka's own words for what is sound, a place for what is not, and never an exception."""

import json
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, strategies as st

from storage.batch.compression import Codec
from storage.batch.record_batch import TimestampType, read_header, stamp, walk
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    LeaderEpochCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from storage.producers.snapshot import BatchMetadata, ProducerState, encode_snapshot
from storage.testing import FaultyFileSystem
from storage.tools.dump import DumpOptions, dump, files_in, is_damage
from storage.tools.dump.entries import BatchEntry, Damage, Entry, InvalidBytes, RecordEntry
from storage.tools.dump.json_lines import json_line
from storage.tools.dump.text import Findings, TextOptions, error_line, line
from storage.types import TopicPartition
from tests.storage.logs import batch, claiming, fill, joined, new_disk, open_log

LOG = "/d/00000000000000000000.log"
INDEX = "/d/00000000000000000000.index"
TIME_INDEX = "/d/00000000000000000000.timeindex"
DEEP = DumpOptions(deep_iteration=True)
ALL = TextOptions(print_data_log=True)


def put(disk: FaultyFileSystem, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(0, data)
    file.close()


def shown(entries: Iterable[Entry], options: TextOptions = ALL) -> str:
    """Standard output, as the command prints it."""
    lines = [line(entry, options) for entry in entries]
    return "\n".join(text for text in lines if text is not None)


def complaints(entries: Iterable[Entry]) -> list[str]:
    """Standard error, as the command prints it."""
    findings, at_once = Findings(), []
    for entry in entries:
        findings.note(entry)
        at_once.append(error_line(entry))
    return [text for text in at_once if text is not None] + list(findings.lines())


def damage_in(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if is_damage(entry)]


# What Kafka prints.


def test_batches_and_records_in_kafkas_words() -> None:
    disk = new_disk()
    records = [
        Record(timestamp=1000, key=b"k1", value=b"v1"),
        Record(timestamp=1001, value=b"", headers=(("h", b"x"),)),
    ]
    put(disk, LOG, encode_batch(records, leader_epoch=5))
    assert shown(dump(disk, [LOG], DEEP)).splitlines() == [
        "Dumping /d/00000000000000000000.log",
        "Log starting offset: 0",
        (
            "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1"
            " producerEpoch: -1 partitionLeaderEpoch: 5 isTransactional: false isControl: false"
            " deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1001 size: 83 magic: 2"
            " compresscodec: none crc: 3974129293 isvalid: true"
        ),
        (
            "| offset: 0 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: -1 headerKeys: []"
            " key: k1 payload: v1"
        ),
        (
            "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: 0 sequence: -1 headerKeys: [h]"
            " payload: "
        ),
    ]


def test_without_deep_iteration_only_batches_are_shown() -> None:
    disk = new_disk()
    put(disk, LOG, batch(3).tobytes())
    assert len(shown(dump(disk, [LOG])).splitlines()) == 3


def test_records_without_their_metadata() -> None:
    disk = new_disk()
    put(disk, LOG, encode_batch([Record(key=b"k", value=b"v"), Record(value=b"w"), Record()]))
    options = TextOptions(print_data_log=True, skip_record_metadata=True)
    lines = shown(dump(disk, [LOG], DEEP), options).split("\n")
    assert lines[-3:] == ["| key: k payload: v", "| payload: w", ""]


def test_a_transactional_log() -> None:
    disk = new_disk()
    data = encode_batch(
        [Record(timestamp=5)],
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=4,
        transactional=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 9)
    end = encode_control_batch(marker, producer_id=7, producer_epoch=2, timestamp=6, base_offset=1)
    put(disk, LOG, data + end)
    lines = shown(dump(disk, [LOG], DEEP)).splitlines()
    assert "baseSequence: 4 lastSequence: 4 producerId: 7 producerEpoch: 2" in lines[2]
    assert "isTransactional: true isControl: false" in lines[2]
    assert " LogAppendTime: 5 " in lines[2]
    assert " compresscodec: zstd " in lines[2]
    assert "isTransactional: true isControl: true" in lines[4]
    assert lines[5] == (
        "| offset: 1 CreateTime: 6 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: COMMIT coordinatorEpoch: 9"
    )


@pytest.mark.parametrize(
    ("kind", "name"), [(2, "LEADER_CHANGE"), (6, "KRAFT_VOTERS"), (7, "UNKNOWN"), (-1, "UNKNOWN")]
)
def test_other_control_records_are_named(kind: int, name: str) -> None:
    disk = new_disk()
    record = Record(timestamp=1, key=struct.pack(">hh", 0, kind), value=b"\0\0")
    put(disk, LOG, encode_batch([record], control=True))
    entries = list(dump(disk, [LOG], DEEP))
    assert shown(entries).endswith(f" controlType: {name}({kind})")
    assert damage_in(entries) == []


def test_a_control_record_without_a_type_is_damage() -> None:
    disk = new_disk()
    put(disk, LOG, encode_batch([Record(timestamp=1, key=b"?")], control=True))
    (damage,) = damage_in(dump(disk, [LOG], DEEP))
    assert "a control record without a type" in str(damage)


def test_a_snapshot_of_a_metadata_log_has_its_own_heading() -> None:
    disk = new_disk()
    path = "/d/00000000000000000012-0000000003.checkpoint"
    put(disk, path, batch(1).tobytes())
    assert shown(dump(disk, [path])).splitlines()[1] == "Snapshot end offset: 12, epoch: 3"


def test_producers_and_aborted_transactions() -> None:
    disk = new_disk()
    idle = ProducerState(1, 2, 3, 4)
    busy = ProducerState(5, 0, -1, 9, 8)
    busy.batches.append(BatchMetadata(last_sequence=3, last_offset=30, offset_delta=2, timestamp=9))
    put(disk, "/d/00000000000000000031.snapshot", encode_snapshot([idle, busy]))
    put(disk, "/d/00000000000000000000.txnindex", struct.pack(">hqqqq", 0, 5, 8, 30, 31))
    text = shown(dump(disk, ["/d"]))
    assert text.splitlines() == [
        "Dumping /d/00000000000000000000.txnindex",
        "version: 0 producerId: 5 firstOffset: 8 lastOffset: 30 lastStableOffset: 31",
        "Dumping /d/00000000000000000031.snapshot",
        (
            "producerId: 1 producerEpoch: 2 coordinatorEpoch: 3"
            " currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 4 "
        ),
        (
            "producerId: 5 producerEpoch: 0 coordinatorEpoch: -1"
            " currentTxnFirstOffset: OptionalLong[8] lastTimestamp: 9"
            " firstSequence: 1 lastSequence: 3 lastOffset: 30 offsetDelta: 2 timestamp: 9"
        ),
    ]


def test_a_log_directory_with_its_partitions() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 2)
    log.close()
    write_partition_metadata(disk, "/d/t-0", bytes(range(16)))
    LeaderEpochCheckpoint(disk, f"/d/t-0/{LEADER_EPOCH_CHECKPOINT}").write([EpochEntry(3, 1)])
    OffsetCheckpoint(disk, f"/d/{HIGH_WATERMARK_CHECKPOINT}").write({TopicPartition("t", 0): 2})
    write_meta_properties(disk, "/d", MetaProperties(cluster_id="c", node_id=1))
    write_clean_shutdown(disk, "/d", 17)
    put(disk, "/d/other", b"not ours")
    text = shown(dump(disk, ["/d"]))
    assert "brokerEpoch: 17" in text
    assert "clusterId: c nodeId: 1 directoryId: None" in text
    assert "topic: t partition: 0 offset: 2" in text
    assert "epoch: 3 startOffset: 1" in text
    assert "topicId: AAECAwQFBgcICQoLDA0ODw" in text
    assert "baseOffset: 1 lastOffset: 1" in text
    assert "/d/other" not in text


def test_a_file_of_another_kind_is_ignored_aloud() -> None:
    disk = new_disk()
    put(disk, "/d/other.txt", b"not ours")
    assert complaints(dump(disk, ["/d/other.txt"])) == ["Ignoring unknown file /d/other.txt"]


# Indexes.


def indexed_log() -> FaultyFileSystem:
    disk = new_disk()
    log = open_log(disk)
    for n in range(40):
        fill(log, 1, timestamp=1000 + n)
    log.close()
    return disk


def test_the_indexes_of_our_own_logs_agree_with_them() -> None:
    entries = list(dump(indexed_log(), ["/d/t-0"], DEEP))
    assert damage_in(entries) == []
    assert complaints(entries) == []
    assert "offset: " in shown(entries)
    assert "timestamp: " in shown(entries)


def test_zeroes_end_the_index_of_an_active_segment() -> None:
    disk = new_disk()
    one = batch(1)
    put(disk, LOG, joined(one, batch(1, at=1)).tobytes())
    put(disk, INDEX, struct.pack(">ii", 1, len(one)) + bytes(80))
    put(disk, TIME_INDEX, struct.pack(">qi", read_header(one).max_timestamp, 1) + bytes(120))
    entries = list(dump(disk, [INDEX, TIME_INDEX]))
    assert shown(entries).splitlines()[1::2] == [
        f"offset: 1 position: {len(one)}",
        f"timestamp: {read_header(one).max_timestamp} offset: 1",
    ]
    assert damage_in(entries) == []


def test_an_entry_for_an_append_of_two_batches_is_no_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(2), batch(2, at=2)).tobytes())
    put(disk, INDEX, struct.pack(">ii", 3, 0))
    entries = list(dump(disk, [INDEX]))
    assert complaints(entries) == [f"Mismatches in :{INDEX}", "  Index offset: 3, log offset: 1"]
    assert damage_in(entries) == []


def test_index_entries_that_mislead() -> None:
    disk = new_disk()
    one = batch(2)
    put(disk, LOG, joined(one, batch(2, at=2)).tobytes())
    for offset, position in ((1, len(one)), (1, 7), (1, 10**6), (1, -1)):
        put(disk, INDEX, struct.pack(">ii", offset, position))
        assert len(damage_in(dump(disk, [INDEX]))) == 1, (offset, position)


def test_time_index_entries_that_mislead_in_kafkas_words() -> None:
    disk = new_disk()
    batches = [batch(2, at=2 * n, timestamp=1000 + n) for n in range(4)]
    put(disk, LOG, joined(*batches).tobytes())
    entries = [(1000, 1), (999, 3), (1002, 4), (1002, 5), (1003, 90)]
    put(disk, TIME_INDEX, b"".join(struct.pack(">qi", *entry) for entry in entries))
    assert complaints(dump(disk, [TIME_INDEX])) == [
        f"Found timestamp mismatch in :{TIME_INDEX}",
        "  Index timestamp: 999, log timestamp: 1001",
        f"Found out of order timestamp in :{TIME_INDEX}",
        "  Index timestamp: 999, Previously indexed timestamp: 1000",
        "  Index timestamp: 1002, Previously indexed timestamp: 1002",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 4, found log offset: 5",
        "Indexed offset: 90, found log offset: -1",
    ]


def test_offsets_of_a_time_index_that_go_back_are_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(2), batch(2, at=2)).tobytes())
    put(disk, TIME_INDEX, struct.pack(">qiqi", 5, 3, 6, 1))
    assert Damage(TIME_INDEX, 12, "offset 1 after 3") in list(dump(disk, [TIME_INDEX]))


def test_only_the_sanity_of_indexes() -> None:
    disk, options = new_disk(), DumpOptions(index_sanity_check=True)
    put(disk, INDEX, struct.pack(">ii", 3, 0))
    put(disk, TIME_INDEX, struct.pack(">qi", 3, 0))
    assert shown(dump(disk, [INDEX, TIME_INDEX], options)).splitlines()[1::2] == [
        f"{INDEX} passed sanity check.",
        f"{TIME_INDEX} passed sanity check.",
    ]
    put(disk, INDEX, struct.pack(">ii", 3, 0) + b"odd")
    put(disk, TIME_INDEX, struct.pack(">qiqi", 3, 0, 2, 1))
    assert [damage.position for damage in damage_in(dump(disk, ["/d"], options))] == [8, 12]  # type: ignore[union-attr]
    put(disk, INDEX, struct.pack(">ii", -3, 0))
    put(disk, TIME_INDEX, struct.pack(">qi", 3, -1))
    assert len(damage_in(dump(disk, ["/d"], options))) == 2
    put(disk, INDEX, b"")
    put(disk, TIME_INDEX, b"")
    assert f"{INDEX} is empty." in shown(dump(disk, ["/d"], options))


def test_verifying_an_index_prints_no_entries() -> None:
    disk, options = indexed_log(), DumpOptions(verify_index_only=True)
    indexes = [path for path in files_in(disk, "/d/t-0") if path.endswith("index")]
    assert all(
        text.startswith("Dumping") for text in shown(dump(disk, indexes, options)).split("\n")
    )


# Damage.


def five_batches() -> list[bytes]:
    return [batch(3, at=3 * n, timestamp=1000 + n).tobytes() for n in range(5)]


def test_a_torn_tail() -> None:
    disk, batches = new_disk(), five_batches()
    whole = b"".join(batches)
    put(disk, LOG, whole + batches[0][:70])
    entries = list(dump(disk, [LOG]))
    assert entries[-1] == InvalidBytes(LOG, len(whole), 70)
    assert shown(entries).endswith("Found 70 invalid bytes at the end of 00000000000000000000.log")


def test_a_batch_that_the_limit_cuts_is_no_damage() -> None:
    disk, batches = new_disk(), five_batches()
    put(disk, LOG, b"".join(batches))
    entries = list(dump(disk, [LOG], DumpOptions(max_bytes=len(batches[0]) + 70)))
    assert len([entry for entry in entries if isinstance(entry, BatchEntry)]) == 1
    assert damage_in(entries) == []


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        pytest.param(16, 1, id="an older magic"),
        pytest.param(11, 1, id="a length below a header's"),
        pytest.param(10, 1, id="a length into the next batches"),
        pytest.param(8, 0x7F, id="a length past the file"),
    ],
)
def test_the_dump_goes_on_behind_a_broken_header(at: int, byte: int) -> None:
    disk, batches = new_disk(), five_batches()
    start = len(batches[0])
    data = bytearray(b"".join(batches))
    data[start + at] = byte
    put(disk, LOG, bytes(data))
    entries = list(dump(disk, [LOG]))
    valid = [e.header.base_offset for e in entries if isinstance(e, BatchEntry) and e.is_valid]
    assert valid == [0, 6, 9, 12]
    (damage,) = [entry for entry in entries if isinstance(entry, Damage)]
    assert (damage.position, damage.resumed_at) == (start, start + len(batches[1]))


def test_a_batch_inside_of_a_value_is_not_taken_for_the_logs() -> None:
    disk = new_disk()
    inner = batch(1, at=1).tobytes()
    outer = bytearray(encode_batch([Record(timestamp=1, value=inner)], base_offset=7))
    outer[16] = 0
    put(disk, LOG, batch(7).tobytes() + bytes(outer))
    entries = list(dump(disk, [LOG]))
    assert [e.header.base_offset for e in entries if isinstance(e, BatchEntry)] == [0]


def test_a_flipped_bit_is_shown_and_passed_over() -> None:
    disk, batches = new_disk(), five_batches()
    data = bytearray(b"".join(batches))
    data[len(batches[0]) + 65] ^= 4
    put(disk, LOG, bytes(data))
    entries = list(dump(disk, [LOG], DEEP))
    valid = [entry.is_valid for entry in entries if isinstance(entry, BatchEntry)]
    assert valid == [True, False, True, True, True]
    assert damage_in(entries) != []


def test_offsets_that_go_back_are_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(3), batch(3, at=1)).tobytes())
    (damage,) = damage_in(dump(disk, [LOG]))
    assert "offset 1 where 3 comes next" in str(damage)


def test_gaps_are_named_but_are_no_damage() -> None:
    disk = new_disk()
    put(disk, LOG, joined(batch(3, at=5), batch(3, at=9)).tobytes())
    entries = list(dump(disk, [LOG], DEEP))
    assert complaints(entries) == [f"Non-consecutive offsets in {LOG}", "  7 is followed by 9"]
    assert damage_in(entries) == []


def test_a_file_that_is_not_there_or_not_legible_is_damage_and_the_next_is_dumped() -> None:
    disk = new_disk()
    put(disk, LOG, batch(1).tobytes())
    put(disk, f"/d/{LEADER_EPOCH_CHECKPOINT}", b"nonsense")
    paths = ["/d/00000000000000000009.log", f"/d/{LEADER_EPOCH_CHECKPOINT}", LOG]
    entries = list(dump(disk, paths))
    assert [entry.path for entry in damage_in(entries)] == paths[:2]  # type: ignore[union-attr]
    assert isinstance(entries[-1], BatchEntry)


def written(disk: FaultyFileSystem) -> dict[str, int]:
    return {path: disk.open_for_reading(path).size() for path in files_in(disk, "/d")}


def test_a_dump_writes_nothing() -> None:
    disk = indexed_log()
    disk.remove("/d/t-0/00000000000000000000.index")
    before = disk.list_directory("/d/t-0"), written(disk)
    list(dump(disk, ["/d"], DEEP))
    assert (disk.list_directory("/d/t-0"), written(disk)) == before


@given(st.lists(st.sampled_from(Codec), min_size=1, max_size=6), st.data())
def test_untouched_batches_are_shown_and_damaged_ones_are_not_called_sound(
    codecs: list[Codec], data: st.DataObject
) -> None:
    batches = [batch(2, at=2 * n, codec=codec).tobytes() for n, codec in enumerate(codecs)]
    log = bytearray(b"".join(batches))
    places = dict(zip((at for at, _ in walk(b"".join(batches))), batches, strict=True))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.sampled_from(sorted(places)))
        # From the magic on: nothing guards the offset and the epoch but what follows them.
        at = start + data.draw(st.integers(16, len(places[start]) - 1))
        log[at] = data.draw(st.integers(0, 255))
    disk = new_disk()
    put(disk, LOG, bytes(log))
    entries = list(dump(disk, [LOG], DEEP))
    sound = {
        entry.position for entry in entries if isinstance(entry, BatchEntry) and entry.is_valid
    }
    assert sound == {at for at, one in places.items() if log[at : at + len(one)] == one}
    assert bool(damage_in(entries)) == (len(sound) < len(batches))


NAMES = (
    os.path.basename(LOG),
    os.path.basename(INDEX),
    os.path.basename(TIME_INDEX),
    "00000000000000000000.snapshot",
    "00000000000000000000.txnindex",
    "00000000000000000001-0000000001.checkpoint",
    LEADER_EPOCH_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_a_dump_of_any_bytes_ends_without_an_exception(
    files: dict[str, bytes], sanity: bool, sound: bool
) -> None:
    disk = new_disk()
    for name, content in files.items():
        put(disk, f"/d/{name}", content)
    if sound:
        put(disk, LOG, joined(batch(2), batch(2, at=2)).tobytes())
    options = DumpOptions(deep_iteration=True, index_sanity_check=sanity)
    entries = list(dump(disk, ["/d"], options))
    assert isinstance(shown(entries), str)
    for entry in entries:
        assert json.loads(json_line(entry, ALL))["kind"]


def test_a_time_index_over_a_damaged_log() -> None:
    disk, one = new_disk(), batch(2)
    put(disk, LOG, one.tobytes() + bytes(100))
    put(disk, TIME_INDEX, struct.pack(">qi", 5, 3))
    assert complaints(dump(disk, [TIME_INDEX]))[-1] == "Indexed offset: 3, found log offset: -1"


def test_aborted_transactions_that_are_no_whole_entries() -> None:
    disk, path = new_disk(), "/d/00000000000000000000.txnindex"
    entry = struct.pack(">hqqqq", 0, 5, 8, 30, 31)
    put(disk, path, entry + b"torn")
    assert list(dump(disk, [path]))[-1] == Damage(path, 34, "4 bytes after the last whole entry")
    put(disk, path, entry + struct.pack(">hqqqq", 1, 5, 8, 30, 31))
    assert list(dump(disk, [path]))[-1] == Damage(path, 34, "an entry of version 1")


# JSON lines.


def as_json(disk: FaultyFileSystem, path: str) -> list[dict[str, object]]:
    return [json.loads(json_line(entry, ALL)) for entry in dump(disk, [path], DEEP)]


def test_json_lines_of_a_log() -> None:
    disk = new_disk()
    record = Record(timestamp=5, key=b"k", value=b"\xff", headers=(("h", None),))
    put(disk, LOG, encode_batch([record], leader_epoch=3, codec=Codec.LZ4) + b"torn")
    started, first, content, torn = as_json(disk, LOG)
    assert started == {"kind": "file_started", "path": LOG, "base_offset": 0, "epoch": None}
    assert (first["kind"], first["codec"], first["is_valid"]) == ("batch", "lz4", True)
    assert first["timestamp_type"] == "CreateTime"
    assert content == {
        "kind": "record",
        "offset": 0,
        "timestamp_type": "CreateTime",
        "timestamp": 5,
        "key_size": 1,
        "value_size": 1,
        "sequence": -1,
        "header_keys": ["h"],
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "h", "value": None}],
    }
    assert (torn["kind"], torn["size"], torn["is_damage"]) == ("invalid_bytes", 4, True)


def test_json_lines_of_control_records() -> None:
    disk = new_disk()
    marker = EndTransactionMarker(ControlRecordType.ABORT, 9)
    put(disk, LOG, encode_control_batch(marker, producer_id=7, producer_epoch=2, timestamp=6))
    record = as_json(disk, LOG)[-1]
    assert (record["control_type"], record["coordinator_epoch"]) == ("ABORT", 9)
    assert "key" not in record


def test_json_lines_of_small_files() -> None:
    disk = new_disk()
    busy = ProducerState(5, 0, -1, 9)
    busy.batches.append(BatchMetadata(last_sequence=3, last_offset=30, offset_delta=2, timestamp=9))
    put(disk, "/d/00000000000000000031.snapshot", encode_snapshot([busy]))
    write_partition_metadata(disk, "/d", bytes(range(16)))
    OffsetCheckpoint(disk, f"/d/{HIGH_WATERMARK_CHECKPOINT}").write({TopicPartition("t", 0): 2})
    write_meta_properties(disk, "/d", MetaProperties(cluster_id="c", node_id=1))
    write_clean_shutdown(disk, "/d", 17)
    lines = [line for line in as_json(disk, "/d") if line["kind"] != "file_started"]
    by_kind = {str(line["kind"]): line for line in lines}
    assert by_kind["producer"]["producer_id"] == 5
    assert by_kind["checkpoint"] == {
        "kind": "checkpoint",
        "topic": "t",
        "partition": 0,
        "offset": 2,
    }
    assert by_kind["partition_metadata"]["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert by_kind["directory_metadata"]["node_id"] == 1
    assert by_kind["shutdown_marker"]["broker_epoch"] == 17


def test_arrow_goes_over_damage_too() -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    from storage.tools.dump import arrow

    disk, batches = new_disk(), five_batches()
    data = bytearray(b"".join(batches))
    data[-1] ^= 1
    put(disk, LOG, bytes(data) + b"torn")
    for read in (arrow.arrow_batches, arrow.arrow_records):
        found = list(read(disk, ["/d/gone.log", LOG]))
        damage = [item for item in found if isinstance(item, Damage | InvalidBytes)]
        assert damage[0] == Damage("/d/gone.log", 0, damage[0].reason)  # type: ignore[union-attr]
        assert damage[-1] == InvalidBytes(LOG, len(data), 4)
        assert str(damage[-1]) == f"{LOG}, byte {len(data)}: 4 bytes after the last batch"
    (records,) = (
        item
        for item in arrow.arrow_records(disk, [LOG])
        if not isinstance(item, Damage | InvalidBytes)
    )
    assert records.column("offset").to_pylist() == list(range(12))


def test_arrow_rows_come_in_bounded_batches() -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    from storage.tools.dump import arrow

    disk = new_disk()
    empty = encode_batch([])
    put(disk, LOG, empty * (arrow.ROWS + 1))
    found = [item for item in arrow.arrow_batches(disk, [LOG]) if hasattr(item, "num_rows")]
    assert [item.num_rows for item in found] == [arrow.ROWS, 1]


def test_a_record_entry_holds_the_record() -> None:
    disk = new_disk()
    put(disk, LOG, batch(2).tobytes())
    found = [e.record for e in dump(disk, [LOG], DEEP) if isinstance(e, RecordEntry)]
    assert found == decode_batch(batch(2))


def test_a_small_file_that_is_not_there_is_damage() -> None:
    disk = new_disk()
    for name in ("partition.metadata", "meta.properties", ".kafka_cleanshutdown"):
        (found,) = [entry for entry in dump(disk, [f"/d/{name}"]) if isinstance(entry, Damage)]
        assert (found.path, found.reason) == (f"/d/{name}", "No such file or directory")
        assert error_line(found) == f"/d/{name}, byte 0: No such file or directory"


def test_a_limit_right_behind_a_damaged_batch() -> None:
    disk, first = new_disk(), bytearray(batch(at=0).tobytes())
    first[-1] ^= 1
    put(disk, "/d/00000000000000000000.log", bytes(first) + bytes(100))
    entries = list(dump(disk, ["/d/00000000000000000000.log"], DumpOptions(max_bytes=len(first))))
    (found,) = [entry for entry in entries if isinstance(entry, Damage)]
    assert found.position == 0
    assert not [entry for entry in entries if isinstance(entry, InvalidBytes)]


def test_json_without_the_metadata_of_records() -> None:
    disk = new_disk()
    put(disk, "/d/00000000000000000000.log", batch(key=b"k", size=1).tobytes())
    entries = dump(disk, ["/d/00000000000000000000.log"], DumpOptions(deep_iteration=True))
    options = TextOptions(print_data_log=True, skip_record_metadata=True)
    (record,) = [json_line(entry, options) for entry in entries if isinstance(entry, RecordEntry)]
    assert "offset" not in json.loads(record)
    assert json.loads(record)["key"] == "k"
    options = TextOptions(skip_record_metadata=True)
    entries = dump(disk, ["/d/00000000000000000000.log"], DumpOptions(deep_iteration=True))
    (record,) = [json_line(entry, options) for entry in entries if isinstance(entry, RecordEntry)]
    assert json.loads(record) == {"kind": "record"}


def test_a_large_log_becomes_several_pieces_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    columnar = pytest.importorskip(
        "storage.batch.columns.columnar", reason="not installed: understudy[arrow]"
    )
    from storage.tools.dump.arrow import arrow_records

    monkeypatch.setattr(columnar, "CHUNK_SIZE", 200)
    disk = new_disk()
    path = "/d/00000000000000000000.log"
    put(disk, path, joined(*(batch(2, at=at) for at in range(0, 20, 2))).tobytes())
    found = list(arrow_records(disk, [path]))
    pieces = [piece for piece in found if not isinstance(piece, Damage | InvalidBytes)]
    assert len(pieces) == len(found) > 1
    assert [offset for piece in pieces for offset in piece.column("offset").to_pylist()] == [
        *range(20)
    ]


def test_a_sound_log_prints_nothing_to_standard_error() -> None:
    disk = new_disk()
    put(disk, "/d/00000000000000000000.log", batch().tobytes())
    assert [error_line(entry) for entry in dump(disk, ["/d/00000000000000000000.log"])] == [
        None,
        None,
    ]


# Compression bombs.


def log_of(*batches: memoryview) -> bytes:
    """The batches at offsets that rise."""
    for at, each in enumerate(batches):
        stamp(each, base_offset=10_000_000 * at, leader_epoch=0)
    return b"".join(batches)


def bomb(size: int = 100 << 20) -> memoryview:
    return batch(1, size=size, codec=Codec.ZSTD)


def claimed() -> memoryview:
    return claiming(1_000_000, bytes(100), Codec.ZSTD)


@pytest.mark.parametrize("make", [bomb, claimed])
def test_records_that_are_too_many_for_their_bytes_are_named_and_the_dump_goes_on(
    make: Callable[[], memoryview],
) -> None:
    disk = new_disk()
    put(disk, LOG, log_of(batch(2), make(), make(), make(), batch(2)))
    tracemalloc.start()
    try:
        found = list(dump(disk, [LOG], DEEP))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    at = [each.position for each in found if isinstance(each, BatchEntry)]
    damaged = [each for each in found if isinstance(each, Damage)]
    assert [each.position for each in damaged] == at[1:4]
    assert all("to show" in each.reason for each in damaged)
    assert sum(isinstance(each, RecordEntry) for each in found) == 4


def test_a_file_of_many_small_bombs_is_decompressed_in_proportion_to_its_size() -> None:
    disk = new_disk()
    data = log_of(*(bomb(3 << 20) for _ in range(50)))
    put(disk, LOG, data)
    found = list(dump(disk, [LOG], DEEP))
    values = [each.record.value or b"" for each in found if isinstance(each, RecordEntry)]
    assert 0 < sum(map(len, values)) < (16 << 20) + 256 * len(data)
    assert len(values) + len(damage_in(found)) == 50


def test_records_are_shown_one_after_another() -> None:
    """The records of a batch are not all in memory at once, only the bytes that they are read from."""
    disk = new_disk()
    many = batch(5_000, codec=Codec.LZ4)
    put(disk, LOG, bytes(many))
    tracemalloc.start()
    try:
        assert sum(isinstance(each, RecordEntry) for each in dump(disk, [LOG], DEEP)) == 5_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 5_000 * 30


def test_arrow_names_bombs_too() -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    from storage.tools.dump import arrow

    disk = new_disk()
    put(disk, LOG, log_of(batch(2), bomb(), claimed(), batch(2, codec=Codec.LZ4)))
    found = list(arrow.arrow_records(disk, [LOG]))
    assert sum(getattr(each, "num_rows", 0) for each in found) == 4
    assert [type(each) for each in found].count(Damage) == 2
