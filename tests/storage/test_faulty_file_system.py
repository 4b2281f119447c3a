"""The simulated disk loses what was not synced, and nothing that was."""

import errno
import random

import pytest

from storage.errors import LogDirectoryLockedError
from storage.testing import DetachedError, Fault, FaultyFileSystem


@pytest.fixture
def disk() -> FaultyFileSystem:
    system = FaultyFileSystem(random.Random(7))
    system.make_directory("/d")
    system.sync_directory("/")
    return system


def put(system: FaultyFileSystem, path: str, data: bytes) -> None:
    file = system.open(path, create=True)
    file.write(0, data)
    file.sync()
    system.sync_directory("/d")


def get(system: FaultyFileSystem, path: str) -> bytes:
    file = system.open_for_reading(path)
    return file.read(0, file.size())


def test_a_kill_keeps_the_page_cache_and_stops_the_process(disk: FaultyFileSystem) -> None:
    file = disk.open("/d/f", create=True)
    file.write(0, b"unsynced")
    disk.detach()
    with pytest.raises(DetachedError):
        file.write(0, b"from the grave")
    with pytest.raises(DetachedError):
        disk.exists("/d/f")
    file.close()
    assert get(disk.reopen(), "/d/f") == b"unsynced"


def test_a_power_cut_keeps_what_was_synced(disk: FaultyFileSystem) -> None:
    for _ in range(50):
        put(disk, "/d/f", b"kept" * 1000)
        disk.open("/d/f").write(4000, b"maybe" * 1000)
        disk.crash()
        disk = disk.reopen()
        assert get(disk, "/d/f")[:4000] == b"kept" * 1000
        file = disk.open("/d/f")
        file.truncate(4000)
        file.sync()


def test_a_name_that_was_never_synced_may_vanish_with_its_bytes(disk: FaultyFileSystem) -> None:
    outcomes = set()
    for attempt in range(50):
        name = f"/d/{attempt}"
        file = disk.open(name, create=True)
        file.write(0, b"x")
        file.sync()
        disk.crash()
        disk = disk.reopen()
        outcomes.add(disk.exists(name))
    assert outcomes == {True, False}


def test_unsynced_writes_survive_whole_torn_or_not_at_all(disk: FaultyFileSystem) -> None:
    outcomes = set()
    for _ in range(100):
        put(disk, "/d/f", bytes(4096))
        disk.open("/d/f").write(0, b"\1" * 4096)
        disk.crash()
        disk = disk.reopen()
        count = get(disk, "/d/f").count(1)
        outcomes.add("none" if count == 0 else "all" if count == 4096 else "torn")
    assert outcomes == {"none", "all", "torn"}


def test_a_write_after_a_lost_truncation_is_lost_with_it(disk: FaultyFileSystem) -> None:
    outcomes = set()
    for _ in range(100):
        put(disk, "/d/f", b"a" * 10)
        file = disk.open("/d/f")
        file.truncate(5)
        file.write(5, b"b" * 5)
        disk.crash()
        disk = disk.reopen()
        outcomes.add(get(disk, "/d/f"))
    assert b"a" * 10 in outcomes
    assert b"aaaaabbbbb" in outcomes
    assert all(
        data == b"a" * 10 or data.strip(b"\0") in (b"aaaaa", b"aaaaabbbbb") for data in outcomes
    )


def test_a_failed_sync_loses_the_pages_and_the_next_one_succeeds(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"old")
    file = disk.open("/d/f")
    file.write(0, b"new")
    disk.inject(Fault(operation="sync", names="f"))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    disk.crash()
    assert get(disk.reopen(), "/d/f") == b"old"


def test_a_lying_disk_says_synced_and_is_not(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"old")
    disk.disk.lies = True
    file = disk.open("/d/f")
    for _ in range(200):  # chance may keep an unsynced write; not every one of them
        file.write(0, b"new")
        file.sync()
        disk.crash()
        disk = disk.reopen()
        file = disk.open("/d/f")
        if file.read(0, 3) == b"old":
            return
        file.write(0, b"old")
    raise AssertionError("every write survived a disk that lies")


def test_a_full_disk_takes_half_and_says_so(disk: FaultyFileSystem) -> None:
    disk.disk.capacity = 100
    file = disk.open("/d/f", create=True)
    with pytest.raises(OSError, match="No space") as failure:
        file.write(0, bytes(120))
    assert failure.value.errno == errno.ENOSPC
    assert file.size() == 60


def test_a_fault_strikes_as_often_as_told(disk: FaultyFileSystem) -> None:
    disk.inject(Fault(operation="write", names="*.log", skip=1, times=2))
    file = disk.open("/d/0.log", create=True)
    other = disk.open("/d/0.index", create=True)
    outcomes = []
    for _ in range(4):
        other.write(0, b"x")
        try:
            file.write(0, b"x")
            outcomes.append(True)
        except OSError:
            outcomes.append(False)
    assert outcomes == [True, False, False, True]


def test_a_lock_is_held_by_one_process_and_freed_by_its_death(disk: FaultyFileSystem) -> None:
    disk.lock("/d/.lock")
    second = disk.reopen()
    with pytest.raises(LogDirectoryLockedError, match="another process is using /d"):
        second.lock("/d/.lock")
    disk.detach()
    second.lock("/d/.lock").release()
    second.lock("/d/.lock")


def test_a_disk_charges_for_what_it_does(disk: FaultyFileSystem) -> None:
    disk.take_cost()
    put(disk, "/d/f", bytes(1000))
    assert disk.take_cost() > 0.001
    assert disk.take_cost() == 0.0


def test_a_renamed_directory_keeps_its_files(disk: FaultyFileSystem) -> None:
    disk.make_directory("/d/sub/deep")
    disk.open("/d/sub/deep/f", create=True).write(0, b"x")
    disk.rename("/d/sub", "/d/other")
    assert disk.list_directory("/d") == ["other"]
    assert get(disk, "/d/other/deep/f") == b"x"
    disk.remove_tree("/d/other")
    disk.remove_tree("/d/other")
    assert disk.list_directory("/d") == []
