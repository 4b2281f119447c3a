"""Formatting the directories of a node, as kafka-storage.sh does before its first start.

    each directory              meta.properties      cluster, node, and the directory's own id
    a controller's metadata     __cluster_metadata-0/00000000000000000000-0000000000.checkpoint
                                the records of a new cluster, and the first voters (KIP-853)

Rule 1: all directories are looked at before one is written. What does not fit is one error, and
nothing has changed.

Rule 2: `meta.properties` is written last. A directory without it is not formatted, whatever is in it,
so a formatting that was interrupted is done again.

(Kafka: Formatter, MetaPropertiesEnsemble.)
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from replication.errors import FormatError, MetadataError
from replication.metadata.rules.checkpoint import (
    BOOTSTRAP_SNAPSHOT_ID,
    CheckpointReader,
    SnapshotVoters,
    checkpoint_batches,
    checkpoint_name,
)
from replication.metadata.rules.formatting import FeatureLevels
from replication.metadata.rules.records import METADATA_PARTITION, encode_all
from replication.metadata.snapshots import Snapshots, batches_in
from replication.raft.rules.voters import VoterSet
from replication.wire.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    UserScramCredentialRecord,
    decode_record,
)
from storage.attributes import frozen
from storage.checkpoint import (
    META_PROPERTIES,
    MetaProperties,
    is_reserved_directory,
    read_meta_properties,
    uuid_text,
    write_meta_properties,
)
from storage.filesystem import FileSystem, make_lasting_directory
from storage.manager.log_directory import FORMER_METADATA_TOPIC, former_metadata
from storage.types import TopicPartition

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"


@frozen(kw_only=True)
class NodeFormat:
    """The content that the directories of a node get."""

    cluster_id: str
    node_id: int
    directories: Sequence[str]
    metadata_directory: str
    is_controller: bool
    levels: FeatureLevels
    credentials: Sequence[MetadataRecord] = ()
    voters: VoterSet | None = None
    """The first voters, None where they are in the configuration or not known yet."""

    @property
    def records(self) -> list[MetadataRecord]:
        """The records of a new cluster."""
        return [*self.levels.records(), *self.credentials]


def new_directory_id(random_bytes: Callable[[int], bytes], taken: Iterable[str] = ()) -> str:
    """Return an id that no other directory has, that is not reserved, and looks like no option."""
    while True:
        text = uuid_text(random_bytes(16))
        if not text.startswith("-") and not is_reserved_directory(text) and text not in taken:
            return text


def format_directories(
    file_system: FileSystem,
    wanted: NodeFormat,
    *,
    random_bytes: Callable[[int], bytes],
    wall_ms: int,
    ignore_formatted: bool = False,
) -> list[str]:
    """Format the directories that are not formatted yet, and return sentences about it.

    Raise FormatError where a directory belongs to another node, or is formatted already and that is
    not to be ignored; StorageError where its files cannot be read.
    """
    found = {each: _found(file_system, each) for each in sorted(set(wanted.directories))}
    check_owners(found, cluster_id=wanted.cluster_id, node_id=wanted.node_id)
    formatted = [each for each, properties in found.items() if properties is not None]
    if formatted and not ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore"
            " this directory and format the others."
        )
    if len(formatted) == len(found):
        return ["All of the log directories are already formatted."]
    lines = [f"Bootstrap metadata: {', '.join(map(_in_words, wanted.records))}"]
    taken = {known.directory_id for known in found.values() if known and known.directory_id}
    for directory in (each for each, properties in found.items() if properties is None):
        directory_id = _own_id(wanted, directory) or new_directory_id(random_bytes, taken)
        taken.add(directory_id)
        lines.append(
            f"Formatting {_kind(wanted, directory)} {directory} with metadata.version"
            f" {wanted.levels.release}."
        )
        _format(file_system, wanted, directory, directory_id, wall_ms=wall_ms)
    return lines


def _found(file_system: FileSystem, directory: str) -> MetaProperties | None:
    if file_system.exists(directory) and not file_system.is_directory(directory):
        raise FormatError(f"{directory} is not a directory")
    former = f"{directory}/{TopicPartition(FORMER_METADATA_TOPIC, 0)}"
    if file_system.exists(former):
        raise former_metadata(former)
    return read_meta_properties(file_system, directory)


def check_owners(found: dict[str, MetaProperties | None], *, cluster_id: str, node_id: int) -> None:
    """Raise FormatError unless all formatted directories are this node's, each with its own id."""
    by_id: dict[str, str] = {}
    for directory, properties in found.items():
        if properties is None:
            continue
        path = f"{directory}/{META_PROPERTIES}"
        if properties.cluster_id not in (None, cluster_id):
            raise FormatError(
                f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read"
                f" {properties.cluster_id}"
            )
        if properties.node_id != node_id:
            raise FormatError(
                f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in"
                f" {path}. If you moved your data, make sure your configured node id matches. If you"
                " intend to create a new node, you should remove all data in your data directories."
            )
        if (own := properties.directory_id) is not None:
            other = by_id.setdefault(own, directory)
            if other != directory:
                raise FormatError(
                    f"Duplicate directory ID {own} found. It was the ID of {other}, but also of"
                    f" {directory}"
                )


def _is_metadata(wanted: NodeFormat, directory: str) -> bool:
    return directory == wanted.metadata_directory


def _own_id(wanted: NodeFormat, directory: str) -> str | None:
    """Return the id that the voters name for a metadata directory."""
    if not _is_metadata(wanted, directory) or wanted.voters is None:
        return None
    node = wanted.voters.node(wanted.node_id)
    return None if node is None else uuid_text(node.key.directory_id)


def _kind(wanted: NodeFormat, directory: str) -> str:
    if not _is_metadata(wanted, directory):
        return "data directory"
    if wanted.voters is None:
        return "metadata directory"
    is_voter = wanted.voters.node(wanted.node_id) is not None
    return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"


def _format(
    file_system: FileSystem, wanted: NodeFormat, directory: str, directory_id: str, *, wall_ms: int
) -> None:
    make_lasting_directory(file_system, directory)
    if wanted.is_controller and _is_metadata(wanted, directory):
        log = f"{directory}/{METADATA_PARTITION}"
        make_lasting_directory(file_system, log)
        _write_bootstrap(Snapshots(file_system, log), wanted, wall_ms)
    write_meta_properties(
        file_system,
        directory,
        MetaProperties(
            cluster_id=wanted.cluster_id, node_id=wanted.node_id, directory_id=directory_id
        ),
    )


def _write_bootstrap(snapshots: Snapshots, wanted: NodeFormat, wall_ms: int) -> None:
    voters = SnapshotVoters(
        kraft_version=wanted.levels.kraft_version,
        voters=None if wanted.voters is None else wanted.voters.to_record(),
    )
    batches = checkpoint_batches(
        encode_all(wanted.records, level=wanted.levels.metadata_version),
        leader_epoch=BOOTSTRAP_SNAPSHOT_ID.leader_epoch,
        wall_ms=wall_ms,
        last_timestamp_ms=wall_ms,
        voters=voters,
    )
    snapshots.write_batches(BOOTSTRAP_SNAPSHOT_ID, batches)


def bootstrap_records(file_system: FileSystem, directory: str) -> list[MetadataRecord]:
    """Return the records that formatting has left for a log that is empty; MetadataError for a file
    that cannot be read.

    Apache Kafka before 4.4 writes them to `bootstrap.checkpoint` in the directory itself.
    """
    for path in (
        f"{directory}/{METADATA_PARTITION}/{checkpoint_name(BOOTSTRAP_SNAPSHOT_ID)}",
        f"{directory}/{BOOTSTRAP_CHECKPOINT}",
    ):
        if not file_system.exists(path):
            continue
        file = file_system.open_for_reading(path)
        try:
            found = [decode_record(value) for value in CheckpointReader(batches_in(file)).values()]
        except MetadataError as error:
            raise MetadataError(f"{path} cannot be read: {error}") from error
        finally:
            file.close()
        if found:
            return found
    return []


def _in_words(record: MetadataRecord) -> str:
    """Return a record in a few words, without secrets."""
    if isinstance(record, FeatureLevelRecord):
        return f"{record.name}={record.feature_level}"
    assert isinstance(record, UserScramCredentialRecord), "formatting writes no other record"
    return f"a SCRAM credential of {record.name}"
