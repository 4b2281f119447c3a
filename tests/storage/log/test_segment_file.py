"""One `.log` file by its path."""

import random
from pathlib import Path

import pytest

import storage
from storage.batch.batch_stream import DamagedLogError
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_control_batch,
)
from storage.batch.spare_room import CHUNK_SIZE
from storage.errors import CorruptRecordError
from storage.log.segment_file import find_batch, open_segment
from tests.storage.logs import batch, new_disk

NAME = "00000000000000000100.log"


def batches() -> list[bytes]:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 1)
    end = encode_control_batch(
        marker, producer_id=1, producer_epoch=0, timestamp=1, base_offset=102, leader_epoch=0
    )
    return [batch(2, at=100).tobytes(), end, batch(3, at=103).tobytes()]


def test_a_segment_in_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches()) + b"torn")
    with storage.open_segment(path) as segment:
        assert segment.base_offset == 100
        assert [found.header.base_offset for found in segment.batches()] == [100, 102, 103]
        assert [record.offset for record in segment.records()] == [100, 101, 103, 104, 105]
        control = segment.records(control_batches=True)
        assert [record.offset for record in control] == [100, 101, 102, 103, 104, 105]
        second = list(segment.batches())[1]
        assert next(segment.batches(second.position)).header == second.header
        assert second.records() == decode_batch(batches()[1])


def test_a_segment_as_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches()))
    with open_segment(path) as segment:
        table = segment.to_arrow()
        assert table.column("offset").to_pylist() == [100, 101, 103, 104, 105]
        assert segment.to_arrow(["offset"], control_batches=True).num_rows == 6
    (tmp_path / "empty.log").touch()
    with open_segment(tmp_path / "empty.log") as segment:
        assert segment.base_offset is None
        assert segment.to_arrow().num_rows == 0


def test_damage_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / NAME
    data = bytearray(b"".join(batches()))
    at = len(batches()[0])
    data[at + 70] ^= 1
    path.write_bytes(data)
    with open_segment(path) as segment:
        assert [found.is_valid for found in segment.batches()] == [True, False, True]
        with pytest.raises(CorruptRecordError):
            list(segment.batches())[1].records()
        with pytest.raises(DamagedLogError) as caught:
            list(segment.records(control_batches=True))
        assert (caught.value.path, caught.value.position) == (str(path), at)
    data[at + 16] = 1
    path.write_bytes(data)
    with open_segment(path) as segment, pytest.raises(DamagedLogError, match="magic 1"):
        list(segment.batches())


def test_batches_larger_than_a_chunk_and_across_its_border() -> None:
    disk, chance = new_disk(), random.Random(1)
    sizes = [10, CHUNK_SIZE + 5, 3, CHUNK_SIZE - 200, 500, 500]
    found = [
        encode_batch([Record(timestamp=1, value=chance.randbytes(size))], base_offset=n)
        for n, size in enumerate(sizes)
    ]
    file = disk.open("/d/0.log", create=True)
    file.write(0, b"".join(found))
    with open_segment("/d/0.log", disk) as segment:
        assert [bytes(one.data) for one in segment.batches()] == found


@pytest.mark.parametrize("before", [0, 1, 5000, CHUNK_SIZE - 30, CHUNK_SIZE, CHUNK_SIZE + 61])
def test_a_sound_batch_is_found_wherever_it_stands(before: int) -> None:
    disk, one = new_disk(), batch(2, at=7).tobytes()
    file = disk.open("/d/0.log", create=True)
    file.write(0, random.Random(2).randbytes(before) + one)
    end = before + len(one)
    assert find_batch(file, 0, end, least_offset=7) == before
    assert find_batch(file, 0, end, least_offset=8) is None
    assert find_batch(file, 0, end - 1, least_offset=7) is None


def test_a_search_through_lies_has_an_end() -> None:
    disk = new_disk()
    file = disk.open("/d/0.log", create=True)
    # Every 61 bytes a header that claims all the rest of the file, and has another CRC.
    header, size = bytearray(batch(1).tobytes()[:61]), 60 * 1024
    for at in range(0, size, 61):
        header[8:12] = (size - at - 12).to_bytes(4, "big")
        file.write(at, header)
    assert find_batch(file, 1, size, least_offset=0) is None


def test_a_search_gives_up_before_it_costs_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every byte may look like the beginning of a batch as long as the rest of the file."""
    disk = new_disk()
    sound = batch(at=5).tobytes()
    misleading = bytearray(batch(size=400).tobytes())
    misleading[70] ^= 1
    file = disk.open("/d/f", create=True)
    file.write(0, bytes(misleading) + sound)
    end = file.size()
    assert find_batch(file, 0, end, least_offset=0) == len(misleading)
    monkeypatch.setattr("storage.log.segment_file._SEARCH_COST_MOST", len(misleading) - 1)
    assert find_batch(file, 0, end, least_offset=0) is None


def test_a_file_that_shrinks_under_its_reader_is_no_damage() -> None:
    disk = new_disk()
    first = batch(size=CHUNK_SIZE).tobytes()
    file = disk.open(f"/d/{NAME}", create=True)
    file.write(0, first + batch(at=1).tobytes())
    with open_segment(f"/d/{NAME}", disk) as segment:
        found = segment.batches()
        assert next(found).header.base_offset == 0
        file.truncate(len(first) + 10)
        with pytest.raises(OSError, match="became shorter while it was read"):
            next(found)
    # Nor does a search find what is no longer there.
    assert find_batch(file, len(first) - 100, len(first) + 200, least_offset=0) is None
    file.truncate(100)
    assert find_batch(file, 0, len(first), least_offset=0) is None
