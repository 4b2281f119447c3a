"""Opening a log: after a clean shutdown, after a crash, and after somebody broke its files."""

import struct

import pytest

from storage.errors import InconsistentTopicIdError
from storage.testing import FaultyFileSystem
from tests.storage.logs import (
    WALL_MS,
    bases,
    batch,
    contents,
    fill,
    headers,
    joined,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
)

DIRECTORY = "/d/t-0"


def killed(system: FaultyFileSystem) -> FaultyFileSystem:
    system.detach()
    return system.reopen()


def put(system: FaultyFileSystem, name: str, data: bytes) -> None:
    system.open(f"{DIRECTORY}/{name}", create=True).write(0, data)


def grow(system: FaultyFileSystem, name: str, data: bytes) -> None:
    file = system.open(f"{DIRECTORY}/{name}", create=True)
    file.write(file.size(), data)


def names(system: FaultyFileSystem, suffix: str) -> list[str]:
    return [name for name in system.list_directory(DIRECTORY) if name.endswith(suffix)]


@pytest.mark.conformance("UL-102")
def test_a_directory_without_segments_opens_at_0() -> None:
    system = new_disk()
    system.make_directory(DIRECTORY)
    assert open_log(system).log_end_offset == 0


@pytest.mark.conformance("UL-21")
def test_an_emptied_directory_begins_at_its_log_start() -> None:
    log = open_log(new_disk(), log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert list(bases(log)) == [500]


@pytest.mark.conformance("UL-38")
def test_an_empty_segment_file_opens_and_takes_appends() -> None:
    system = new_disk()
    system.make_directory(DIRECTORY)
    put(system, "00000000000000000000.log", b"")
    log = open_log(system)
    assert lead(log) == 0


@pytest.mark.conformance("LL-27")
@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_log_opens_as_it_was(clean: bool) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 50)
    log.close()
    again = open_log(system, clean=clean)
    assert offsets(contents(again)) == list(range(50))
    assert again.recovery.segments_recovered == (0 if clean else len(again.segments))
    assert lead(again) == 50


@pytest.mark.conformance("LL-11")
@pytest.mark.parametrize("recovery_point", [100, 10])
def test_a_segment_that_is_read_again_is_indexed_as_before(recovery_point: int) -> None:
    system = new_disk()
    config = small_config(segment_bytes=1 << 20, segment_index_bytes=1 << 12)
    log = open_log(system, config)
    for number in range(100):
        lead(log, timestamp=WALL_MS + number)
    log.close()
    again = open_log(system, config, recovery_point=recovery_point)
    first = again.segments.active
    entries = list(first.offset_index.entries()), list(first.time_index.entries())
    system = killed(system)
    again = open_log(system, config, recovery_point=recovery_point)
    assert (again.log_end_offset, again.recovery_point) == (100, recovery_point)
    active = again.segments.active
    assert (list(active.offset_index.entries()), list(active.time_index.entries())) == entries
    again.flush()
    assert again.recovery_point == 100


@pytest.mark.conformance("LL-3")
def test_only_segments_from_the_recovery_point_on_are_read_again() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    segments = list(bases(log))
    assert len(segments) >= 4
    system = killed(system)
    again = open_log(system, recovery_point=segments[-3] + 1)
    assert again.recovery.segments_recovered == 3
    assert offsets(contents(again)) == list(range(60))


@pytest.mark.conformance("LL-12")
@pytest.mark.parametrize("clean", [True, False])
def test_missing_indexes_are_made_again(clean: bool) -> None:
    system = new_disk()
    log = open_log(system)
    for number in range(60):
        lead(log, timestamp=WALL_MS + 10 * number)
    log.close()
    for name in [*names(system, ".index"), *names(system, ".timeindex")]:
        system.remove(f"{DIRECTORY}/{name}")
    again = open_log(system, clean=clean, recovery_point=60)
    assert offsets(contents(again)) == list(range(60))
    for number in range(60):
        found = again.offset_for_timestamp(WALL_MS + 10 * number)
        assert found is not None
        assert found.offset == number


@pytest.mark.conformance("LL-14")
@pytest.mark.conformance("SG-14")
def test_indexes_of_garbage_are_made_again() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    system = killed(system)
    for name in [*names(system, ".index"), *names(system, ".timeindex")]:
        put(system, name, b"garbage!" * 50)
    again = open_log(system)
    for offset in range(60):
        data = again.read(offset, 1, max_offset_exclusive=60, min_one=True)
        assert data.records is not None
        assert offsets(data.records.read()) == [offset]


def test_times_of_records_that_are_not_there_are_forgotten() -> None:
    """A disk that lied about a log, and not about its time index, under a clean shutdown."""
    system = new_disk()
    config = small_config(index_interval_bytes=4096)
    log = open_log(system, config)
    for number in range(7):
        lead(log, timestamp=WALL_MS + number)
    log.close()
    (name,) = names(system, ".log")
    system.open(f"{DIRECTORY}/{name}").truncate(0)
    again = open_log(system, config, clean=True, recovery_point=7)
    assert (again.log_end_offset, again.recovery.clean) == (0, False)
    lead(again, timestamp=WALL_MS + 1000)
    again.close()
    assert open_log(system, config, clean=True, recovery_point=1).log_end_offset == 1


@pytest.mark.conformance("LL-15")
def test_index_files_without_their_log_are_removed() -> None:
    system = new_disk()
    system.make_directory(DIRECTORY)
    for suffix in (".index", ".timeindex", ".txnindex"):
        put(system, f"00000000000000000000{suffix}", b"12345678")
        put(system, f"00000000000000000005{suffix}", b"12345678")
    log = open_log(system)
    assert list(bases(log)) == [0]
    assert not any("5." in name for name in system.list_directory(DIRECTORY))
    fill(log, 3)
    index = log.segments.active.offset_index
    assert (index.length, index.entry_count) == (1200, 1)


@pytest.mark.conformance("LL-17")
def test_segments_deleted_but_not_yet_unlinked_do_not_come_back() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    log.update_high_watermark(60)
    log.increment_log_start_offset(30)
    log.delete_segments_below_log_start()
    first = log.segments[0].base_offset
    assert names(system, ".deleted")
    again = open_log(killed(system))
    assert again.log_start_offset == first
    assert not names(again.local.file_system, ".deleted")  # type: ignore[arg-type]


@pytest.mark.conformance("LL-18")
@pytest.mark.conformance("SG-18")
@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 500, b"garbage" * 40, b"\xff" * 100, bytes(batch(at=60))[:-1], b"x"],
    ids=["zeroes", "text", "ones", "half a batch", "a byte"],
)
def test_garbage_behind_the_last_batch_is_cut(garbage: bytes) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    before = contents(log)
    system = killed(system)
    grow(system, names(system, ".log")[-1], garbage)
    again = open_log(system)
    assert again.recovery.bytes_truncated == len(garbage)
    assert contents(again) == before
    assert lead(again) == 60


def test_a_flipped_bit_above_the_recovery_point_cuts_the_log_there() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    system = killed(system)
    system.disk.corrupt(f"{DIRECTORY}/{names(system, '.log')[2]}", 150, b"\x55")
    again = open_log(system)
    assert list(bases(again)) == list(bases(log))[:3]
    assert offsets(contents(again)) == list(range(again.log_end_offset))
    assert again.log_end_offset == bases(log)[2] + 1


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (batch(at=0, epoch=5), "its offset goes back"),
        (batch(at=1, epoch=3), "its epoch goes back"),
        (joined(batch(at=2**31 + 5, epoch=5), batch(at=2, epoch=5)), "its offset is out of range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sound_batch_that_does_not_follow_is_not_believed(second: memoryview, why: str) -> None:
    system = new_disk()
    log = open_log(system)
    log.append_as_follower(batch(at=0, epoch=5))
    system = killed(system)
    grow(system, names(system, ".log")[0], bytes(second))
    assert open_log(system).log_end_offset == 1


def test_a_segment_that_does_not_join_goes_with_all_behind_it() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    segments = list(bases(log))
    log.segments[1].cut(0)
    again = open_log(killed(system))
    assert list(bases(again)) == segments[:2]
    assert again.log_end_offset == segments[1]


@pytest.mark.conformance("LL-30")
def test_a_log_that_ends_below_its_start_begins_again_there() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 5)
    system = killed(system)
    system.disk.corrupt(f"{DIRECTORY}/{names(system, '.log')[0]}", 30, b"\xff")
    again = open_log(system, log_start_offset=4)
    assert (again.log_start_offset, again.log_end_offset) == (4, 4)
    assert list(bases(again)) == [4]
    assert names(system, ".log") == ["00000000000000000004.log"]
    assert lead(again) == 4


@pytest.mark.conformance("LL-16")
def test_a_reopened_log_can_be_truncated() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    log.close()
    again = open_log(system, clean=True)
    again.truncate_to(3)
    assert (len(again.segments), again.log_end_offset) == (1, 3)


@pytest.mark.conformance("LL-28")
def test_the_epochs_are_derived_from_the_batches() -> None:
    system = new_disk()
    log = open_log(system)
    log.append_as_follower(
        joined(
            batch(at=0, epoch=1), batch(at=1, epoch=2), batch(at=2, epoch=2), batch(at=3, epoch=3)
        )
    )
    system = killed(system)
    put(system, "leader-epoch-checkpoint", b"0\n1\n1 0\n               ")
    system.open(f"{DIRECTORY}/leader-epoch-checkpoint").truncate(8)
    again = open_log(system)
    assert [str(entry) for entry in again.leader_epoch_cache.entries] == ["1@0", "2@1", "3@3"]


@pytest.mark.parametrize("seed", range(20))
def test_epochs_that_the_disk_did_not_keep_the_records_of_are_dropped(seed: int) -> None:
    system = new_disk(seed)
    log = open_log(system)
    fill(log, 10, epoch=3)
    log.flush()
    log.truncate_to(5)
    fill(log, 5, epoch=7)
    # The epoch is on the disk at once; its records, and the cut before them, are not.
    system.crash()
    again = open_log(system.reopen(), recovery_point=5)
    for header in headers(again):
        assert again.leader_epoch_cache.epoch_for_offset(header.base_offset) == header.leader_epoch


@pytest.mark.conformance("LL-10")
@pytest.mark.conformance("UL-30")
def test_the_newest_stray_snapshot_is_kept() -> None:
    system = new_disk()
    log = open_log(system)
    for sequence in range(4):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.producers.take_snapshot()
        if sequence in (0, 1):
            log.roll()
    assert log.producers.snapshots == [1, 2, 3, 4]
    system = killed(system)
    assert open_log(system).producers.snapshots == [1, 2, 4]
    system = killed(system)
    put(system, "00000000000000000009.snapshot", b"later than the log")
    assert 9 not in open_log(system).producers.snapshots


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(clean: bool) -> None:
    system = new_disk()
    log = open_log(system)
    for sequence in range(40):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
    if clean:
        log.close()
    else:
        system = killed(system)
    again = open_log(system, clean=clean)
    retry = batch(producer_id=4, producer_epoch=0, base_sequence=39)
    info = again.append_as_leader(retry, leader_epoch=0, wall_ms=WALL_MS)
    assert info.duplicate
    assert info.first_offset == 39


def test_a_compaction_that_a_crash_interrupted_is_finished_or_forgotten() -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 60)
    segments = list(bases(log))
    log.close()
    # Segment 0 was rewritten and is complete; segment 1 was still being written.
    old = system.open(f"{DIRECTORY}/{segments[0]:020d}.log")
    put(system, f"{segments[0]:020d}.log.swap", old.read(0, old.size()))
    put(system, f"{segments[0]:020d}.index.swap", b"")
    put(system, f"{segments[1]:020d}.log.cleaned", b"half")
    again = open_log(system, clean=True)
    assert offsets(contents(again)) == list(range(60))
    assert not names(system, ".swap")
    assert not names(system, ".cleaned")


@pytest.mark.conformance("UL-48e")
def test_a_directory_of_another_topic_is_refused() -> None:
    system = new_disk()
    log = open_log(system, topic_id=b"\1" * 16)
    lead(log)
    log.close()
    with pytest.raises(InconsistentTopicIdError):
        open_log(system, topic_id=b"\2" * 16)


@pytest.mark.conformance("LL-33")
def test_the_first_segment_decides_where_the_checkpoint_is_lower() -> None:
    system = new_disk()
    log = open_log(system, log_start_offset=5)
    fill(log, 3)
    assert open_log(killed(system), log_start_offset=0).log_start_offset == 5


def test_a_log_that_apache_kafka_wrote_opens() -> None:
    """Byte for byte what Kafka leaves after a clean shutdown: trimmed indexes, a snapshot."""
    system = new_disk()
    system.make_directory(DIRECTORY)
    first = bytes.fromhex(
        "0000000000000000 00000047 ffffffff 02 ece0668d 0000 00000001 00000000000003e8"
        "00000000000003e9 ffffffffffffffff ffff ffffffff 00000002"
        "14000000046b3104763100 1400020201000202680278"
    )
    second = (2).to_bytes(8, "big") + first[8:12] + (4).to_bytes(4, "big") + first[16:]
    put(system, "00000000000000000000.log", first + second)
    put(system, "00000000000000000000.index", b"")
    put(system, "00000000000000000000.timeindex", struct.pack(">qi", 1001, 1))
    put(system, "00000000000000000004.snapshot", bytes.fromhex("0001 48674bc7 00000000"))
    put(system, "leader-epoch-checkpoint", b"0\n1\n4 2\n")
    put(system, "partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    log = open_log(system, clean=True, recovery_point=4)
    assert log.recovery.clean
    assert (log.log_start_offset, log.log_end_offset) == (0, 4)
    assert log.topic_id == bytes(range(16))
    assert contents(log) == first + second
    assert log.offset_for_timestamp(1001) == (1001, 1, None)
    assert log.latest_epoch == 4
    assert lead(log, epoch=5) == 4


def test_a_batch_larger_than_the_recovery_window_is_read_whole() -> None:
    system = new_disk()
    config = small_config(segment_bytes=1 << 23, max_message_bytes=1 << 23)
    log = open_log(system, config)
    for size in (10, 3 << 20, 10, 1 << 20):
        lead(log, size=size)
    again = open_log(killed(system), config)
    assert again.log_end_offset == 4
    assert again.recovery.bytes_truncated == 0
