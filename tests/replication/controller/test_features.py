"""Finalized levels, and the nodes that support them: registrations, and UpdateFeatures."""

import pytest

from replication.config import BrokerConfig
from replication.controller.rules.features import QuorumLevel, update_features
from replication.errors import ErrorCode
from replication.events import RegistrationRefused
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.levels import named_features
from replication.observe.sentences import DECISION, kind, sentence
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from replication.wire.broker_registration import Feature
from replication.wire.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from scenarios.world.world import World
from tests.replication.broker.stage import played
from tests.replication.controller.images import ORDERS, after, broker_config
from tests.replication.controller.running_controller import Registered, running

ALONE = QuorumLevel()


def levels(**wanted: tuple[int, int]) -> list[Feature]:
    """Return the features of this release, with other levels of some; dots as underscores."""
    others = {name.replace("_", "."): levels for name, levels in wanted.items()}
    return [
        Feature(each.name, *others[each.name]) if each.name in others else each
        for each in named_features()
    ]


def without(name: str) -> list[Feature]:
    return [each for each in named_features() if each.name != name]


@pytest.mark.parametrize(
    ("features", "error", "cause"),
    [
        pytest.param(
            without(METADATA_VERSION),
            ErrorCode.INVALID_REGISTRATION,
            "Request features do not contain 'metadata.version'",
            id="no metadata.version",
        ),
        pytest.param(
            levels(metadata_version=(7, 30)),
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 33 of"
            " metadata.version. The broker wants a version between 7 and 30, inclusive.",
            id="an older release",
        ),
        pytest.param(
            without(TRANSACTION_VERSION),
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 2 of"
            " transaction.version. The broker wants a version between 0 and 0, inclusive.",
            id="a feature that it does not name",
        ),
        pytest.param(
            levels(share_version=(1, 2)),
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 0 of"
            " share.version. The broker wants a version between 1 and 2, inclusive.",
            id="a feature that it cannot do without",
        ),
    ],
)
@played
async def test_a_broker_that_lacks_a_finalized_level_is_not_registered(
    world: World, features: list[Feature], error: ErrorCode, cause: str
) -> None:
    async with running(world) as controller:
        broker = Registered(controller, 1)
        for _ in range(20):
            refused = await broker.register(features=features)
            assert refused.error_code == error
        assert controller.image.brokers == {}
        (event,) = [
            each.event
            for each in world.trace.entries
            if isinstance(each.event, RegistrationRefused)
        ]
        assert event == RegistrationRefused(node=1, role="broker", error=error.name, cause=cause)
        assert kind(event) == DECISION
        assert sentence(event) == f"does not register broker 1: {cause}"
        assert (await broker.register()).error_code == ErrorCode.NONE


@played
async def test_a_refusal_that_is_soon_over_is_not_reported(world: World) -> None:
    async with running(world) as controller:
        first = Registered(controller, 1)
        await first.register()
        await first.heartbeat()
        second = await Registered(controller, 1, incarnation=2).register()
        assert second.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert not any(isinstance(each.event, RegistrationRefused) for each in world.trace.entries)


def image_of(*nodes: MetadataRecord, metadata: int = 33) -> MetadataImage:
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata)
    return after(MetadataImage(), [level, *nodes])


def broker(features: list[Feature]) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=1, features=features)


def controller(features: list[Feature]) -> RegisterControllerRecord:
    return RegisterControllerRecord(controller_id=3002, features=features)


def fault(
    image: MetadataImage, name: str, level: int, kind: int = UPGRADE, quorum: QuorumLevel = ALONE
) -> str:
    """Return what is wrong with the update of a feature, an empty string for nothing."""
    update = FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
    decision = update_features(
        image,
        UpdateFeaturesRequest(feature_updates=[update]),
        config=BrokerConfig(node_id=3001),
        quorum=quorum,
    )
    expected = ErrorCode.INVALID_UPDATE_VERSION if decision.answer.error_message else ErrorCode.NONE
    assert decision.answer.error_code == expected
    return (decision.answer.error_message or "").partition(f"for feature {name}. ")[2]


def test_every_broker_supports_what_is_finalized() -> None:
    assert fault(image_of(broker(named_features())), GROUP_VERSION, 1) == ""
    silent = image_of(broker([]))
    assert fault(silent, GROUP_VERSION, 1) == "Broker 1 does not support this feature."
    old = image_of(broker(levels(metadata_version=(7, 30))), metadata=30)
    assert fault(old, METADATA_VERSION, 33) == "Broker 1 only supports versions 7-30"
    new = image_of(broker(levels(group_version=(1, 2))))
    assert fault(new, GROUP_VERSION, 0, SAFE_DOWNGRADE) == "Broker 1 only supports versions 1-2"


def test_every_controller_supports_what_is_finalized_as_far_as_that_is_known() -> None:
    two = QuorumLevel(voter_ids=frozenset({3001, 3002}))
    absent = "controller 3002 has not registered, and may not support this feature"
    assert fault(image_of(), GROUP_VERSION, 1, quorum=two) == absent
    assert fault(image_of(metadata=14), GROUP_VERSION, 1, quorum=two) == ""
    old = image_of(controller(without(GROUP_VERSION)))
    assert (
        fault(old, GROUP_VERSION, 1, quorum=two) == "Controller 3002 does not support this feature."
    )
    assert fault(image_of(controller(named_features())), GROUP_VERSION, 1, quorum=two) == ""


def test_leaders_hear_of_the_one_minimum_before_eligible_replicas_follow_from_it() -> None:
    before = image_of(
        TopicRecord(name="orders", topic_id=ORDERS),
        PartitionRecord(
            topic_id=ORDERS,
            partition_id=0,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
        broker_config("1", "min.insync.replicas", "2"),
    )
    asked = FeatureUpdate(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=1)
    decision = update_features(
        before,
        UpdateFeaturesRequest(feature_updates=[asked]),
        config=BrokerConfig(node_id=3001),
        quorum=ALONE,
    )
    assert decision.records == (
        FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1),
        broker_config("", "min.insync.replicas", "1"),
        broker_config("1", "min.insync.replicas", None),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS),
    )


def test_kraft_version_is_no_record_of_the_controller() -> None:
    asked = FeatureUpdate(feature=KRAFT_VERSION, max_version_level=1)
    decision = update_features(
        image_of(),
        UpdateFeaturesRequest(feature_updates=[asked]),
        config=BrokerConfig(node_id=3001),
        quorum=ALONE,
    )
    assert decision.records == (NoOpRecord(),)
    raised = QuorumLevel(kraft_version=1)
    lower = fault(image_of(), KRAFT_VERSION, 0, SAFE_DOWNGRADE, raised)
    assert lower == "Can't downgrade the version of this feature."
    # Kafka 4.0 wrote such a record by mistake (KAFKA-18979).
    written = FeatureLevelRecord(name=KRAFT_VERSION, feature_level=1)
    assert KRAFT_VERSION not in after(image_of(), [written]).feature_levels
