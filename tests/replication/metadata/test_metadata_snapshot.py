"""A snapshot and the rest of the log say what the whole log says."""

from typing import get_args

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.errors import MetadataError
from replication.metadata.rules.checkpoint import (
    BATCH_BYTES,
    SnapshotVoters,
    checkpoint_batches,
)
from replication.metadata.rules.image import UNASSIGNED, MetadataImage
from replication.metadata.rules.records import LeaderRecoveryState
from replication.metadata.rules.snapshot import entity_data, snapshot_id
from replication.wire.broker_registration import Endpoint, Feature
from replication.wire.control_records import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch_of,
)
from replication.wire.metadata_records import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from storage.batch.record_batch import walk
from storage.batch.records import Record, encode_batch
from storage.types import OffsetAndEpoch
from tests.replication.controller.images import (
    broker_config,
    client_metrics,
    group_config,
    topic_config,
)
from tests.replication.metadata.checkpoints import image_in, reader_of, snapshot_bytes

BROKERS = st.integers(1, 3)
TOPIC_IDS = st.sampled_from([bytes([number]) * 16 for number in range(1, 4)])
REPLICAS = st.lists(BROKERS, unique=True, max_size=3)
TOPIC_NAMES = st.sampled_from(["topic-1", "topic-2", "topic-3"])
USERS = st.sampled_from(["alice", "bob"])
ACL_IDS = st.sampled_from([b"\x01" * 16, b"\x02" * 16])
TOKEN_IDS = st.sampled_from(["token-1", "token-2"])
EPOCHS = st.integers(0, 2)
PARTITIONS = st.integers(0, 1)
KEYS = st.sampled_from(["min.insync.replicas", "retention.ms", "cleanup.policy"])
VALUES = st.none() | st.sampled_from(["1", "2"])
DIRECTORIES = st.sampled_from([UNASSIGNED, b"\xbb" * 16, b"\xcc" * 16])
RECOVERY = st.sampled_from(LeaderRecoveryState)


def with_directories(record: PartitionRecord) -> st.SearchStrategy[MetadataRecord]:
    some = st.lists(DIRECTORIES, min_size=len(record.replicas), max_size=len(record.replicas))
    return some.map(lambda directories: attrs.evolve(record, directories=directories))


BY_TYPE: dict[type, st.SearchStrategy[MetadataRecord]] = {
    RegisterBrokerRecord: st.builds(
        RegisterBrokerRecord,
        broker_id=BROKERS,
        broker_epoch=EPOCHS,
        incarnation_id=st.just(bytes(16)),
        end_points=st.just([Endpoint("PLAINTEXT", "h", 1)]),
        features=st.just([Feature("metadata.version", 7, 33)]),
        rack=st.none() | st.just("r"),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
        log_dirs=st.lists(DIRECTORIES, max_size=2),
        cordoned_log_dirs=st.none() | st.lists(DIRECTORIES, max_size=1),
    ),
    UnregisterBrokerRecord: st.builds(
        UnregisterBrokerRecord, broker_id=BROKERS, broker_epoch=EPOCHS
    ),
    BrokerRegistrationChangeRecord: st.builds(
        BrokerRegistrationChangeRecord,
        broker_id=BROKERS,
        broker_epoch=EPOCHS,
        fenced=st.integers(-1, 1),
        in_controlled_shutdown=st.integers(0, 1),
        log_dirs=st.lists(DIRECTORIES, max_size=2),
        cordoned_log_dirs=st.none() | st.lists(DIRECTORIES, max_size=1),
    ),
    FenceBrokerRecord: st.builds(FenceBrokerRecord, id_=BROKERS, epoch=EPOCHS),
    UnfenceBrokerRecord: st.builds(UnfenceBrokerRecord, id_=BROKERS, epoch=EPOCHS),
    TopicRecord: TOPIC_IDS.map(
        lambda topic_id: TopicRecord(name=f"topic-{topic_id[0]}", topic_id=topic_id)
    ),
    PartitionRecord: st.builds(
        PartitionRecord,
        partition_id=PARTITIONS,
        topic_id=TOPIC_IDS,
        replicas=REPLICAS,
        isr=REPLICAS,
        leader=BROKERS,
        leader_epoch=EPOCHS,
        partition_epoch=EPOCHS,
        leader_recovery_state=RECOVERY,
        adding_replicas=REPLICAS,
        removing_replicas=REPLICAS,
        eligible_leader_replicas=st.none() | REPLICAS,
        last_known_elr=st.none() | REPLICAS,
    ).flatmap(with_directories),
    PartitionChangeRecord: st.builds(
        PartitionChangeRecord,
        partition_id=PARTITIONS,
        topic_id=TOPIC_IDS,
        isr=st.none() | REPLICAS,
        leader=st.just(NO_LEADER_CHANGE) | BROKERS,
        leader_recovery_state=st.just(NO_RECOVERY_CHANGE) | RECOVERY,
        replicas=st.none() | REPLICAS,
        removing_replicas=st.none() | REPLICAS,
        adding_replicas=st.none() | REPLICAS,
        eligible_leader_replicas=st.none() | REPLICAS,
        last_known_elr=st.none() | REPLICAS,
    ),
    RemoveTopicRecord: st.builds(RemoveTopicRecord, topic_id=TOPIC_IDS),
    ClearElrRecord: st.builds(ClearElrRecord, topic_name=st.just("") | TOPIC_NAMES),
    ConfigRecord: st.one_of(
        st.builds(topic_config, TOPIC_NAMES, KEYS, VALUES),
        st.builds(broker_config, st.just("") | BROKERS.map(str), KEYS, VALUES),
        st.builds(group_config, st.sampled_from(["g", "h"]), KEYS, VALUES),
        st.builds(client_metrics, st.sampled_from(["m", "n"]), KEYS, VALUES),
    ),
    ClientQuotaRecord: st.builds(
        ClientQuotaRecord,
        entity=st.sampled_from(
            [(("user", "alice"),), (("client-id", None), ("user", "alice"))]
        ).map(entity_data),
        key=st.sampled_from(["producer_byte_rate", "request_percentage"]),
        value=st.floats(1, 5),
        remove=st.booleans(),
    ),
    FeatureLevelRecord: st.builds(
        FeatureLevelRecord, name=st.just("transaction.version"), feature_level=st.integers(0, 3)
    ),
    UserScramCredentialRecord: st.builds(
        UserScramCredentialRecord,
        name=USERS,
        mechanism=st.integers(1, 2),
        iterations=st.integers(4096, 4098),
    ),
    RemoveUserScramCredentialRecord: st.builds(
        RemoveUserScramCredentialRecord, name=USERS, mechanism=st.integers(1, 2)
    ),
    AccessControlEntryRecord: st.builds(
        AccessControlEntryRecord,
        id_=ACL_IDS,
        resource_type=st.just(2),
        resource_name=st.just("t"),
        pattern_type=st.just(3),
        principal=st.just("User:alice"),
        host=st.just("*"),
        operation=st.integers(3, 4),
        permission_type=st.just(3),
    ),
    RemoveAccessControlEntryRecord: st.builds(RemoveAccessControlEntryRecord, id_=ACL_IDS),
    DelegationTokenRecord: st.builds(
        DelegationTokenRecord,
        owner=USERS,
        renewers=st.lists(USERS, max_size=2),
        expiration_timestamp=st.integers(1, 3),
        token_id=TOKEN_IDS,
    ),
    RemoveDelegationTokenRecord: st.builds(RemoveDelegationTokenRecord, token_id=TOKEN_IDS),
    ProducerIdsRecord: st.builds(
        ProducerIdsRecord,
        broker_id=BROKERS,
        broker_epoch=EPOCHS,
        next_producer_id=st.integers(0, 5000),
    ),
    RegisterControllerRecord: st.builds(
        RegisterControllerRecord,
        controller_id=st.integers(3000, 3001),
        incarnation_id=st.just(bytes(16)),
        end_points=st.just([Endpoint("CONTROLLER", "h", 1)]),
    ),
    UnregisterControllerRecord: st.builds(
        UnregisterControllerRecord, controller_id=st.integers(3000, 3001)
    ),
    NoOpRecord: st.builds(NoOpRecord),
    ZkMigrationStateRecord: st.builds(ZkMigrationStateRecord),
}
NOT_KEPT = {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
"""These have tests of their own."""
RECORDS = st.one_of(*BY_TYPE.values())


def applied(image: MetadataImage, record: MetadataRecord) -> MetadataImage:
    """The next image; a record that fits nothing, which no controller writes, is left out."""
    try:
        return image.apply(record)
    except MetadataError:
        return image


@given(st.lists(RECORDS, min_size=1, max_size=40), st.data())
def test_the_image_of_all_records_is_that_of_a_snapshot_and_the_rest(
    records: list[MetadataRecord], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(records) - 1))
    level = FeatureLevelRecord(name="metadata.version", feature_level=33)
    whole = applied(MetadataImage(leader_epoch=0), level)
    resumed = whole
    for index, record in enumerate(records):
        if index == cut:
            resumed = image_in(snapshot_bytes(whole), snapshot_id(whole))
            assert resumed == whole
        whole = applied(whole, record)
        resumed = applied(resumed, record)
    assert resumed == whole


EXAMPLE = MetadataImage().apply_all(
    [
        FeatureLevelRecord(name="metadata.version", feature_level=33),
        broker_config("", "log.retention.ms", "1000"),
        RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=7,
            incarnation_id=b"\xaa" * 16,
            end_points=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
            rack="r1",
            fenced=False,
            in_controlled_shutdown=False,
        ),
        TopicRecord(name="orders", topic_id=bytes(range(16))),
        topic_config("orders", "min.insync.replicas", "2"),
        PartitionRecord(
            topic_id=bytes(range(16)),
            partition_id=0,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            eligible_leader_replicas=[2],
            leader_epoch=0,
            partition_epoch=0,
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
    ],
    offset=41,
    leader_epoch=3,
)


END = OffsetAndEpoch(42, 3)
WHOLE = snapshot_bytes(EXAMPLE)


def test_a_snapshot_is_its_image_between_a_header_and_a_footer() -> None:
    assert snapshot_id(EXAMPLE) == END
    assert image_in(WHOLE, END) == EXAMPLE
    batches = [header for _, header in walk(WHOLE)]
    assert [header.is_control for header in batches] == [True, False, True]
    assert [header.base_offset for header in batches] == [0, 1, batches[1].next_offset]
    assert {header.leader_epoch for header in batches} == {3}


def test_a_large_image_takes_several_batches() -> None:
    image = MetadataImage().apply_all(
        [
            TopicRecord(name=f"topic-{each}", topic_id=each.to_bytes(16, "big"))
            for each in range(1, 2500)
        ],
        offset=2498,
        leader_epoch=0,
    )
    data = snapshot_bytes(image)
    assert [header.record_count for _, header in walk(data)][1:-1] == [1024, 1024, 452]
    assert image_in(data, snapshot_id(image)) == image


@pytest.mark.parametrize("size", [100, BATCH_BYTES // 3, BATCH_BYTES, 2 * BATCH_BYTES])
def test_a_batch_is_bounded_in_bytes_too(size: int) -> None:
    values = [bytes([each]) * size for each in range(5)]
    batches = list(checkpoint_batches(values, leader_epoch=0, wall_ms=0, last_timestamp_ms=0))
    assert max(map(len, batches)) <= max(size, BATCH_BYTES) + 200
    assert list(reader_of(b"".join(batches)).values()) == values


def test_a_snapshot_states_the_voters() -> None:
    voters = SnapshotVoters(kraft_version=1, voters=VotersRecord(voters=[]))
    data = b"".join(
        checkpoint_batches([], leader_epoch=0, wall_ms=5, last_timestamp_ms=4, voters=voters)
    )
    reader = reader_of(data)
    assert list(reader.values()) == []
    assert (reader.voters, reader.last_timestamp_ms) == (voters, 4)


HEADER = bytes(control_batch_of([SnapshotHeaderRecord()], wall_ms=0))
FOOTER = bytes(control_batch_of([SnapshotFooterRecord()], wall_ms=0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "without a footer", id="nothing"),
        pytest.param(WHOLE[:-1], "without a footer", id="torn"),
        pytest.param(FOOTER, "one header", id="no header"),
        pytest.param(HEADER + HEADER + FOOTER, "one header", id="two headers"),
        pytest.param(WHOLE + FOOTER, "after its footer", id="more"),
        pytest.param(encode_batch([Record(value=b"")]), "without a header", id="records first"),
        pytest.param(
            HEADER + encode_batch([Record(value=None)]) + FOOTER, "is empty", id="no value"
        ),
        pytest.param(
            HEADER + bytes(control_batch_of([LeaderChangeMessage()], wall_ms=0)) + FOOTER,
            "LeaderChangeMessage has no place",
            id="leader change",
        ),
        pytest.param(
            WHOLE[:200] + bytes([WHOLE[200] ^ 1]) + WHOLE[201:],
            "CRC-32C of the batch at",
            id="damaged",
        ),
    ],
)
def test_what_is_not_a_whole_snapshot_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        image_in(data, END)


def test_the_random_records_are_of_every_type_there_is() -> None:
    assert set(BY_TYPE) | NOT_KEPT == set(get_args(MetadataRecord))
