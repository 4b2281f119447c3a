"""Checkpoint files: Kafka's text, replaced in one step, refused when they do not parse."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from storage.checkpoint import (
    CleanShutdown,
    EpochEntry,
    LeaderEpochCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    replace_file,
    uuid_bytes,
    uuid_text,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from storage.errors import CheckpointError
from storage.filesystem import OsFile, OsFileSystem
from storage.types import TopicPartition

DISK = OsFileSystem()


def test_an_offset_checkpoint_is_kafkas_text(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(DISK, str(tmp_path / "replication-offset-checkpoint"))
    checkpoint.write({TopicPartition("topic1", 0): 42})
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\ntopic1 0 42\n"
    assert checkpoint.read() == {TopicPartition("topic1", 0): 42}


def test_a_leader_epoch_checkpoint_is_kafkas_text(tmp_path: Path) -> None:
    checkpoint = LeaderEpochCheckpoint(DISK, str(tmp_path / "leader-epoch-checkpoint"))
    checkpoint.write([EpochEntry(0, 0), EpochEntry(5, 100)])
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 100\n"
    assert checkpoint.read() == [(0, 0), (5, 100)]


def test_a_missing_or_empty_file_is_an_empty_map(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert OffsetCheckpoint(DISK, str(path)).read() == {}
    assert LeaderEpochCheckpoint(DISK, str(path)).read() == []
    path.touch()
    assert OffsetCheckpoint(DISK, str(path)).read() == {}
    assert LeaderEpochCheckpoint(DISK, str(path)).read() == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1\n0\n", id="another version"),
        pytest.param("0\n", id="no count"),
        pytest.param("0\nx\n", id="a count that is no number"),
        pytest.param("0\n2\na 0 1\n", id="too few entries"),
        pytest.param("0\n0\na 0 1\n", id="too many entries"),
        pytest.param("0\n1\na 0\n", id="a short line"),
        pytest.param("0\n1\na 0 1 2\n", id="a long line"),
        pytest.param("0\n1\na b 1\n", id="a partition that is no number"),
        pytest.param("0\n1\na 0 1_0\n", id="Python's idea of a number"),
        pytest.param("0\n1\n\n", id="an empty line"),
        pytest.param("garbage", id="garbage"),
    ],
)
def test_malformed_checkpoints_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="checkpoint"):
        OffsetCheckpoint(DISK, str(path)).read()


@pytest.mark.parametrize("text", ["0\n1\n1\n", "0\n1\n1 2 3\n", "0\n1\n-1 0\n", "0\n1\nx 1\n"])
def test_malformed_epochs_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError):
        LeaderEpochCheckpoint(DISK, str(path)).read()


@given(garbage=st.binary(max_size=60))
def test_garbage_is_never_worse_than_refused(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    directory = tmp_path_factory.mktemp("garbage")
    names = ("checkpoint", "partition.metadata", "meta.properties", ".kafka_cleanshutdown")
    for name in names:
        (directory / name).write_bytes(garbage)
    reads: list[Callable[[], object]] = [
        OffsetCheckpoint(DISK, str(directory / "checkpoint")).read,
        LeaderEpochCheckpoint(DISK, str(directory / "checkpoint")).read,
        lambda: read_partition_metadata(DISK, str(directory)),
        lambda: read_meta_properties(DISK, str(directory)),
    ]
    for read in reads:
        with contextlib.suppress(CheckpointError):
            read()
    assert read_clean_shutdown(DISK, str(directory)) is not None


@given(
    offsets=st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 1000)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_survive_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]
) -> None:
    path = tmp_path_factory.mktemp("offsets") / "checkpoint"
    expected = {TopicPartition(*key): offset for key, offset in offsets.items()}
    checkpoint = OffsetCheckpoint(DISK, str(path))
    checkpoint.write(expected)
    assert checkpoint.read() == expected


class ReluctantFileSystem(OsFileSystem):
    """A disk on which the rename never happens."""

    def rename(self, source: str, target: str) -> None:
        raise OSError("the lights went out")


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    replace_file(DISK, str(path), b"old and long")
    with pytest.raises(OSError, match="lights"):
        replace_file(ReluctantFileSystem(), str(path), b"a longer one that is left behind")
    assert path.read_bytes() == b"old and long"

    replace_file(DISK, str(path), b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]
    assert path.read_bytes() == b"new"


class WatchedFile(OsFile):
    def sync(self) -> None:
        steps.append("sync")
        super().sync()


steps: list[str] = []


class WatchedFileSystem(OsFileSystem):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        return WatchedFile(file.path, file.descriptor() or -1)

    def rename(self, source: str, target: str) -> None:
        steps.append("rename")
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        steps.append("sync directory")
        super().sync_directory(path)


def test_a_file_is_synced_before_its_name_and_its_name_after(tmp_path: Path) -> None:
    steps.clear()
    replace_file(WatchedFileSystem(), str(tmp_path / "checkpoint"), b"data")
    assert steps == ["sync", "rename", "sync directory"]


def test_partition_metadata_is_kafkas_text(tmp_path: Path) -> None:
    topic_id = bytes.fromhex("0102030405060708090a0b0c0d0e0fff")
    write_partition_metadata(DISK, str(tmp_path), topic_id)
    text = (tmp_path / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4P_w"
    assert read_partition_metadata(DISK, str(tmp_path)) == topic_id


def test_no_partition_metadata_is_none(tmp_path: Path) -> None:
    assert read_partition_metadata(DISK, str(tmp_path)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\ntopic_id: AQIDBAUGBwgJCgsMDQ4P_w",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: short",
        "version: 0\n",
    ],
)
def test_bad_partition_metadata_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CheckpointError):
        read_partition_metadata(DISK, str(tmp_path))


@given(st.binary(min_size=16, max_size=16))
def test_ids_survive_their_text(uuid: bytes) -> None:
    assert len(uuid_text(uuid)) == 22
    assert uuid_bytes(uuid_text(uuid)) == uuid


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("AAECAwQFBgcICQoLDA0O", id="15 bytes"),
        pytest.param("AAECAwQFBgcICQoLDA0ODxAR", id="18 bytes"),
        pytest.param("AAECAwQFBgcICQoLDA0ODx", id="bits after the last byte"),
        pytest.param("AAECAwQFBgcICQoLDA0OD", id="half a byte"),
    ],
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        uuid_bytes(text)


def test_meta_properties_survive_the_round_trip(tmp_path: Path) -> None:
    properties = MetaProperties(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=3, directory_id="0xnD_DsN-7Bmyv0Mw_4CpA"
    )
    write_meta_properties(DISK, str(tmp_path), properties)
    assert read_meta_properties(DISK, str(tmp_path)) == properties


@pytest.mark.parametrize(
    ("directory_id", "said"),
    [("x", "directory.id: 'x' is not"), ("AAAAAAAAAAAAAAAAAAAAAg", "is reserved")],
)
def test_a_directory_id_that_no_directory_can_have_is_refused(
    tmp_path: Path, directory_id: str, said: str
) -> None:
    owner = MetaProperties(cluster_id="c", node_id=3, directory_id=directory_id)
    write_meta_properties(DISK, str(tmp_path), owner)
    with pytest.raises(CheckpointError, match=said):
        read_meta_properties(DISK, str(tmp_path))


def test_a_cluster_id_is_escaped_as_java_does(tmp_path: Path) -> None:
    owner = MetaProperties(cluster_id=r"a=b\c:d", node_id=3)
    write_meta_properties(DISK, str(tmp_path), owner)
    assert r"cluster.id=a\=b" in (tmp_path / "meta.properties").read_text()
    assert read_meta_properties(DISK, str(tmp_path)) == owner


def test_meta_properties_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    assert read_meta_properties(DISK, str(tmp_path)) is None
    path.write_text("#\n#Sat Nov 21 05:00:00 UTC 2026\nnode.id=1\nversion=1\ncluster.id=a\\=b\n")
    assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(cluster_id="a=b", node_id=1)
    path.write_text("version=0\nbroker.id=2\n")
    assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(cluster_id=None, node_id=2)
    for broken in ("version=2\nnode.id=1\n", "version=1\n", "version=1\nnode.id=x\n"):
        path.write_text(broken)
        with pytest.raises(CheckpointError):
            read_meta_properties(DISK, str(tmp_path))


def test_the_clean_shutdown_marker_is_kafkas_json(tmp_path: Path) -> None:
    assert read_clean_shutdown(DISK, str(tmp_path)) is None
    write_clean_shutdown(DISK, str(tmp_path), 17)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert marker.read_text() == '{"version":0,"brokerEpoch":17}'
    assert read_clean_shutdown(DISK, str(tmp_path)) == CleanShutdown(17)
    remove_clean_shutdown(DISK, str(tmp_path))
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"version":1,"brokerEpoch":1}', "x"])
def test_an_illegible_marker_still_says_clean(tmp_path: Path, text: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert read_clean_shutdown(DISK, str(tmp_path)) == CleanShutdown(None)
