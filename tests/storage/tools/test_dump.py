"""Dumps of valid files in the format of kafka-dump-log."""

import struct

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import TimestampType, read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
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
from storage.tools.dump import DumpOptions, dump, files_in
from storage.tools.dump.entries import Damage
from storage.tools.dump.text import TextOptions
from storage.types import TopicPartition
from tests.storage.logs import batch, fill, joined, new_disk, open_log
from tests.storage.tools.dumps import (
    DEEP,
    INDEX,
    LOG,
    TIME_INDEX,
    complaints,
    damage_in,
    indexed_log,
    put,
    shown,
)

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
            " currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 4"
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
