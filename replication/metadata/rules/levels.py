"""The levels of features that a cluster can finalize, and what each level of `metadata.version` writes.

    metadata.version     7 (3.3-IV3) ... 33 (4.4-IV2)      which records, in which version, are written
    other features       0 ... the highest of this release

Rule 1: every version of a record is read, whatever the level is. The level limits what is written, so
that a node of the release that the level names could read it.

Rule 2: `metadata.version` goes down only past levels that changed no record, because a record of a
higher level may be in the log; other features go down if they are asked to.

(Kafka: MetadataVersion, Feature, FeatureControlManager.)
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from replication.errors import MetadataError
from replication.raft.rules.voters import SUPPORTED
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KAFKA_4_4,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.broker_registration import Feature
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

_INTERNAL_VERSIONS: Final = {
    "3.3": [3],
    "3.4": [0],
    "3.5": [0, 1, 2],
    "3.6": [0, 1, 2],
    "3.7": [0, 1, 2, 3, 4],
    "3.8": [0],
    "3.9": [0],
    "4.0": [0, 1, 2, 3],
    "4.1": [0, 1],
    "4.2": [0, 1],
    "4.3": [0],
    "4.4": [0, 1, 2],
}
LOWEST_METADATA_VERSION: Final = 7
METADATA_VERSIONS: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            (
                f"{release}-IV{internal}"
                for release, internals in _INTERNAL_VERSIONS.items()
                for internal in internals
            ),
            start=LOWEST_METADATA_VERSION,
        )
    )
)
"""The name of each level of `metadata.version`."""
assert max(METADATA_VERSIONS) == KAFKA_4_4, "the last level is that of this release"

_SCRAM: Final = 11
DIRECTORIES: Final = 17
"""The level from which log directories are in records (KIP-858)."""
_ELIGIBLE_REPLICAS: Final = 23
_CORDONED_DIRECTORIES: Final = 30
_MIGRATION: Final = 8
REGISTERED_CONTROLLERS: Final = 15
"""The level from which controllers register (KIP-919)."""
_WITH_OTHER_RECORDS: Final = frozenset(
    {7, _MIGRATION, _SCRAM, 13, 14, REGISTERED_CONTROLLERS, DIRECTORIES, _ELIGIBLE_REPLICAS}
    | {_CORDONED_DIRECTORIES, 32, KAFKA_4_4}
)
"""The levels whose records differ from those of the level before."""

FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
        GROUP_VERSION: (0, 1),
        METADATA_VERSION: (LOWEST_METADATA_VERSION, KAFKA_4_4),
        TRANSACTION_VERSION: (0, 2),
    }
)
"""The features of this release, and their lowest and highest level; the highest is the default."""

UNUSED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"share.version": (0, 2), "streams.version": (0, 1)}
)
"""The other features of Kafka 4.4. A log of Kafka's has them; they are kept,
and nothing here depends on them.
"""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {**FEATURES, KRAFT_VERSION: (SUPPORTED.min_supported_version, SUPPORTED.max_supported_version)}
)
"""The features that UpdateFeatures changes. The level of `kraft.version` stands in control records,
and so not in the image.
"""

LEAST_METADATA_VERSION: Final[Mapping[tuple[str, int], int]] = MappingProxyType(
    {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): _ELIGIBLE_REPLICAS}
)
"""The level of `metadata.version` that a level of another feature depends on."""


def named_features() -> list[Feature]:
    """Return the features that a node of this release names when it registers: its log may have a level of
    each, also of those that have no effect here.
    """
    known = {**SUPPORTED_FEATURES, **UNUSED_FEATURES}
    return [Feature(name, *levels) for name, levels in sorted(known.items())]


def check_level(record: FeatureLevelRecord) -> None:
    """Raise MetadataError for a level that this release does not support."""
    name, level = record.name, record.feature_level
    if name == KRAFT_VERSION:
        return  # Kafka 4.0 may have written one; control records have the level (KAFKA-18979)
    bounds = FEATURES.get(name) or UNUSED_FEATURES.get(name)
    if bounds is None:
        if level:
            raise MetadataError(f"feature {name}: a newer version wrote this log")
        return
    lowest, highest = bounds
    if not lowest <= level <= highest:
        raise MetadataError(
            f"feature {name} of level {level}, but this release knows"
            f" {lowest} to {highest}: a newer version wrote this log"
        )


def changes_records(current: int, wanted: int) -> bool:
    """Return whether records differ between two levels of `metadata.version`."""
    low, high = sorted((current, wanted))
    return any(low < level <= high for level in _WITH_OTHER_RECORDS)


def version_of(record: MetadataRecord, level: int) -> int:
    """Return the version in which `record` is written at a level of `metadata.version`."""
    match record:
        case PartitionRecord() | PartitionChangeRecord():
            return (level >= DIRECTORIES) + (level >= _ELIGIBLE_REPLICAS)
        case RegisterBrokerRecord():
            return (
                1
                + (level >= _MIGRATION)
                + (level >= DIRECTORIES)
                + (level >= _CORDONED_DIRECTORIES)
            )
        case BrokerRegistrationChangeRecord():
            return _version_of_change(record, level)
        case _:
            return 0


def _version_of_change(record: BrokerRegistrationChangeRecord, level: int) -> int:
    """Return the lowest version that has all fields which change."""
    if record.cordoned_log_dirs is not None and level >= _CORDONED_DIRECTORIES:
        return 3
    if record.log_dirs and level >= DIRECTORIES:
        return 2
    return 1 if record.in_controlled_shutdown else 0
