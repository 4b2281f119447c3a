"""A snapshot and the rest of the log say what the whole log says."""

from typing import get_args

import pytest
from hypothesis import given, strategies as st

from replication.errors import MetadataError
from replication.metadata.rules.checkpoint import (
    BATCH_BYTES,
    SnapshotVoters,
    checkpoint_batches,
)
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import (
    AclRecord,
    BrokerConfigRecord,
    BrokerDirectoriesRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    Endpoint,
    FeatureLevelRecord,
    GroupConfigRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAclRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ReplicaDirectoryRecord,
    ScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from replication.metadata.rules.snapshot import snapshot_id
from replication.wire.control_records import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch_of,
)
from storage.batch.record_batch import walk
from storage.batch.records import Record, encode_batch
from storage.types import OffsetAndEpoch
from tests.replication.metadata.checkpoints import image_in, reader_of, snapshot_bytes

BROKERS = st.integers(1, 3)
TOPIC_IDS = st.sampled_from([bytes([number]) * 16 for number in range(1, 4)])
REPLICAS = st.lists(BROKERS, unique=True, max_size=3).map(tuple)
EPOCHS = st.integers(0, 2)
PARTITIONS = st.integers(0, 1)
KEYS = st.sampled_from(["min.insync.replicas", "retention.ms", "cleanup.policy"])
VALUES = st.none() | st.sampled_from(["1", "2"])
DIRECTORIES = st.sampled_from([(), (b"\xbb" * 16,), (b"\xbb" * 16, b"\xcc" * 16)])
RECOVERY = st.sampled_from(LeaderRecoveryState)

BY_TYPE: dict[type, st.SearchStrategy[MetadataRecord]] = {
    ClusterRecord: st.builds(ClusterRecord, st.sampled_from(["c", "d"])),
    ControllerRecord: st.builds(ControllerRecord, st.integers(100, 101), st.integers(0, 5)),
    RegisterBrokerRecord: st.builds(
        RegisterBrokerRecord,
        broker_id=BROKERS,
        broker_epoch=EPOCHS,
        incarnation_id=st.just(bytes(16)),
        endpoints=st.just((Endpoint("PLAINTEXT", "h", 1),)),
        rack=st.none() | st.just("r"),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    UnregisterBrokerRecord: st.builds(UnregisterBrokerRecord, BROKERS, EPOCHS),
    BrokerRegistrationChangeRecord: st.builds(
        BrokerRegistrationChangeRecord, BROKERS, EPOCHS, fenced=st.none() | st.booleans()
    ),
    BrokerDirectoriesRecord: st.builds(
        BrokerDirectoriesRecord, BROKERS, EPOCHS, online=DIRECTORIES
    ),
    ReplicaDirectoryRecord: st.builds(
        ReplicaDirectoryRecord, TOPIC_IDS, PARTITIONS, BROKERS, st.just(b"\xbb" * 16)
    ),
    TopicRecord: TOPIC_IDS.map(lambda topic_id: TopicRecord(f"topic-{topic_id[0]}", topic_id)),
    PartitionRecord: st.builds(
        PartitionRecord,
        topic_id=TOPIC_IDS,
        partition=PARTITIONS,
        replicas=REPLICAS,
        isr=REPLICAS,
        leader=BROKERS,
        leader_epoch=EPOCHS,
        partition_epoch=EPOCHS,
        leader_recovery_state=RECOVERY,
        adding=REPLICAS,
        removing=REPLICAS,
        elr=REPLICAS,
        last_known_elr=REPLICAS,
    ),
    PartitionChangeRecord: st.builds(
        PartitionChangeRecord,
        TOPIC_IDS,
        PARTITIONS,
        isr=st.none() | REPLICAS,
        leader=st.none() | BROKERS,
        leader_recovery_state=st.none() | RECOVERY,
        elr=st.none() | REPLICAS,
    ),
    RemoveTopicRecord: st.builds(RemoveTopicRecord, TOPIC_IDS),
    ConfigRecord: st.builds(ConfigRecord, TOPIC_IDS, KEYS, VALUES),
    BrokerConfigRecord: st.builds(BrokerConfigRecord, st.none() | BROKERS, KEYS, VALUES),
    GroupConfigRecord: st.builds(GroupConfigRecord, st.sampled_from(["g", "h"]), KEYS, VALUES),
    ClientQuotaRecord: st.builds(
        ClientQuotaRecord,
        st.sampled_from([(("user", "alice"),), (("client-id", None), ("user", "alice"))]),
        st.sampled_from(["producer_byte_rate", "request_percentage"]),
        st.none() | st.floats(1, 5),
    ),
    FeatureLevelRecord: st.builds(
        FeatureLevelRecord, st.just("transaction.version"), st.integers(0, 3)
    ),
    ScramCredentialRecord: st.builds(
        ScramCredentialRecord,
        *(st.sampled_from(["alice", "bob"]), st.just("SCRAM-SHA-256")),
        *(st.just(b"salt"), st.just(b"stored"), st.just(b"server"), st.integers(4096, 4098)),
    ),
    RemoveScramCredentialRecord: st.builds(
        RemoveScramCredentialRecord, st.sampled_from(["alice", "bob"]), st.just("SCRAM-SHA-256")
    ),
    AclRecord: st.builds(
        AclRecord,
        *(st.sampled_from([b"\x01" * 16, b"\x02" * 16]), st.just(2), st.just("t"), st.just(3)),
        *(st.just("User:alice"), st.just("*"), st.integers(3, 4), st.just(3)),
    ),
    RemoveAclRecord: st.builds(RemoveAclRecord, st.sampled_from([b"\x01" * 16, b"\x02" * 16])),
    ProducerIdsRecord: st.builds(ProducerIdsRecord, BROKERS, EPOCHS, st.integers(0, 5000)),
}
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
    whole = applied(MetadataImage(leader_epoch=0), ClusterRecord("c"))
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
        ClusterRecord("MkU3OEVBNTcwNTJENDM2Qg"),
        ControllerRecord(controller_id=100, leader_epoch=3),
        BrokerConfigRecord(None, "log.retention.ms", "1000"),
        RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=7,
            incarnation_id=b"\xaa" * 16,
            endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
            rack="r1",
            fenced=False,
            in_controlled_shutdown=False,
        ),
        TopicRecord("orders", bytes(range(16))),
        ConfigRecord(bytes(range(16)), "min.insync.replicas", "2"),
        PartitionRecord(
            topic_id=bytes(range(16)), partition=0, replicas=(1, 2), isr=(1,), leader=1, elr=(2,)
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
        [TopicRecord(f"topic-{each}", each.to_bytes(16, "big")) for each in range(1, 2500)],
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
    assert set(BY_TYPE) == set(get_args(MetadataRecord))
