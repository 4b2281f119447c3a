"""A partition's directory with something wrong in it: what is done, what is said, what is kept.

The file is long because each file of a directory can be wrong in several ways.
"""

import struct
import zlib
from collections.abc import Callable

import pytest

from storage.batch.record_batch import computed_crc
from storage.errors import UnsupportedFormatError
from storage.log.log import Log
from storage.log.recovery.report import Repair
from storage.testing import Fault, FaultyFileSystem
from tests.storage.logs import (
    bases,
    batch,
    contents,
    fill,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
)

DIRECTORY = "/d/t-0"
RECORDS = 60


def closed(system: FaultyFileSystem, records: int = RECORDS) -> Log:
    """Shut down in good order: everything in it had been promised."""
    log = open_log(system)
    fill(log, records, epoch=3)
    log.close()
    return log


def killed(system: FaultyFileSystem) -> FaultyFileSystem:
    system.detach()
    return system.reopen()


def path(base: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def data_of(system: FaultyFileSystem, name: str) -> bytes:
    file = system.open_for_reading(name)
    return file.read(0, file.size())


def put(system: FaultyFileSystem, name: str, data: bytes) -> None:
    file = system.open(name, create=True)
    file.truncate(0)
    file.write(0, data)


def reopened(system: FaultyFileSystem, records: int = RECORDS) -> Log:
    return open_log(system, clean=True, recovery_point=records)


def kept(log: Log) -> list[Repair]:
    return [each for each in log.recovery.repairs if each.kept]


def shorten(data: bytes) -> bytes:
    return data[:-100]


def garble_the_start(data: bytes) -> bytes:
    return b"garbage " * 20 + data[160:]


def garble_the_end(data: bytes) -> bytes:
    return data[:-50] + b"garbage " * 6 + b"!!"


# Data that was there when the broker shut down.


@pytest.mark.parametrize("last", [True, False], ids=["the last segment", "one in the middle"])
def test_an_emptied_log_file_is_missed_under_a_clean_marker(last: bool) -> None:
    system = new_disk()
    log = closed(system)
    segments = list(bases(log))
    base = segments[-1 if last else 1]
    put(system, path(base), b"")
    again = reopened(system)
    assert not again.recovery.clean
    assert any(path(base) in str(each) for each in again.recovery.repairs)
    # Nothing that is there goes; what is missing is named, and is fetched again or looked for.
    assert list(bases(again)) == segments
    if last:
        assert again.log_end_offset == base
        assert f"synced up to offset {RECORDS}" in str(again.recovery.repairs[-1])
    else:
        assert again.log_end_offset == RECORDS
        assert f"nothing holds the offsets {base} to {segments[2] - 1}" in str(
            again.recovery.repairs[-1]
        )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("last", [b"", bytes(91)], ids=["nothing", "zeros"])
def test_the_log_ends_before_a_gap_that_nothing_follows(last: bytes, clean: bool) -> None:
    """Found by the swarm: a disk had lied over a roll, and its log went on behind what it lacked."""
    system = new_disk()
    segments = list(bases(closed(system)))
    for base in segments[1:]:
        put(system, path(base), b"")
    put(system, path(segments[-1]), last)
    again = open_log(system, clean=clean, recovery_point=RECORDS)
    assert not again.recovery.clean
    assert (again.log_end_offset, list(bases(again))) == (segments[1], segments[:2])
    assert f"nothing holds the offsets {segments[1]} to {segments[2] - 1}" in str(
        again.recovery.repairs
    )
    fill(again, 1, epoch=4)
    assert again.log_end_offset == segments[1] + 1


@pytest.mark.parametrize(
    ("damage", "last"),
    [(shorten, True), (garble_the_end, True), (shorten, False), (garble_the_start, False)],
)
def test_bytes_that_are_cut_under_a_clean_marker_are_kept(
    damage: Callable[[bytes], bytes], last: bool
) -> None:
    system = new_disk()
    log = closed(system)
    segments = list(bases(log))
    base = segments[-1 if last else 1]
    damaged = damage(data_of(system, path(base)))
    put(system, path(base), damaged)
    behind = {each: data_of(system, path(each)) for each in segments if each > base}
    again = reopened(system)
    assert not again.recovery.clean
    assert again.log_end_offset < RECORDS
    before = contents(again)
    assert offsets(before) == list(range(again.log_end_offset))
    [cut, *dropped] = kept(again)
    assert cut.path == path(base)
    assert cut.offset == again.log_end_offset
    whole = data_of(system, path(base)) + data_of(system, cut.kept)
    assert whole == damaged
    assert cut.position == len(data_of(system, path(base)))
    assert [data_of(system, each.kept) for each in dropped] == list(behind.values())
    assert again.recovery.bytes_truncated == cut.bytes + sum(map(len, behind.values()))
    # It opens as it is now, says nothing more, and goes on.
    lead(again, epoch=4)
    again.close()
    once_more = open_log(system, clean=True, recovery_point=again.log_end_offset)
    assert once_more.recovery.clean
    assert not once_more.recovery.repairs
    assert contents(once_more).startswith(before)
    assert data_of(system, cut.kept) == damaged[cut.position :]


def test_a_file_written_to_after_the_shutdown_is_read_again() -> None:
    system = new_disk()
    log = closed(system)
    base = list(bases(log))[1]
    sound = data_of(system, path(base))
    put(system, path(base), sound[:70] + bytes([sound[70] ^ 1]) + sound[71:])
    system.disk.file(path(base)).modified_ms = 20_000
    unaware = reopened(system)
    assert unaware.recovery.clean, "nothing but its time and a CRC tells"
    assert open_log(system, clean=True, recovery_point=RECORDS, marker_ms=10_000).recovery.clean
    again = open_log(system, clean=True, recovery_point=RECORDS, marker_ms=9_999)
    assert not again.recovery.clean
    assert "written to after the clean shutdown" in str(again.recovery.repairs[0])
    assert "CRC-32C" in kept(again)[0].cause
    assert again.log_end_offset == base


def test_a_missing_segment_is_named_and_the_rest_stays() -> None:
    system = new_disk()
    log = closed(system)
    segments = list(bases(log))
    for suffix in (".log", ".index", ".timeindex"):
        system.remove(path(segments[1], suffix))
    for clean in (True, False):
        again = open_log(system, recovery_point=RECORDS, clean=clean)
        assert list(bases(again)) == [segments[0], *segments[2:]]
        assert not again.recovery.clean
        assert any(
            f"nothing holds the offsets {segments[1]} to {segments[2] - 1}" in each.cause
            for each in again.recovery.repairs
        )
        data = again.read(segments[1], 1, max_offset_exclusive=RECORDS, min_one=True)
        assert data.records is not None
        assert offsets(data.records.read())[0] == segments[2]
        again.close()


def test_offsets_that_compaction_took_are_not_missed() -> None:
    system = new_disk()
    log = closed(system)
    segments = list(bases(log))
    system.remove(path(segments[1]))
    for clean in (True, False):
        # Even without a recovery point: the cleaner's checkpoint is enough.
        again = open_log(system, clean=clean, compacted_to=segments[2])
        assert list(bases(again)) == [segments[0], *segments[2:]]
        assert not again.recovery.repairs
        assert again.recovery.clean == clean
        again.close()


def test_a_directory_whose_files_are_gone_is_not_clean() -> None:
    system = new_disk()
    closed(system)
    system.remove_tree(DIRECTORY)
    system.make_directory(DIRECTORY)
    again = reopened(system)
    assert not again.recovery.clean
    assert str(again.recovery.repairs[0]).startswith(f"{DIRECTORY}, byte 0, offset 0: ")


def test_data_below_the_recovery_point_is_kept_after_a_crash_and_no_other() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, RECORDS)
    segments = list(bases(log))
    system = killed(system)
    system.disk.corrupt(path(segments[-2]), 30, b"\xff\xff")
    recovery_point = segments[-2] + 1
    again = open_log(system, recovery_point=recovery_point)
    assert [each.path for each in kept(again)] == [path(segments[-2]), path(segments[-1])]
    system = killed(system)
    system.disk.corrupt(path(segments[-3]), 30, b"\xff\xff")
    # Nothing of this was ever synced: Kafka cuts it in silence, and we with a word.
    again = open_log(system, recovery_point=0)
    assert again.log_end_offset == segments[-3]
    assert not kept(again)
    assert "CRC-32C" in again.recovery.repairs[0].cause
    assert again.recovery.repairs[0].bytes > 0


def test_whole_segments_that_kafka_would_believe_are_kept() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, RECORDS)
    segments = list(bases(log))
    # A tail that was never synced is lost, and ends with a batch: nothing is wrong but the gap.
    end = [position for position, _ in log.segments[1].headers()][-3]
    system = killed(system)
    system.open(path(segments[1])).truncate(end)
    behind = [data_of(system, path(each)) for each in segments[2:]]
    again = open_log(system)
    assert again.log_end_offset == segments[2] - 3
    assert [data_of(system, each.kept) for each in kept(again)] == behind


def test_keeping_on_a_full_disk_cuts_nothing() -> None:
    system = new_disk()
    log = closed(system)
    base = list(bases(log))[-1]
    damaged = garble_the_end(data_of(system, path(base)))
    put(system, path(base), damaged)
    system.inject(Fault(operation="write", names="corrupt.*"))
    with pytest.raises(OSError, match="Input/output"):
        reopened(system)
    assert data_of(system, path(base)) == damaged
    assert kept(reopened(system))


# Files of another format.


def newer_magic(magic: int) -> bytes:
    made = bytearray(batch(at=RECORDS, epoch=3))
    made[16] = magic
    struct.pack_into(">I", made, 17, computed_crc(made))
    return bytes(made)


def old_magic(magic: int) -> bytes:
    message = struct.pack(">bb", magic, 0) + (b"\0" * 8 if magic else b"") + b"\xff" * 4 + b"\0" * 4
    message = struct.pack(">I", zlib.crc32(message)) + message
    return struct.pack(">qi", RECORDS, len(message)) + message


@pytest.mark.parametrize(
    ("made", "magic"),
    [(newer_magic(3), 3), (old_magic(0), 0), (old_magic(1), 1)],
    ids=["newer", "v0", "v1"],
)
def test_a_sound_batch_of_another_format_is_refused_and_not_cut(made: bytes, magic: int) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, RECORDS)
    last = log.segments.active
    system = killed(system)
    system.open(last.path(".log")).write(last.size, made)
    before = data_of(system, last.path(".log"))
    with pytest.raises(UnsupportedFormatError) as refused:
        open_log(system)
    assert last.path(".log") in str(refused.value)
    assert f"magic {magic} at byte {last.size}" in str(refused.value)
    assert data_of(system, last.path(".log")) == before


def test_garbage_that_only_looks_like_another_format_is_cut() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, RECORDS)
    last = log.segments.active
    system = killed(system)
    system.open(last.path(".log")).write(last.size, newer_magic(3)[:-1] + b"\xee")
    assert open_log(system).log_end_offset == RECORDS


@pytest.mark.parametrize("content", [b"1\n1\n3 0\n", b"0\nmany\n", b"\xff\xfe", b"0\n1\n3 -4\n"])
def test_an_epoch_checkpoint_that_does_not_parse_is_made_again(content: bytes) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 10, epoch=3)
    fill(log, 10, epoch=5)
    log.close()
    checkpoint = f"{DIRECTORY}/leader-epoch-checkpoint"
    put(system, checkpoint, content)
    again = reopened(system, 20)
    assert [str(each) for each in again.leader_epoch_cache.entries] == ["3@0", "5@10"]
    [repair] = kept(again)
    assert repair.path == checkpoint
    assert data_of(system, repair.kept) == content
    assert data_of(system, checkpoint) == b"0\n2\n3 0\n5 10\n"


# Indexes.


def test_an_index_longer_than_its_log_is_made_again() -> None:
    system = new_disk()
    log = closed(system)
    first = bases(log)[0]
    before = data_of(system, path(first, ".index"))
    put(system, path(first, ".index"), before + struct.pack(">ii", 500, 1 << 20))
    again = reopened(system)
    assert again.recovery.clean, "an index is made from its log, and that is whole"
    assert "leads to byte 1048576" in str(again.recovery.repairs[0])
    assert data_of(system, path(first, ".index")) == before
    for offset in range(RECORDS):
        data = again.read(offset, 1, max_offset_exclusive=RECORDS, min_one=True)
        assert data.records is not None
        assert offsets(data.records.read()) == [offset]


def test_files_that_are_not_named_like_a_segment_are_left_alone() -> None:
    system = new_disk()
    closed(system)
    for name in ("5.log", "x.log", "\u00b2\u00b2.log", "notes.txt", "9" * 21 + ".log"):
        put(system, f"{DIRECTORY}/{name}", b"mine")
    again = reopened(system)
    assert again.recovery.clean
    assert again.log_end_offset == RECORDS
    assert data_of(system, f"{DIRECTORY}/5.log") == b"mine"


# Producers and indexes of logs that have none.


def produce(log: Log, count: int, first_sequence: int = 0) -> None:
    for sequence in range(first_sequence, first_sequence + count):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)


def give_a_producer(system: FaultyFileSystem, base: int) -> None:
    """Give a batch a producer, which only a scan of the log would find."""
    system.disk.corrupt(path(base), 43, struct.pack(">qhi", 77, 0, 0))


@pytest.mark.conformance("LL-4")
def test_without_producers_a_truncation_scans_nothing_and_leaves_a_snapshot() -> None:
    system = new_disk()
    log = open_log(system)
    assert (log.producers.producers, log.producers.map_end_offset) == ({}, 0)
    fill(log, 2)
    give_a_producer(system, 0)
    assert log.truncate_to(1)
    assert log.producers.producers == {}
    assert log.producers.map_end_offset == 1
    assert log.producers.snapshots == [1]


@pytest.mark.conformance("LL-7")
def test_a_clean_log_without_any_snapshot_has_no_producers() -> None:
    """Every clean shutdown since KIP-98 leaves a snapshot: without one there is no scan."""
    system = new_disk()
    log = open_log(system)
    produce(log, RECORDS)
    segments = list(bases(log))
    log.close()
    for offset in log.producers.snapshots:
        system.remove(path(offset, ".snapshot"))
    again = reopened(system)
    assert again.producers.producers == {}
    assert again.producers.snapshots == [*segments[-2:], RECORDS]
    produce(again, 1, first_sequence=RECORDS)


@pytest.mark.conformance("LL-32")
def test_an_empty_active_segment_has_indexes_once_closed_or_recovered() -> None:
    for ends in ("closed", "killed"):
        system = new_disk()
        log = open_log(system)
        fill(log, 30)
        log.flush()
        log.roll()
        index = log.segments.active.path(".index")
        assert not system.exists(index)
        if ends == "closed":
            log.close()
            assert system.exists(index)
        system = killed(system)
        again = open_log(system, recovery_point=30)
        assert (again.log_end_offset, again.recovery_point) == (30, 30)
        assert system.exists(again.segments.active.path(".index"))
        assert again.segments.active.base_offset == 30


def test_many_small_segments_open_without_holding_their_indexes() -> None:
    system = new_disk()
    closed(system, 200)
    again = open_log(system, small_config(), clean=True, recovery_point=200)
    assert all(segment._offset_index is None for segment in list(again.segments)[:-1])


def test_damage_at_the_same_place_twice_is_kept_twice() -> None:
    system = new_disk()
    kept = []
    for _ in range(2):
        log = open_log(system, clean=True)
        fill(log, 3 - log.log_end_offset, epoch=3)
        log.close()
        system.disk.flip_bit(path(0), log.size - 1)
        log = open_log(system, clean=True, recovery_point=3)
        assert log.log_end_offset == 2
        kept += [each.kept for each in log.recovery.repairs if each.kept]
        log.close()
    names = [name for name in system.list_directory(DIRECTORY) if name.startswith("corrupt.")]
    assert [f"{DIRECTORY}/{name}" for name in names] == kept
    assert kept[1] == f"{kept[0]}-1"


def test_an_empty_segment_needs_no_index() -> None:
    system = new_disk()
    system.make_directory(DIRECTORY)
    put(system, path(7), b"")
    log = open_log(system, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.recovery.clean


def test_offsets_that_go_back_are_not_believed_of_a_marker_either() -> None:
    system = new_disk()
    log = open_log(system)
    log.append_as_follower(batch(3, at=0, epoch=3))
    log.close()
    put(system, path(0), data_of(system, path(0)) + bytes(batch(1, at=1, epoch=3)))
    log = open_log(system, clean=True, recovery_point=3)
    assert offsets(contents(log)) == [0, 1, 2]
    assert not log.recovery.clean
    assert any("read again: offset 1 at byte" in each.cause for each in log.recovery.repairs)


def test_an_offset_too_far_under_a_marker_splits_its_segment() -> None:
    system = new_disk()
    log = open_log(system)
    lead(log, epoch=3)
    log.close()
    far = 2**31 + 10
    put(system, path(0), data_of(system, path(0)) + bytes(batch(1, at=far, epoch=3)))
    log = open_log(system, clean=True, recovery_point=far + 1)
    assert list(bases(log)) == [0, far]
    assert offsets(contents(log)) == [0, far]


def test_an_index_that_is_gone_under_a_marker_changes_no_epoch() -> None:
    system = new_disk()
    log = closed(system)
    epochs = log.leader_epoch_cache.entries
    system.remove(path(list(bases(log))[1], ".index"))
    log = reopened(system)
    assert log.recovery.segments_recovered == 1
    assert log.leader_epoch_cache.entries == epochs
    assert offsets(contents(log)) == list(range(RECORDS))


def test_an_index_that_leads_to_later_offsets_is_made_again() -> None:
    system = new_disk()
    log = open_log(system)
    for at in range(5):
        log.append_as_follower(batch(at=at, epoch=3))
    size = log.size
    log.close()
    put(system, path(0, ".index"), struct.pack(">ii", 1, 4 * size // 5))
    log = open_log(system, clean=True, recovery_point=5)
    assert [each.cause for each in log.recovery.repairs] == [
        "read again: offset 4 lies outside 0 to 1"
    ]
    assert offsets(contents(log)) == list(range(5))
