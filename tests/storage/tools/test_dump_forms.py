"""Dumps as JSON lines and as Arrow, and dumps of compression bombs."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from storage.batch.compression import Codec
from storage.batch.record_batch import stamp
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
    MetaProperties,
    OffsetCheckpoint,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from storage.producers.snapshot import BatchMetadata, ProducerState, encode_snapshot
from storage.testing import FaultyFileSystem
from storage.tools.dump import DumpOptions, dump
from storage.tools.dump.entries import BatchEntry, Damage, InvalidBytes, RecordEntry
from storage.tools.dump.json_lines import json_line
from storage.tools.dump.text import TextOptions, error_line
from storage.types import TopicPartition
from tests.storage.logs import batch, claiming, joined, new_disk
from tests.storage.tools.dumps import (
    ALL,
    DEEP,
    LOG,
    damage_in,
    five_batches,
    put,
)

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
