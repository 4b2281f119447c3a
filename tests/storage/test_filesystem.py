"""Directories that a power cut leaves where they are."""

import os
import random
import shutil
from pathlib import Path

import pytest

from storage.errors import LogDirectoryLockedError
from storage.filesystem import OsFileSystem, make_lasting_directory
from storage.testing import FaultyFileSystem


@pytest.mark.parametrize("path", ["/data", "/data/broker-1/log", "data/log"])
def test_a_lasting_directory_outlives_the_power_with_all_its_parents(path: str) -> None:
    for seed in range(20):
        file_system = FaultyFileSystem(random.Random(seed))
        make_lasting_directory(file_system, path)
        file_system.crash()
        assert file_system.reopen().is_directory(path)


def test_a_directory_that_was_made_but_not_synced_is_synced_the_next_time() -> None:
    for seed in range(20):
        file_system = FaultyFileSystem(random.Random(seed))
        file_system.make_directory("/data")
        file_system.sync_directory("/")
        file_system.make_directory("/data/log")
        make_lasting_directory(file_system, "/data/log")
        file_system.crash()
        assert file_system.reopen().is_directory("/data/log")


def test_a_real_lasting_directory_may_exist_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_system = OsFileSystem()
    make_lasting_directory(file_system, f"{tmp_path}/a/b")
    make_lasting_directory(file_system, f"{tmp_path}/a/b")
    monkeypatch.chdir(tmp_path)
    make_lasting_directory(file_system, "c")
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "c").is_dir()


def test_a_parent_that_may_not_be_read_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = FaultyFileSystem(random.Random(1))
    file_system.make_directory("/mounted/log")

    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(file_system, "sync_directory", refuse)
    make_lasting_directory(file_system, "/mounted/log")


def test_a_write_that_the_kernel_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal does, or a disk that is nearly full."""
    kernel = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: kernel(fd, bytes(data)[:3], at))
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write(2, b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"\0\0" + b"0123456789"
    file.close()


def test_reading_past_the_end_fills_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = OsFileSystem().open_for_reading(str(tmp_path / "f"))
    buffer = memoryview(bytearray(5))
    assert file.read_into(1, buffer) == 2
    assert bytes(buffer) == b"bc\0\0\0"
    file.close()
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.size()


@pytest.mark.parametrize("kernel_allocates", [True, False])
def test_allocated_room_is_length_and_never_takes_any_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_allocates: bool
) -> None:
    if not kernel_allocates:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write(0, b"abc")
    file.allocate(4096)
    assert file.size() == 4096
    file.allocate(10)
    assert file.size() == 4096
    assert file.read(0, 4) == b"abc\0"
    file.close()


def test_a_directory_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    system, path = OsFileSystem(), str(tmp_path / ".lock")
    held = system.lock(path)
    with pytest.raises(LogDirectoryLockedError, match=str(tmp_path)):
        system.lock(path)
    held.release()
    held.release()
    system.lock(path).release()


def test_removing_a_missing_file_is_harmless(tmp_path: Path) -> None:
    system, directory = OsFileSystem(), tmp_path / "a"
    system.make_directory(str(directory / "b"))
    (directory / "b" / "f").touch()
    for _ in range(2):
        system.remove(str(directory / "b" / "f"))
        system.remove_tree(str(directory))
    assert not directory.exists()


def test_a_real_volume_has_more_room_than_is_left_on_it(tmp_path: Path) -> None:
    space = OsFileSystem().space(str(tmp_path))
    assert 0 <= space.usable_bytes <= space.total_bytes
    assert space.total_bytes == shutil.disk_usage(tmp_path).total
    with pytest.raises(FileNotFoundError):
        OsFileSystem().space(str(tmp_path / "missing"))


def test_a_real_disk_charges_its_costs_itself(tmp_path: Path) -> None:
    system = OsFileSystem()
    system.sync_directory(str(tmp_path))
    assert system.take_cost() == 0.0


def test_the_modification_time_of_a_real_file_can_be_set(tmp_path: Path) -> None:
    system, path = OsFileSystem(), tmp_path / "f"
    path.touch()
    system.set_modified_ms(str(path), 1_600_000_000_123)
    assert system.modified_ms(str(path)) == 1_600_000_000_123
    assert path.stat().st_mtime_ns == 1_600_000_000_123_000_000
