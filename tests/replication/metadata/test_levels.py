"""What each level of `metadata.version` writes, and transactions of records (KIP-868)."""

import attrs
import pytest

from replication.config import BrokerConfig
from replication.controller.rules.features import QuorumLevel, update_features
from replication.errors import ErrorCode, MetadataError
from replication.metadata.rules.image import MetadataImage, apply_batches
from replication.metadata.rules.levels import (
    LOWEST_METADATA_VERSION,
    METADATA_VERSIONS,
    changes_records,
    version_of,
)
from replication.metadata.rules.records import as_written, batch_of
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KAFKA_4_4,
    METADATA_VERSION,
)
from replication.wire.control_records import LeaderChangeMessage, control_batch_of
from replication.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from storage.batch.record_batch import stamp
from tests.replication.controller.images import after


def test_the_names_of_the_levels() -> None:
    assert METADATA_VERSIONS[LOWEST_METADATA_VERSION] == "3.3-IV3"
    assert METADATA_VERSIONS[17] == "3.7-IV2"
    assert METADATA_VERSIONS[23] == "4.0-IV1"
    assert METADATA_VERSIONS[KAFKA_4_4] == "4.4-IV2"


@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4, 33: 4}),
        (PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 33: 2}),
        (PartitionChangeRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 33: 2}),
        (TopicRecord(), {7: 0, 33: 0}),
        (BrokerRegistrationChangeRecord(fenced=1), {7: 0, 33: 0}),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), {7: 1, 33: 1}),
        (BrokerRegistrationChangeRecord(log_dirs=[bytes(16)]), {16: 0, 17: 2, 33: 2}),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), {29: 0, 30: 3}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_version_of_a_record_follows_the_level(
    record: MetadataRecord, versions: dict[int, int]
) -> None:
    assert {level: version_of(record, level) for level in versions} == versions


def test_what_an_older_level_leaves_out_does_not_count_for_its_writer_either() -> None:
    record = PartitionRecord(replicas=[1], eligible_leader_replicas=[1], directories=[bytes(16)])
    assert as_written([record], level=KAFKA_4_4) == [record]
    assert as_written([record], level=17) == [attrs.evolve(record, eligible_leader_replicas=None)]
    (oldest,) = as_written([record], level=7)
    assert oldest == PartitionRecord(replicas=[1])


@pytest.mark.parametrize(
    ("current", "wanted", "changed"),
    [(33, 32, True), (31, 30, False), (29, 24, False), (24, 22, True)],
)
def test_some_levels_changed_no_record(current: int, wanted: int, changed: bool) -> None:
    assert changes_records(current, wanted) is changed
    assert changes_records(wanted, current) is changed


def finalized(**levels: int) -> MetadataImage:
    records = [
        FeatureLevelRecord(name=name.replace("_", "."), feature_level=level)
        for name, level in levels.items()
    ]
    return after(MetadataImage(), records)


def update(image: MetadataImage, name: str, level: int, kind: int) -> tuple[int, str]:
    asked = [FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)]
    request = UpdateFeaturesRequest(feature_updates=asked)
    answer = update_features(
        image, request, config=BrokerConfig(node_id=0), quorum=QuorumLevel()
    ).answer
    return answer.error_code, answer.error_message or ""


def test_the_metadata_version_goes_up_and_only_down_where_no_record_changed() -> None:
    image = finalized(metadata_version=29)
    assert update(image, METADATA_VERSION, 33, UPGRADE) == (ErrorCode.NONE, "")
    assert update(image, METADATA_VERSION, 24, SAFE_DOWNGRADE) == (ErrorCode.NONE, "")
    code, message = update(image, METADATA_VERSION, 22, SAFE_DOWNGRADE)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Unsupported metadata.version downgrade from 29 to 22." in message


def test_a_feature_may_need_a_metadata_version() -> None:
    old, new = finalized(metadata_version=22), finalized(metadata_version=23)
    code, message = update(old, ELIGIBLE_LEADER_REPLICAS_VERSION, 1, UPGRADE)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "depends on metadata.version level 23" in message
    assert update(new, ELIGIBLE_LEADER_REPLICAS_VERSION, 1, UPGRADE) == (ErrorCode.NONE, "")


def test_an_unfinalized_feature_has_level_0_and_an_unknown_level_is_refused() -> None:
    assert finalized(metadata_version=33).feature(ELIGIBLE_LEADER_REPLICAS_VERSION) == 0
    with pytest.raises(MetadataError, match=r"feature metadata.version of level 34, but this"):
        finalized(metadata_version=34)


# Transactions.


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=bytes([number]) * 16)


def applied(image: MetadataImage, *records: MetadataRecord) -> MetadataImage:
    """Return the image after a batch, as a follower applies it."""
    batch = batch_of(records, wall_ms=0)
    stamp(memoryview(batch), base_offset=image.offset + 1, leader_epoch=1)
    return apply_batches(image, batch)


def test_the_records_of_a_transaction_count_at_its_end() -> None:
    image = applied(MetadataImage(), topic(1), BeginTransactionRecord(name="many"), topic(2))
    image = applied(image, topic(3))
    assert (list(image.topics), image.offset) == (["t1"], 3)
    assert image.open_transaction == (topic(2), topic(3))
    ended = applied(image, EndTransactionRecord(), topic(4))
    assert (list(ended.topics), ended.open_transaction) == (["t1", "t2", "t3", "t4"], None)
    aborted = applied(image, AbortTransactionRecord(), topic(4))
    assert (list(aborted.topics), aborted.open_transaction) == (["t1", "t4"], None)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([BeginTransactionRecord(), BeginTransactionRecord()], "begins within another"),
        ([EndTransactionRecord()], "ends that has not begun"),
        ([AbortTransactionRecord()], "ends that has not begun"),
        ([ConfigRecord(resource_type=8)], "ConfigRecord of resource type 8"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    records: list[MetadataRecord], message: str
) -> None:
    with pytest.raises(MetadataError, match=message):
        applied(MetadataImage(), *records)


def test_a_control_batch_changes_the_offset_and_the_epoch_alone() -> None:
    before = applied(MetadataImage(), topic(1))
    batch = control_batch_of([LeaderChangeMessage(leader_id=3)], wall_ms=0)
    stamp(memoryview(batch), base_offset=1, leader_epoch=2)
    assert apply_batches(before, batch) == attrs.evolve(before, offset=1, leader_epoch=2)
