"""Formatting directories: what is written, and what is refused before anything is."""

import random
from collections.abc import Iterable, Mapping

import attrs
import pytest

from replication.errors import FormatError
from replication.metadata.formatter import (
    NodeFormat,
    bootstrap_records,
    format_directories,
    new_directory_id,
)
from replication.metadata.rules.checkpoint import BOOTSTRAP_SNAPSHOT_ID, CheckpointReader
from replication.metadata.rules.formatting import (
    FeatureLevels,
    asked_levels,
    feature_levels,
    initial_voters,
    voter,
)
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import METADATA_PARTITION
from replication.metadata.snapshots import Snapshots, batches_in
from replication.raft.rules.voters import VoterSet, voters_of_record
from replication.wire.metadata_records import (
    FeatureLevelRecord,
    UserScramCredentialRecord,
    decode_record,
)
from storage.checkpoint import (
    MetaProperties,
    is_reserved_directory,
    read_meta_properties,
    uuid_bytes,
    uuid_text,
    write_meta_properties,
)
from storage.errors import CheckpointError, LogDirectoryError
from storage.manager.log_directory import FORMER_METADATA_TOPIC
from storage.testing import DetachedError, FaultyFileSystem

LEVELS = {
    "metadata.version": 33,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
}
ALICE = UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", iterations=4096)
ID = uuid_text(bytes(range(16)))


def levels(*asked: str, release: str | None = None, is_dynamic: bool = False) -> FeatureLevels:
    return feature_levels(asked_levels(asked), release=release, is_dynamic=is_dynamic)


def wanted(
    *directories: str,
    node_id: int = 1,
    cluster_id: str = "c",
    is_controller: bool = True,
    voters: VoterSet | None = None,
) -> NodeFormat:
    return NodeFormat(
        cluster_id=cluster_id,
        node_id=node_id,
        directories=directories,
        metadata_directory=directories[0],
        is_controller=is_controller,
        levels=levels(is_dynamic=voters is not None),
        credentials=[ALICE],
        voters=voters,
    )


def formatted(
    disk: FaultyFileSystem, node: NodeFormat, *, ignore_formatted: bool = False
) -> list[str]:
    return format_directories(
        disk,
        node,
        random_bytes=random.Random(1).randbytes,
        wall_ms=7,
        ignore_formatted=ignore_formatted,
    )


def new_disk() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(0))


def bootstrap_of(disk: FaultyFileSystem, directory: str) -> tuple[list[object], CheckpointReader]:
    path = f"{directory}/{METADATA_PARTITION}/00000000000000000000-0000000000.checkpoint"
    file = disk.open_for_reading(path)
    reader = CheckpointReader(batches_in(file))
    return [decode_record(value) for value in reader.values()], reader


def levels_in(records: Iterable[object]) -> Mapping[str, int]:
    return {
        each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)
    }


def test_a_controller_gets_the_first_records_and_each_directory_an_id() -> None:
    disk = new_disk()
    lines = formatted(disk, wanted("/a", "/b"))
    found = [read_meta_properties(disk, each) for each in ("/a", "/b")]
    assert [(each.cluster_id, each.node_id) for each in found if each] == [("c", 1), ("c", 1)]
    assert len({each.directory_id for each in found if each} - {None}) == 2
    records, reader = bootstrap_of(disk, "/a")
    assert levels_in(records) == LEVELS
    assert records[-1] == ALICE
    assert (reader.voters.kraft_version, reader.last_timestamp_ms) == (0, 7)
    assert not disk.exists(f"/b/{METADATA_PARTITION}")
    shown = ", ".join(f"{name}={level}" for name, level in LEVELS.items())
    assert lines == [
        f"Bootstrap metadata: {shown}, a SCRAM credential of alice",
        "Formatting metadata directory /a with metadata.version 4.4-IV2.",
        "Formatting data directory /b with metadata.version 4.4-IV2.",
    ]


def test_the_first_snapshot_of_a_log_is_the_bootstrap() -> None:
    disk = new_disk()
    formatted(disk, wanted("/a"))
    snapshot = Snapshots(disk, f"/a/{METADATA_PARTITION}").newest()
    assert snapshot is not None
    assert (snapshot.id, snapshot.end_offset) == (BOOTSTRAP_SNAPSHOT_ID, 0)
    assert snapshot.image == MetadataImage(leader_epoch=0), (
        "its records count once they are in the log"
    )
    assert levels_in(bootstrap_records(disk, "/a")) == LEVELS


def test_a_broker_gets_no_records() -> None:
    disk = new_disk()
    formatted(disk, wanted("/a", is_controller=False))
    assert sorted(disk.list_directory("/a")) == ["meta.properties"]


def test_dynamic_voters_stand_in_the_checkpoint() -> None:
    disk = new_disk()
    voters = initial_voters(f"1@h:9093:{ID},2@[::1]:9094:{ID}", listener="CONTROLLER")
    lines = formatted(disk, wanted("/a", voters=voters))
    _, reader = bootstrap_of(disk, "/a")
    assert reader.voters.kraft_version == 1
    assert reader.voters.voters is not None
    assert voters_of_record(reader.voters.voters) == voters
    properties = read_meta_properties(disk, "/a")
    assert properties is not None
    assert properties.directory_id == ID, "the id that the voters know it by"
    assert "dynamic metadata voter directory /a" in lines[1]
    other = wanted("/o", node_id=3, voters=voters)
    assert "dynamic metadata directory /o" in formatted(disk, other)[1]


def test_voters_that_are_not_known_yet_leave_the_level_alone() -> None:
    disk = new_disk()
    node = attrs.evolve(wanted("/a"), levels=levels(is_dynamic=True))
    assert "Formatting metadata directory /a" in formatted(disk, node)[1]
    _, reader = bootstrap_of(disk, "/a")
    assert (reader.voters.kraft_version, reader.voters.voters) == (1, None)


def test_what_is_formatted_is_left_alone() -> None:
    disk = new_disk()
    formatted(disk, wanted("/a"))
    before = read_meta_properties(disk, "/a")
    with pytest.raises(FormatError, match="Log directory /a is already formatted"):
        formatted(disk, wanted("/a", "/b"))
    assert not disk.exists("/b")
    assert formatted(disk, wanted("/a", "/b"), ignore_formatted=True)[1:] == [
        "Formatting data directory /b with metadata.version 4.4-IV2."
    ]
    assert read_meta_properties(disk, "/a") == before
    assert formatted(disk, wanted("/a", "/b"), ignore_formatted=True) == [
        "All of the log directories are already formatted."
    ]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (MetaProperties(cluster_id="d", node_id=1), "Expected c, but read d"),
        (MetaProperties(cluster_id="c", node_id=2), "node id 2 doesn't match previous node id 1"),
        (
            MetaProperties(cluster_id="c", node_id=1, directory_id=ID),
            f"Duplicate directory ID {ID} found. It was the ID of /a",
        ),
    ],
)
def test_the_directory_of_another_is_refused(owner: MetaProperties, said: str) -> None:
    disk = new_disk()
    for name in ("/a", "/b"):
        disk.make_directory(name)
    write_meta_properties(disk, "/a", MetaProperties(cluster_id="c", node_id=1, directory_id=ID))
    write_meta_properties(disk, "/b", owner)
    with pytest.raises(FormatError, match=said):
        formatted(disk, wanted("/a", "/b", "/new"), ignore_formatted=True)
    assert not disk.exists("/new")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version=7\nnode.id=1\n", "version 7 is not one we know"),
        ("version=1\ncluster.id=c\n", "no node.id"),
        ("version=1\nnode.id=1\ndirectory.id=??\n", "directory.id: '\\?\\?' is not"),
    ],
)
def test_properties_that_cannot_be_read_are_refused(text: str, said: str) -> None:
    disk = new_disk()
    disk.make_directory("/a")
    file = disk.open("/a/meta.properties", create=True)
    file.write(0, text.encode())
    with pytest.raises(CheckpointError, match=said):
        read_meta_properties(disk, "/a")
    with pytest.raises(CheckpointError, match=f"/a/meta.properties: .*{said}"):
        formatted(disk, wanted("/a", "/b"), ignore_formatted=True)
    assert not disk.exists("/b")


def test_metadata_in_the_former_format_is_refused() -> None:
    disk = new_disk()
    disk.make_directory("/a")
    disk.make_directory(f"/a/{FORMER_METADATA_TOPIC}-0")
    with pytest.raises(LogDirectoryError, match="the metadata log of an older release"):
        formatted(disk, wanted("/a"))
    assert read_meta_properties(disk, "/a") is None


def test_a_file_is_no_directory() -> None:
    disk = new_disk()
    disk.open("/a", create=True)
    with pytest.raises(FormatError, match="/a is not a directory"):
        formatted(disk, wanted("/a"))


def test_a_formatting_that_is_interrupted_is_done_again() -> None:
    changes, finished = 0, False
    while not finished:
        disk = new_disk()
        disk.die_after(changes)
        try:
            formatted(disk, wanted("/a", "/b"))
            finished = True
        except (DetachedError, OSError):
            pass
        disk.crash()
        again = disk.reopen()
        formatted(again, wanted("/a", "/b"), ignore_formatted=True)
        assert levels_in(bootstrap_of(again, "/a")[0]) == LEVELS
        assert all(read_meta_properties(again, each) for each in ("/a", "/b"))
        changes += 1
    assert changes > 8


# What is asked for.


@pytest.mark.parametrize(
    ("release", "group", "transactions", "eligible"),
    [("3.9", 0, 0, 0), ("4.0-IV0", 1, 0, 0), ("4.0", 1, 2, 0), ("4.1", 1, 2, 1), (None, 1, 2, 1)],
)
def test_a_release_has_its_defaults(
    release: str | None, group: int, transactions: int, eligible: int
) -> None:
    found = levels(release=release).features
    assert found == {
        "group.version": group,
        "transaction.version": transactions,
        "eligible.leader.replicas.version": eligible,
    }


@pytest.mark.parametrize(
    ("release", "name"), [("4.0", "4.0-IV3"), ("4.0.1", "4.0-IV3"), ("3.7-IV1", "3.7-IV1")]
)
def test_a_release_is_named_by_its_number_or_its_level(release: str, name: str) -> None:
    assert levels(release=release).release == name


@pytest.mark.parametrize("release", ["1.0", "4", "4.4-IV9", "", "latest", "4.4-IV2 "])
def test_a_release_that_is_not_known_is_refused(release: str) -> None:
    with pytest.raises(FormatError, match=r"Unknown metadata.version '.*'. Supported .*4.4-IV2$"):
        levels(release=release)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("group.version", "equals sign not found"),
        ("group.version=high", "unable to parse high as a short"),
        ("share.version=1", "Unsupported feature: share.version. Supported features are: eligible"),
        ("group.version=7", "No feature:group.version with feature level 7"),
        ("metadata.version=99", "No metadata.version with metadata version level 99"),
        ("kraft.version=1", "Cannot set kraft.version to 1 unless"),
        ("kraft.version=5", "No feature:kraft.version with feature level 5"),
    ],
)
def test_a_level_that_is_not_there_is_refused(asked: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        levels(asked)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(FormatError, match="Use --release-version instead of --feature"):
        levels("metadata.version=33", release="4.4")
    with pytest.raises(FormatError, match="because it depends on"):
        levels("eligible.leader.replicas.version=1", release="3.9")
    with pytest.raises(FormatError, match="Cannot set kraft"):
        levels("kraft.version=0", is_dynamic=True)
    assert levels("kraft.version=1", is_dynamic=True).kraft_version == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1@h",
        "1@h:9093",
        "1@h:99999:" + ID,
        "-1@h:9093:" + ID,
        "1@h:9093:short",
        f"1@h:9093:{ID},1@h:9094:{ID}",
    ],
)
def test_voters_in_another_form_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        initial_voters(text, listener="CONTROLLER")


def test_a_directory_id_is_free_not_reserved_and_no_option() -> None:
    drawn = [b"\xf8" + bytes(15), bytes(16), bytes(range(16)), bytes(range(1, 17))]
    made = new_directory_id(lambda _: drawn.pop(0), {ID})
    assert uuid_bytes(made) == bytes(range(1, 17))
    assert not is_reserved_directory(made)


def test_a_voter_of_this_release_supports_dynamic_voters() -> None:
    node = voter(1, bytes(range(16)), "CONTROLLER", "h", 1)
    assert node.supports(1)
