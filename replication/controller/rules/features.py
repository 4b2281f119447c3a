"""Which levels of features the controller takes (FeatureControlManager, KIP-584, KIP-778, KIP-1022).

    kraft.version                       1: the voters stand in the log and can be changed (KIP-853)

    transaction.version                 2: each transaction bumps the producer epoch (KIP-890)
    group.version                       1: groups of the consumer protocol (KIP-848)
    eligible.leader.replicas.version    1: eligible leader replicas (KIP-966)
    metadata.version                    33: the records of Kafka 4.4 are written (`metadata/rules/levels.py`)

`metadata.version` goes up to that of this release, and down past levels that changed no record.

A new log begins with the levels that the controller's configuration sets; UpdateFeatures changes
them afterwards. A request is carried out as a whole or not at all.

Rule 1: a level is finalized only if every registered broker and controller supports it, and each
voter has registered. A node that does not support what is finalized is not registered.

Rule 2: `kraft.version` only goes up, and its level is written by the leader of the quorum, which
knows what each voter supports (`raft/rules/membership.py`). Here it only gets a NoOpRecord, so that
an answer waits for an offset after it, as Kafka's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from replication.config import BrokerConfig
from replication.controller.rules.configs import before_isr_changes, one_minimum
from replication.controller.rules.decisions import Decision
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.levels import (
    FEATURES,
    LEAST_METADATA_VERSION,
    REGISTERED_CONTROLLERS,
    SUPPORTED_FEATURES,
    changes_records,
)
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KAFKA_4_4,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.broker_registration import Feature
from replication.wire.metadata_records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from storage.attributes import frozen

_PREFIX = "The update failed for all features since the following feature had an error: "
_DISABLED: Final = (0, 0)


@frozen(kw_only=True)
class QuorumLevel:
    """The level of `kraft.version`, and the ids of the voters, which the image does not have."""

    kraft_version: int = 0
    voter_ids: frozenset[int] = frozenset()


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
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    *,
    config: BrokerConfig,
    quorum: QuorumLevel,
) -> Decision[UpdateFeaturesResponse]:
    try:
        records = list(_records(image, _updates(request).values(), config, quorum))
    except KafkaError as error:
        return Decision(refused(error.code, error.detail))
    answer = UpdateFeaturesResponse()
    if not request.validate_only and records:
        after = image.apply_all(records, offset=image.offset, leader_epoch=image.leader_epoch)
        records += one_minimum(after, config)
        after = image.apply_all(records, offset=image.offset, leader_epoch=image.leader_epoch)
        return Decision(answer, (*records, *before_isr_changes(image, after, config)))
    return Decision(answer)


def refused(code: ErrorCode, detail: str) -> UpdateFeaturesResponse:
    """Return the answer to a request of which one feature is refused."""
    return UpdateFeaturesResponse(error_code=code, error_message=_PREFIX + detail)


def level_of_quorum(request: UpdateFeaturesRequest) -> int | None:
    """Return the level of `kraft.version` that a request asks for, None for none."""
    update = _updates(request).get(KRAFT_VERSION)
    return None if update is None else update.max_version_level


def unsupported(image: MetadataImage, kind: str, features: Sequence[Feature]) -> str:
    """Return why a node that names these features cannot register; an empty string where it can.

    `kind` is "broker" or "controller". A feature that is not finalized has level 0.
    """
    named = {each.name: each for each in features}
    for name in sorted(named.keys() | image.feature_levels.keys()):
        level = (
            image.metadata_version
            if name == METADATA_VERSION
            else image.feature_levels.get(name, 0)
        )
        known = named.get(name, Feature(name, *_DISABLED))
        lowest, highest = known.min_supported_version, known.max_supported_version
        if not lowest <= level <= highest:
            return (
                f"Unable to register because the {kind} does not support finalized version"
                f" {level} of {name}. The {kind} wants a version between {lowest} and {highest},"
                " inclusive."
            )
    return ""


def _updates(request: UpdateFeaturesRequest) -> dict[str, FeatureUpdate]:
    return {each.feature: each for each in request.feature_updates}  # the last of a name counts


def _records(
    image: MetadataImage,
    asked: Iterable[FeatureUpdate],
    config: BrokerConfig,
    quorum: QuorumLevel,
) -> Iterator[MetadataRecord]:
    levels = {name: image.feature(name) for name in FEATURES}
    levels[KRAFT_VERSION] = quorum.kraft_version
    for each in asked:
        name, level = each.feature, each.max_version_level
        current = levels.get(name, 0)
        if (fault := _fault_of(image, each, current, config.node_id, quorum)) is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {level} for feature {name}. {fault}",
            )
        if name == METADATA_VERSION:
            _check_records(current, each)
        levels[name] = level
        _check_dependency(each, levels)
        if name == KRAFT_VERSION:
            if each.upgrade_type == UPGRADE:
                yield NoOpRecord()
        elif level != current:
            yield FeatureLevelRecord(name=name, feature_level=level)


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


def _fault_of(
    image: MetadataImage, asked: FeatureUpdate, current: int, node_id: int, quorum: QuorumLevel
) -> str | None:
    """Return what is wrong with an update, in Kafka's order of checks; None if nothing is."""
    name, level = asked.feature, asked.max_version_level
    kind = asked.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if (fault := _fault_of_nodes(image, name, level, node_id, quorum)) is not None:
        return fault
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and name == KRAFT_VERSION:
        return "Can't downgrade the version of this feature."
    return None


def _fault_of_nodes(
    image: MetadataImage, name: str, level: int, node_id: int, quorum: QuorumLevel
) -> str | None:
    """Return which node does not support a level of a feature, as far as is known."""
    for what, (lowest, highest) in _supported(image, name, node_id):
        if not lowest <= level <= highest:
            if highest == 0:
                return f"{what} does not support this feature."
            return f"{what} only supports versions {lowest}-{highest}"
    if image.metadata_version >= REGISTERED_CONTROLLERS:
        unknown = quorum.voter_ids - image.controllers.keys() - {node_id}
        if unknown:
            return f"controller {min(unknown)} has not registered, and may not support this feature"
    return None


def _supported(
    image: MetadataImage, name: str, node_id: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the levels of a feature that each node supports, this controller's first."""
    yield f"Local controller {node_id}", SUPPORTED_FEATURES.get(name, _DISABLED)
    for broker in image.brokers.values():
        yield f"Broker {broker.broker_id}", _range_of(broker.features, name)
    if image.metadata_version >= REGISTERED_CONTROLLERS:
        for controller in image.controllers.values():
            if controller.controller_id != node_id:
                what = f"Controller {controller.controller_id}"
                yield what, _range_of(controller.features, name)


def _range_of(features: Iterable[Feature], name: str) -> tuple[int, int]:
    for each in features:
        if each.name == name:
            return each.min_supported_version, each.max_supported_version
    return _DISABLED
