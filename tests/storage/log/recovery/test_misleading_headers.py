"""What a batch's first bytes say, which no checksum covers: its length and its offset."""

import struct

import pytest

from storage.log.log import Log
from tests.storage.logs import batch, contents, lead, new_disk, offsets, open_log, small_config

PATH = f"/d/t-0/{0:020d}.log"
LAST = 2**63 - 1


def opened(*, which: int, head: bytes, clean: bool) -> Log:
    """A log of forty batches of two records, one of which begins with other bytes."""
    system = new_disk()
    log = open_log(system, small_config(segment_bytes=1 << 20))
    begins = []
    for at in range(0, 80, 2):
        begins.append(log.size)
        log.append_as_follower(batch(2, at=at, epoch=3, producer_id=7, base_sequence=at))
    assert len(log.segments) == 1
    assert log.segments[0].offset_index.entry_count, "where a believed batch's offset is looked up"
    log.close()
    system.open(PATH, create=False).write(begins[which], head)
    return open_log(system, clean=clean, recovery_point=80 if clean else 0)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_first_batch_longer_than_its_file_is_none(clean: bool) -> None:
    log = opened(which=0, head=struct.pack(">qi", 0, 2**31 - 1), clean=clean)
    assert contents(log) == b""
    assert lead(log, epoch=3) == 0
    assert any("bytes, of which" in each.cause for each in log.recovery.repairs)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("first", [LAST, LAST - 1])
def test_a_batch_after_whose_offsets_there_is_none_is_cut(first: int, clean: bool) -> None:
    """Its last would not fit into a snapshot of producers, nor the next into a record."""
    log = opened(which=-1, head=struct.pack(">q", first), clean=clean)
    assert offsets(contents(log)) == list(range(78))
    assert lead(log, epoch=3) == 78
    assert any("no offset comes after" in each.cause for each in log.recovery.repairs)
