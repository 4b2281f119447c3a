"""The metadata directory of a controller: what a start reads in it, before its log is opened.

    meta.properties                           whose directory it is
    __cluster_metadata-0/quorum-state         what the node remembers of elections
    __cluster_metadata-0/00...0.checkpoint    the records of a new cluster; Apache Kafka before 4.4
                                              formatted bootstrap.checkpoint, in the directory itself

Rule 1: everything is read before anything is written, so a start that is refused changes nothing.

Rule 2: a directory that belongs to nobody is formatted, with the levels that the configuration sets
(`metadata/formatter.py`). So a cluster begins in one way, whether or not somebody formatted it. With
bootstrap servers alone it is refused, as in Apache Kafka: formatting names the first voters.
"""

from collections.abc import Sequence

import attrs

from replication.config import BrokerConfig
from replication.controller.rules.features import first_levels
from replication.errors import ConfigError
from replication.metadata.formatter import NodeFormat, bootstrap_records, format_directories
from replication.metadata.rules.checkpoint import BOOTSTRAP_SNAPSHOT_ID
from replication.metadata.rules.formatting import FeatureLevels
from replication.metadata.rules.records import METADATA_PARTITION
from replication.metadata.snapshots import Snapshot
from replication.net.seams import Seams
from replication.raft.quorum_state import read_quorum_state
from replication.raft.rules.types import NO_DIRECTORY_ID, ElectionState
from replication.wire.api_versions import METADATA_VERSION
from replication.wire.metadata_records import MetadataRecord
from storage.attributes import define
from storage.checkpoint import (
    MetaProperties,
    read_meta_properties,
    uuid_bytes,
    uuid_text,
    write_meta_properties,
)
from storage.errors import InconsistentMetadataError


def default_format(config: BrokerConfig, cluster_id: str) -> NodeFormat:
    """Return the format of a node's directories by its configuration alone."""
    levels = {each.name: each.feature_level for each in first_levels(config)}
    return NodeFormat(
        cluster_id=cluster_id,
        node_id=config.node_id,
        directories=[*config.log_dirs, config.metadata_directory],
        metadata_directory=config.metadata_directory,
        is_controller=config.is_controller,
        levels=FeatureLevels(
            metadata_version=levels.pop(METADATA_VERSION), features=levels, kraft_version=0
        ),
    )


@define(eq=False, kw_only=True)
class ControllerDirectory:
    """The directory of one controller; what it holds is known once it is admitted."""

    config: BrokerConfig
    seams: Seams
    cluster_id: str = attrs.field(default="", init=False)
    directory_id: bytes = attrs.field(default=NO_DIRECTORY_ID, init=False)
    election: ElectionState | None = attrs.field(default=None, init=False)
    """What the node remembers of elections."""
    first_records: Sequence[MetadataRecord] = attrs.field(default=(), init=False)
    """The records of a new cluster; none in a directory whose log has them already."""

    def admit(self, owner: MetaProperties | None, snapshot: Snapshot | None) -> None:
        """Read the directory of `owner`, whose newest snapshot is `snapshot`, and make it this node's.

        Raise ConfigError or InconsistentMetadataError where this controller must not start in it, and
        CheckpointError or MetadataError where a file in it is damaged.
        """
        self._check(owner)
        if self.config.is_broker:
            self._check_former_place()
        file_system, directory = self.seams.file_system, self.config.metadata_directory
        self.election = read_quorum_state(file_system, f"{directory}/{METADATA_PARTITION}")
        if snapshot is None or snapshot.id == BOOTSTRAP_SNAPSHOT_ID:
            self.first_records = bootstrap_records(file_system, directory)
        owner = self._owned(owner)
        assert owner.cluster_id is not None, "a directory that is owned names its cluster"
        self.cluster_id = owner.cluster_id
        if owner.directory_id is not None:
            self.directory_id = uuid_bytes(owner.directory_id)

    def _check(self, owner: MetaProperties | None) -> None:
        config = self.config
        known = None if owner is None else owner.cluster_id
        if known is None and config.names_no_voters:
            raise ConfigError(
                f"{config.metadata_directory} is not formatted: controller.quorum.voters is not set,"
                " so its log is to name the voters; format it with --standalone,"
                " --initial-controllers or --no-initial-controllers"
            )
        if config.cluster_id is None and known is None and len(config.controller_quorum_voters) > 1:
            raise ConfigError("cluster.id is missing: several controllers must know their cluster")
        if known is not None and config.cluster_id not in (None, known):
            raise InconsistentMetadataError(
                f"{config.metadata_directory} belongs to cluster {known}, not to {config.cluster_id}"
            )

    def _check_former_place(self) -> None:
        """Raise where an earlier build has kept the metadata log of a node with both roles."""
        former = f"{self.config.log_dirs[0].rstrip('/')}.controller"
        log = f"{former}/{METADATA_PARTITION}"
        if self.config.metadata_directory != former and self.seams.file_system.exists(log):
            raise InconsistentMetadataError(
                f"{former} has the metadata log of this node, from an earlier build; set"
                f" metadata.log.dir={former}"
            )

    def _owned(self, owner: MetaProperties | None) -> MetaProperties:
        """Return whose directory it is; one that nobody owns becomes this node's."""
        if owner is not None and owner.cluster_id is not None:
            return owner
        file_system, directory = self.seams.file_system, self.config.metadata_directory
        random_bytes = self.seams.chance.randbytes
        cluster_id = self.config.cluster_id or uuid_text(random_bytes(16))
        if owner is not None:
            signed = attrs.evolve(owner, cluster_id=cluster_id)
            write_meta_properties(file_system, directory, signed)
            return signed
        wanted = attrs.evolve(default_format(self.config, cluster_id), directories=[directory])
        wall_ms = self.seams.clock.wall_ms()
        format_directories(file_system, wanted, random_bytes=random_bytes, wall_ms=wall_ms)
        self.first_records = wanted.records
        formatted = read_meta_properties(file_system, directory)
        assert formatted is not None, "formatting a directory names its owner"
        return formatted
