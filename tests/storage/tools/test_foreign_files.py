"""Files that somebody else has put into a directory of ours: links, pipes, and very long ones."""

import os
import re
import shutil
import socket
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import storage
from replication.mirror.options import MirrorOptions
from storage.errors import CheckpointError, IrregularFileError, LogDirectoryError
from storage.filesystem import OsFileSystem
from storage.log.index.transaction_index import TransactionIndex
from storage.types import TopicPartition
from tests.storage.test_kafka_made import KAFKA_MADE

GIB = 1 << 30
SEGMENT = "codecs-0/00000000000000000000"
EACH_FILE = [
    *(f"{SEGMENT}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")),
    "codecs-0/00000000000000000050.snapshot",
    "codecs-0/leader-epoch-checkpoint",
    "codecs-0/partition.metadata",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "meta.properties",
]
SMALL_FILES = EACH_FILE[4:]


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """Kafka's own log directory, as it shut down."""
    copy = tmp_path / "log"
    shutil.copytree(KAFKA_MADE, copy)
    return copy


def link(path: Path) -> None:
    """The same contents, in another directory."""
    outside = path.parent.parent / f"outside-{path.name}"
    if path.exists():
        path.rename(outside)
    else:
        outside.write_bytes(b"of somebody else")
    path.symlink_to(outside)


def dangling_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.parent / "nothing")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    # The name that a socket is bound to may have some hundred characters, and no more.
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{short}/s")
        shutil.move(f"{short}/s", path)


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def sparse(path: Path) -> None:
    """8 GiB that take no room."""
    path.touch()
    os.truncate(path, 8 * GIB)


IRREGULAR = [link, dangling_link, pipe, unix_socket]


def contents(path: Path) -> dict[str, bytes | None]:
    """Return what is in each file below `path`; None for what is no file."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        if each.is_file() and not each.is_symlink()
        else None
        for each in path.rglob("*")
    }


@pytest.mark.parametrize("make", [*IRREGULAR, directory])
def test_only_regular_files_are_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "x"
    make(path)
    before, files, name = contents(tmp_path), OsFileSystem(), str(path)
    for use in (
        lambda: files.open(name),
        lambda: files.open(name, create=True),
        lambda: files.open_for_reading(name),
        lambda: files.lock(name),
    ):
        with pytest.raises((IrregularFileError, IsADirectoryError)):
            use()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("make", IRREGULAR)
@pytest.mark.parametrize("name", EACH_FILE)
def test_a_check_names_what_is_no_file_and_goes_on(
    kafkas: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(kafkas / name)
    damaged = list(storage.check(kafkas))
    assert any(str(kafkas / name) in str(each) and "file" in str(each) for each in damaged)


@pytest.mark.parametrize("make", IRREGULAR)
@pytest.mark.parametrize("name", EACH_FILE)
def test_a_repair_changes_nothing_outside_of_its_directory_and_ends(
    tmp_path: Path, kafkas: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(kafkas / name)
    outside = {each: data for each, data in contents(tmp_path).items() if "outside" in each}
    try:
        storage.repair(kafkas, node_id=1)
    except (storage.StorageError, OSError) as error:
        assert re.search("not a.* file", str(error)), error  # noqa: PT017 - some are not opened
    assert {each: data for each, data in contents(tmp_path).items() if "outside" in each} == outside


def test_a_partition_behind_a_link_is_not_repaired(tmp_path: Path, kafkas: Path) -> None:
    shutil.move(kafkas / "codecs-0", tmp_path / "outside")
    (kafkas / "codecs-0").symlink_to(tmp_path / "outside")
    before = contents(tmp_path / "outside")
    with pytest.raises(LogDirectoryError, match="codecs-0 is a symbolic link"):
        storage.repair(kafkas)
    assert contents(tmp_path / "outside") == before


def test_a_log_directory_may_be_reached_through_a_link(tmp_path: Path, kafkas: Path) -> None:
    """Such as one on another disk."""
    (tmp_path / "elsewhere").symlink_to(kafkas)
    assert len(storage.repair(tmp_path / "elsewhere")) > 1
    assert list(storage.check(tmp_path / "elsewhere")) == []


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_file_longer_than_it_can_be_is_named_and_not_read(kafkas: Path, name: str) -> None:
    sparse(kafkas / name)
    tracemalloc.start()
    try:
        damaged = [str(each) for each in storage.check(kafkas)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert any(f"{name}, byte 0: {8 * GIB} bytes, where" in each for each in damaged)
    assert peak < 20 << 20


@pytest.mark.parametrize("name", [name for name in SMALL_FILES if name != "meta.properties"])
def test_a_repair_ignores_a_small_file_that_is_too_long(kafkas: Path, name: str) -> None:
    sparse(kafkas / name)
    if name.endswith("partition.metadata"):
        with pytest.raises((CheckpointError, storage.StorageError), match="bytes, where"):
            storage.repair(kafkas)
    else:
        assert len(storage.repair(kafkas)) > 1


def test_a_log_of_zeroes_is_cut_and_kept_without_filling_the_disk(kafkas: Path) -> None:
    path = kafkas / f"{SEGMENT}.log"
    end = path.stat().st_size
    os.truncate(path, end + (16 << 20))
    reports = storage.repair(kafkas)
    assert path.stat().st_size == end
    kept = [Path(each.kept) for report in reports for each in report.repairs if each.kept]
    assert sum(each.stat().st_blocks * 512 for each in kept) < 1 << 20


def test_a_transaction_index_of_zeroes_is_read_a_block_at_a_time(tmp_path: Path) -> None:
    sparse(tmp_path / "x.txnindex")
    index = TransactionIndex.open(OsFileSystem(), str(tmp_path / "x.txnindex"))
    tracemalloc.start()
    try:
        next(index.entries())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    index.close()


@pytest.mark.parametrize("topic", ["../outside", "/outside", "a/b"])
def test_no_topic_is_kept_outside_of_its_directory(tmp_path: Path, topic: str) -> None:
    """A mirror hears of topics from another cluster."""
    with storage.open_log_directory(tmp_path / "log", node_id=1) as logs:
        with pytest.raises(LogDirectoryError, match="no name of a directory"):
            logs.get_or_create(TopicPartition(topic, 0))
        assert logs.logs() == []
    assert os.listdir(tmp_path) == ["log"]
    options = MirrorOptions(patterns=(".*",))
    assert options.wants("a", is_internal=False)
    assert not options.wants(topic, is_internal=False)
