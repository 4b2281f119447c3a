"""Which levels of features the controller takes (FeatureControlManager, KIP-584, KIP-778, KIP-1022).

    transaction.version                 2: each transaction bumps the producer epoch (KIP-890)
    group.version                       1: groups of the consumer protocol (KIP-848)
    eligible.leader.replicas.version    1: eligible leader replicas (KIP-966)
    metadata.version                    33: the records of Kafka 4.4 are written (`metadata/rules/levels.py`)

`metadata.version` goes up to that of this release, and down past levels that changed no record.

A new log begins with the levels that the controller's configuration sets; UpdateFeatures changes
them afterwards. A request is carried out as a whole or not at all.
"""

from collections.abc import Iterable, Iterator, Mapping

from replication.config import BrokerConfig
from replication.controller.rules.configs import one_minimum
from replication.controller.rules.decisions import Decision
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.levels import FEATURES, LEAST_METADATA_VERSION, changes_records
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KAFKA_4_4,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.metadata_records import FeatureLevelRecord, MetadataRecord
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_PREFIX = "The update failed for all features since the following feature had an error: "


def first_levels(config: BrokerConfig) -> Iterator[FeatureLevelRecord]:
    """Yield the feature levels of a new log, `metadata.version` first; one of 0 has no record."""
    configured = {
        METADATA_VERSION: KAFKA_4_4,
        ELIGIBLE_LEADER_REPLICAS_VERSION: config.understudy_eligible_leader_replicas_version,
        GROUP_VERSION: FEATURES[GROUP_VERSION][1],
        TRANSACTION_VERSION: config.understudy_transaction_version,
    }
    for name, level in configured.items():
        if level:
            yield FeatureLevelRecord(name=name, feature_level=level)


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, *, config: BrokerConfig
) -> Decision[UpdateFeaturesResponse]:
    asked = {each.feature: each for each in request.feature_updates}  # the last of a name counts
    try:
        records = list(_records(image, asked.values(), config))
    except KafkaError as error:
        return Decision(
            UpdateFeaturesResponse(error_code=error.code, error_message=_PREFIX + error.detail)
        )
    answer = UpdateFeaturesResponse()
    if not request.validate_only and records:
        after = image.apply_all(records, offset=image.offset, leader_epoch=image.leader_epoch)
        return Decision(answer, (*records, *one_minimum(after, config)))
    return Decision(answer)


def _records(
    image: MetadataImage, asked: Iterable[FeatureUpdate], config: BrokerConfig
) -> Iterator[MetadataRecord]:
    levels = {name: image.feature(name) for name in FEATURES}
    for each in asked:
        if (fault := _fault_of(image, each, config.node_id)) is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {each.max_version_level} for feature {each.feature}. "
                + fault,
            )
        if each.feature == METADATA_VERSION:
            _check_records(levels[METADATA_VERSION], each)
        levels[each.feature] = each.max_version_level
        _check_dependency(each, levels)
        if image.feature(each.feature) != each.max_version_level:
            yield FeatureLevelRecord(name=each.feature, feature_level=each.max_version_level)


def _check_records(current: int, asked: FeatureUpdate) -> None:
    """Raise KafkaError for a lower `metadata.version` that has other records."""
    level = asked.max_version_level
    if level >= current or not changes_records(current, level):
        return
    why = (
        "Unsafe metadata downgrade is not supported in this version."
        if asked.upgrade_type == UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata"
        " information."
    )
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {level}. {why}",
    )


def _check_dependency(asked: FeatureUpdate, levels: Mapping[str, int]) -> None:
    """Raise KafkaError for a level that needs a higher `metadata.version` (KIP-1022)."""
    needed = LEAST_METADATA_VERSION.get((asked.feature, asked.max_version_level), 0)
    if levels[METADATA_VERSION] < needed:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{asked.feature} could not be set to {asked.max_version_level} because it depends on"
            f" {METADATA_VERSION} level {needed}",
        )


def _fault_of(image: MetadataImage, asked: FeatureUpdate, node_id: int) -> str | None:
    """Return what is wrong with an update, in Kafka's order of checks; None if nothing is."""
    name, level = asked.feature, asked.max_version_level
    kind = asked.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if name not in FEATURES:
        return f"Local controller {node_id} does not support this feature."
    lowest, highest = FEATURES[name]
    if not lowest <= level <= highest:
        return f"Local controller {node_id} only supports versions {lowest}-{highest}"
    current = image.feature(name)
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None
