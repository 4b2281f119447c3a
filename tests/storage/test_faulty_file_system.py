"""The simulated disk loses what was not synced, and nothing that was.

The file is long because each fault of a disk has its tests here.
"""

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from storage.errors import LogDirectoryLockedError
from storage.filesystem import Space
from storage.testing import (
    DetachedError,
    DiskCosts,
    Fate,
    Fault,
    FaultyFile,
    FaultyFileSystem,
    PowerFailure,
)


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


def test_a_lying_disk_answers_a_sync_and_does_nothing(disk: FaultyFileSystem) -> None:
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


def test_a_fault_strikes_as_often_as_it_says(disk: FaultyFileSystem) -> None:
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


@pytest.mark.parametrize(
    ("fate", "left"),
    [
        (Fate.WHOLE, {b"\1" * 1024}),
        (Fate.NOTHING, {b""}),
        (Fate.ZEROES, {bytes(1024)}),
        (Fate.FIRST_PART, {b"", b"\1" * 512, b"\1" * 1024}),
        (Fate.SECTORS, {b"", b"\1" * 512, bytes(512) + b"\1" * 512, b"\1" * 1024}),
    ],
)
def test_a_crash_leaves_what_its_fate_says(
    disk: FaultyFileSystem, fate: Fate, left: set[bytes]
) -> None:
    found = set()
    for attempt in range(40):
        file = disk.open(f"/d/{attempt}", create=True)
        disk.sync_directory("/d")
        file.write(0, b"\1" * 1024)
        disk.crash(fate)
        disk = disk.reopen()
        found.add(get(disk, f"/d/{attempt}"))
    assert found == left


@pytest.mark.parametrize(
    ("fate", "left"),
    [(Fate.NOTHING, ["gone", "old"]), (Fate.WHOLE, ["made", "new"]), (Fate.UNCUT, ["made", "new"])],
)
def test_a_crash_that_leaves_nothing_forgets_names(
    disk: FaultyFileSystem, fate: Fate, left: list[str]
) -> None:
    for name in ("old", "gone"):
        put(disk, f"/d/{name}", b"synced")
    put(disk, "/d/made", b"bytes that are synced go with their name")
    disk.sync_directory("/d")
    disk.remove("/d/made")
    disk.sync_directory("/d")
    put_without_its_name(disk, "/d/made")
    disk.rename("/d/old", "/d/new")
    disk.remove("/d/gone")
    disk.crash(fate)
    assert disk.reopen().list_directory("/d") == left


def put_without_its_name(disk: FaultyFileSystem, path: str) -> None:
    file = disk.open(path, create=True)
    file.write(0, b"x")
    file.sync()


def test_a_cut_that_was_not_synced_may_be_undone_and_what_came_after_it_is_lost(
    disk: FaultyFileSystem,
) -> None:
    file = disk.open("/d/f", create=True)
    file.write(0, b"old")
    file.truncate(1)
    file.write(1, b"new")
    assert disk.disk.power_cut(Fate.UNCUT) == ["f"]
    assert get(disk, "/d/f") == b"old"
    assert disk.disk.power_cut(Fate.UNCUT) == []


def test_a_bit_flips_on_the_platter_where_it_reaches_so_far(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"a")
    disk.open("/d/f").write(1, b"b")
    disk.disk.flip_bit("/d/f", 0)
    disk.disk.flip_bit("/d/f", 1)
    assert get(disk, "/d/f") == b"`c"
    disk.crash(Fate.NOTHING)
    assert get(disk.reopen(), "/d/f") == b"`"


def test_unsynced_writes_survive_in_any_order(disk: FaultyFileSystem) -> None:
    """The second may be there without the first: a disk writes back as it likes."""
    outcomes = set()
    for attempt in range(200):
        name = f"/d/{attempt}"
        put(disk, name, bytes(1024))
        file = disk.open(name)
        file.write(0, b"1")
        file.write(512, b"2")
        disk.crash()
        disk = disk.reopen()
        data = get(disk, name)
        outcomes.add((data[0:1] == b"1", data[512:513] == b"2"))
    assert outcomes == {(False, False), (True, False), (False, True), (True, True)}


def test_pages_that_a_failed_sync_lost_are_gone_after_an_eviction(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"old")
    file = disk.open("/d/f")
    file.write(0, b"new")
    disk.inject(Fault(operation="sync", names="f"))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert get(disk, "/d/f") == b"new"
    disk.disk.file("/d/f").evict()
    assert get(disk, "/d/f") == b"old"


def test_an_eviction_keeps_what_is_still_to_be_written(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"old")
    disk.open("/d/f").write(0, b"new")
    disk.disk.file("/d/f").evict()
    assert get(disk, "/d/f") == b"new"


def test_a_disk_may_lie_about_some_files_only(disk: FaultyFileSystem) -> None:
    disk.disk.lies, disk.disk.lies_about = True, "*.log"
    for name in ("/d/0.log", "/d/marker"):
        put(disk, name, b"synced")
    disk.crash(Fate.NOTHING)
    disk = disk.reopen()
    assert (get(disk, "/d/0.log"), get(disk, "/d/marker")) == (b"", b"synced")


def test_a_sticky_fault_never_goes_away(disk: FaultyFileSystem) -> None:
    file = disk.open("/d/f", create=True)
    disk.inject(Fault(operation="write", names="f", times=None))
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output"):
            file.write(0, b"x")
    assert file.size() == 0


def test_a_full_disk_takes_more_once_something_has_gone(disk: FaultyFileSystem) -> None:
    disk.disk.capacity = 100
    put(disk, "/d/old", bytes(80))
    file = disk.open("/d/f", create=True)
    with pytest.raises(OSError, match="No space"):
        file.write(0, bytes(50))
    file.truncate(0)
    disk.remove("/d/old")
    file.write(0, bytes(100))


def misplaced(disk: FaultyFileSystem, *, moved_by: int) -> FaultyFile:
    """Return a file of ten bytes of which `efgh` was to be the middle, and landed elsewhere."""
    put(disk, "/d/f", b"abcd")
    disk.inject(Fault(operation="write", names="f", misplaced=moved_by))
    file = disk.open("/d/f")
    file.write(4, b"efgh")
    file.write(8, b"ij")
    return file


def test_a_misplaced_write_is_seen_once_the_pages_are_dropped(disk: FaultyFileSystem) -> None:
    file = misplaced(disk, moved_by=3)
    assert get(disk, "/d/f") == b"abcdefghij"
    file.sync()
    assert get(disk, "/d/f") == b"abcdefghij"
    disk.crash()
    assert get(disk.reopen(), "/d/f") == b"abcd\0\0\0eijh"


@pytest.mark.parametrize("moved_by", [1, 3, 4, 100])
@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_misplaced_write_is_put_back(
    disk: FaultyFileSystem, *, moved_by: int, is_synced: bool, crashes: bool
) -> None:
    file = misplaced(disk, moved_by=moved_by)
    if is_synced:
        file.sync()
    if crashes:
        disk.crash(Fate.WHOLE)
    disk = disk.reopen()
    disk.disk.file("/d/f").put_back()
    disk.crash(Fate.WHOLE)
    assert get(disk.reopen(), "/d/f")[:10] == b"abcdefghij"


def test_nothing_is_put_back_over_what_has_come_since(disk: FaultyFileSystem) -> None:
    misplaced(disk, moved_by=3).sync()
    disk.crash()
    disk = disk.reopen()
    file = disk.open("/d/f")
    file.truncate(4)
    file.write(4, b"EFGHIJ")
    disk.disk.file("/d/f").put_back()
    assert get(disk, "/d/f") == b"abcdEFGHIJ"


def test_a_bit_flips_at_rest(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"\0\0")
    disk.disk.flip_bit("/d/f", 1, bit=3)
    disk.crash()
    assert get(disk.reopen(), "/d/f") == b"\0\x08"


def test_a_slow_disk_costs_more(disk: FaultyFileSystem) -> None:
    disk.disk.costs = DiskCosts(sync=20.0)
    file = disk.open("/d/f", create=True)
    disk.take_cost()
    file.sync()
    assert disk.take_cost() == 20.0


def test_a_process_may_die_at_each_of_its_changes(disk: FaultyFileSystem) -> None:
    before = disk.changes
    put(disk, "/d/f", b"whole")
    changes = disk.changes - before
    assert changes == 4, "open, write, sync, and the sync of the directory"
    left = []
    for after in range(changes + 1):
        disk.remove("/d/f")
        disk.die_after(after)
        with contextlib.suppress(DetachedError):
            put(disk, "/d/f", b"whole")
        disk = disk.reopen()
        left.append(get(disk, "/d/f") if disk.exists("/d/f") else None)
    assert left == [None, b"", b"whole", b"whole", b"whole"]


@pytest.mark.parametrize(
    ("after", "left"), [(0, [b"one"]), (1, [b"one", b""]), (2, [b"one", b"two"])]
)
def test_the_power_fails_at_a_change(disk: FaultyFileSystem, after: int, left: list[bytes]) -> None:
    """The changes count from the first that matches, and what is read does not count."""
    put(disk, "/d/1.log", b"one")

    def cut() -> None:
        disk.crash(Fate.WHOLE)

    disk.inject(PowerFailure(operation="open", names="*.log", skip=1, after=after, cut=cut))
    disk.open("/d/other", create=True)
    assert get(disk, "/d/1.log") == b"one"  # skipped
    with pytest.raises(DetachedError):
        put(disk, "/d/2.log", b"two")
    disk = disk.reopen()
    logs = [each for each in disk.list_directory("/d") if each.endswith(".log")]
    assert [get(disk, f"/d/{each}") for each in logs] == left
    put(disk, "/d/3.log", b"the power fails once")


def test_a_path_of_the_wrong_kind_is_refused_as_by_a_kernel(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"x")
    disk.make_directory("/d/sub")
    not_directories: list[Callable[[], object]] = [
        lambda: disk.list_directory("/d/f"),
        lambda: disk.make_directory("/d/f/g"),
        lambda: disk.open("/d/f/g", create=True),
    ]
    for attempt in not_directories:
        with pytest.raises(NotADirectoryError):
            attempt()
    not_there: list[Callable[[], object]] = [
        lambda: disk.list_directory("/nowhere"),
        lambda: disk.open("/d/missing"),
        lambda: disk.rename("/d/missing", "/d/g"),
        lambda: disk.modified_ms("/d/missing"),
        lambda: disk.set_modified_ms("/d/missing", 1),
    ]
    for attempt in not_there:
        with pytest.raises(FileNotFoundError):
            attempt()
    with pytest.raises(IsADirectoryError):
        disk.open("/d/sub")
    with pytest.raises(IsADirectoryError):
        disk.remove("/d/sub")
    assert disk.open("/d/f").descriptor() is None


def test_a_file_may_move_to_another_directory(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", b"x")
    disk.make_directory("/e")
    disk.rename("/d/f", "/e/g")
    assert (disk.list_directory("/d"), get(disk, "/e/g")) == ([], b"x")


def test_a_disk_that_lies_about_directories_forgets_names(disk: FaultyFileSystem) -> None:
    disk.disk.lies = True
    gone = 0
    for attempt in range(30):
        put(disk, f"/d/{attempt}", b"x")
        disk.crash()
        disk = disk.reopen()
        gone += not disk.exists(f"/d/{attempt}")
    assert gone


@pytest.mark.parametrize("operation", ["truncate", "allocate"])
def test_every_change_of_a_files_length_may_fail(disk: FaultyFileSystem, operation: str) -> None:
    put(disk, "/d/f", b"abc")
    file = disk.open("/d/f")
    disk.inject(Fault(operation=operation, error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        getattr(file, operation)(10)
    assert file.size() == 3
    file.allocate(2)
    assert file.size() == 3
    with pytest.raises(OSError, match="reading only"):
        disk.open_for_reading("/d/f").truncate(0)


def test_a_disk_says_how_much_room_is_left_on_it(disk: FaultyFileSystem) -> None:
    put(disk, "/d/f", bytes(80))
    unbounded = disk.space("/d")
    assert unbounded.total_bytes - unbounded.usable_bytes == 80
    disk.disk.capacity = 100
    assert disk.space("/d") == Space(total_bytes=100, usable_bytes=20)
    disk.disk.capacity = 50  # as when somebody else has taken the rest
    assert disk.space("/d").usable_bytes == 0
    with pytest.raises(FileNotFoundError):
        disk.space("/missing")
