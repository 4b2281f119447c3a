"""The content of a formatted directory, decided before anything is written (kafka-storage.sh format).

    --release-version 4.0, --feature group.version=0     FeatureLevels
    --initial-controllers 1@a:9093:ID,2@b:9093:ID        VoterSet
    both, and the credentials of --add-scram             the records of a new cluster

Rule 1: a level that was not asked for is the default of the release. `metadata.version` is the first
record, and a level of 0 has none.

Rule 2: `kraft.version` is no record. It is 1 where the voters are not in the configuration, and then
it stands in the control records of the checkpoint, with the voters (KIP-853).

(Kafka: Formatter, DynamicVoters, BootstrapMetadata.)
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from replication.errors import FormatError
from replication.metadata.rules.levels import (
    FEATURES,
    LEAST_METADATA_VERSION,
    METADATA_VERSIONS,
)
from replication.raft.rules.types import Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import RECONFIGURABLE, SUPPORTED, VoterNode, VoterSet
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.metadata_records import FeatureLevelRecord, MetadataRecord
from storage.attributes import frozen
from storage.checkpoint import uuid_bytes

_DEFAULT_SINCE: Final = MappingProxyType(
    {GROUP_VERSION: 22, TRANSACTION_VERSION: 24, ELIGIBLE_LEADER_REPLICAS_VERSION: 26}
)
"""The level of `metadata.version` from which on the highest level of a feature is its default."""
_MAX_PORT: Final = 65_535
_VOTER: Final = re.compile(r"(\d+)@(?:\[([^]]+)\]|([^:\[\]]+)):(\d+):([\w-]+)")


@frozen(kw_only=True)
class FeatureLevels:
    """The levels that a new cluster begins with."""

    metadata_version: int
    features: Mapping[str, int]
    """The levels of the other features that have records."""
    kraft_version: int

    @property
    def release(self) -> str:
        return METADATA_VERSIONS[self.metadata_version]

    def records(self) -> list[MetadataRecord]:
        """Return the records of these levels."""
        levels = {METADATA_VERSION: self.metadata_version, **dict(sorted(self.features.items()))}
        return [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in levels.items()
            if level > 0
        ]


def feature_levels(
    asked: Mapping[str, int], *, release: str | None = None, is_dynamic: bool
) -> FeatureLevels:
    """Return the levels for what was asked for; raise FormatError for what this release lacks.

    `is_dynamic` says that the voters are not those of `controller.quorum.voters`.
    """
    supported = {*FEATURES, KRAFT_VERSION}
    for name in asked.keys() - supported:
        names = ", ".join(sorted(supported - {METADATA_VERSION}))
        raise FormatError(f"Unsupported feature: {name}. Supported features are: {names}")
    metadata_version = _metadata_version(asked.get(METADATA_VERSION), release)
    features = {
        name: asked.get(name, highest if metadata_version >= _DEFAULT_SINCE[name] else 0)
        for name, (_, highest) in FEATURES.items()
        if name != METADATA_VERSION
    }
    for name, level in features.items():
        _check_level(name, level, FEATURES[name], metadata_version)
    return FeatureLevels(
        metadata_version=metadata_version,
        features=features,
        kraft_version=_kraft_version(asked.get(KRAFT_VERSION), is_dynamic=is_dynamic),
    )


def _metadata_version(asked: int | None, release: str | None) -> int:
    lowest, highest = FEATURES[METADATA_VERSION]
    if asked is not None and release is not None:
        raise FormatError(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    if release is not None:
        return _level_of(release)
    level = highest if asked is None else asked
    if not lowest <= level <= highest:
        raise FormatError(f"No {METADATA_VERSION} with metadata version level {level}")
    return level


def _level_of(release: str) -> int:
    """Return the level of a release: 4.0-IV1, or 4.0 for the last of 4.0."""
    known = {
        level: name
        for level, name in METADATA_VERSIONS.items()
        if FEATURES[METADATA_VERSION][0] <= level <= FEATURES[METADATA_VERSION][1]
    }
    found = [
        level
        for level, name in known.items()
        if release == name or _short(release) == name.partition("-")[0]
    ]
    if not found:
        raise FormatError(
            f"Unknown {METADATA_VERSION} '{release}'. Supported {METADATA_VERSION} are:"
            f" {', '.join(known.values())}"
        )
    return max(found)


def _short(release: str) -> str:
    """Return 4.0 of 4.0 and of 4.0.1."""
    return ".".join(release.split(".")[:2]) if "-" not in release else release


def _check_level(name: str, level: int, bounds: tuple[int, int], metadata_version: int) -> None:
    if not bounds[0] <= level <= bounds[1]:
        raise FormatError(f"No feature:{name} with feature level {level}")
    needed = LEAST_METADATA_VERSION.get((name, level), 0)
    if metadata_version < needed:
        raise FormatError(
            f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level"
            f" {needed}"
        )


def _kraft_version(asked: int | None, *, is_dynamic: bool) -> int:
    if asked is None:
        return RECONFIGURABLE if is_dynamic else 0
    if not 0 <= asked <= RECONFIGURABLE:
        raise FormatError(f"No feature:{KRAFT_VERSION} with feature level {asked}")
    if is_dynamic and not asked:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to 0 if controller.quorum.voters is empty and one of the"
            " flags --standalone, --initial-controllers, or --no-initial-controllers is used. For"
            " dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if asked and not is_dynamic:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to {asked} unless controller.quorum.voters is empty and one"
            " of the flags --standalone, --initial-controllers, or --no-initial-controllers is"
            " used. For dynamic controllers support, try using one of --standalone,"
            " --initial-controllers, or --no-initial-controllers and removing"
            " controller.quorum.voters."
        )
    return asked


def initial_voters(text: str, *, listener: str) -> VoterSet:
    """Return the voters of `id@host:port:directory`, separated by commas; FormatError for others."""
    nodes = [_voter(each.strip(), listener) for each in text.split(",") if each.strip()]
    if not nodes:
        raise FormatError("No voters given.")
    if len({node.key.id for node in nodes}) < len(nodes):
        raise FormatError("--initial-controllers names a node id twice")
    return VoterSet(tuple(nodes))


def _voter(text: str, listener: str) -> VoterNode:
    found = _VOTER.fullmatch(text)
    wrong = FormatError(
        f"--initial-controllers: expected id@host:port:directory instead of {text!r}"
    )
    if found is None or int(found[4]) > _MAX_PORT:
        raise wrong
    try:
        directory_id = uuid_bytes(found[5])
    except ValueError:
        raise wrong from None
    return voter(int(found[1]), directory_id, listener, found[2] or found[3], int(found[4]))


def voter(node_id: int, directory_id: bytes, listener: str, host: str, port: int) -> VoterNode:
    """Return a voter of this release."""
    return VoterNode(
        key=ReplicaKey(node_id, directory_id),
        endpoints=Endpoints((ListenerAddress(listener, host, port),)),
        kraft_versions=SUPPORTED,
    )


def asked_levels(texts: Iterable[str]) -> dict[str, int]:
    """Return the levels of `feature=level` arguments; FormatError for what is in no such form."""
    asked = {}
    for text in texts:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals:
            raise FormatError(f"Can't parse feature=level string {text}: equals sign not found.")
        if not re.fullmatch(r"-?\d{1,5}", level):
            raise FormatError(
                f"Can't parse feature=level string {text}: unable to parse {level} as a short."
            )
        asked[name] = int(level)
    return asked
