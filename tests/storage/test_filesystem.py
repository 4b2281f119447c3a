"""Directories that a power cut leaves where they are."""

import random
from pathlib import Path

import pytest

from storage.filesystem import OsFileSystem, make_lasting_directory
from storage.testing import FaultyFileSystem


@pytest.mark.parametrize("path", ["/data", "/data/broker-1/log", "data/log"])
def test_a_lasting_directory_outlives_the_power_with_all_its_parents(path: str) -> None:
    for seed in range(20):
        file_system = FaultyFileSystem(random.Random(seed))
        make_lasting_directory(file_system, path)
        file_system.crash()
        assert file_system.reopen().is_directory(path)


def test_one_that_was_made_but_not_synced_is_made_to_last_the_next_time() -> None:
    for seed in range(20):
        file_system = FaultyFileSystem(random.Random(seed))
        file_system.make_directory("/data")
        file_system.sync_directory("/")
        file_system.make_directory("/data/log")
        make_lasting_directory(file_system, "/data/log")
        file_system.crash()
        assert file_system.reopen().is_directory("/data/log")


def test_a_real_one_is_made_once_and_found_again(
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
