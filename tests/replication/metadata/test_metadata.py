"""Records survive their bytes, images their records, and nothing unknown is skipped."""

import contextlib
from pathlib import Path

import attrs
import msgpack
import pytest
from hypothesis import given, strategies as st

from replication.errors import MetadataError
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    RemovedPartition,
    delta_between,
)
from replication.metadata.rules.records import (
    METADATA_TOPIC_ID,
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
    decode_record,
    encode_record,
)
from storage.types import TopicPartition
from tests.replication.controller.images import partition_of

GOLDEN = Path(__file__).parent / "golden" / "metadata"
ORDERS = bytes(range(16))
PAYMENTS = bytes(range(16, 32))

# One of each, the second of a kind where a field may be absent.
EXAMPLES: dict[str, MetadataRecord] = {
    "cluster-1": ClusterRecord("MkU3OEVBNTcwNTJENDM2Qg"),
    "controller-1": ControllerRecord(controller_id=100, leader_epoch=3),
    "register_broker-1": RegisterBrokerRecord(
        broker_id=1,
        broker_epoch=7,
        incarnation_id=b"\xaa" * 16,
        endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
        rack="r1",
        fenced=True,
        in_controlled_shutdown=False,
    ),
    "unregister_broker-1": UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
    "broker_registration_change-1": BrokerRegistrationChangeRecord(1, 7, fenced=False),
    "broker_directories-1": BrokerDirectoriesRecord(1, 7, online=(b"\xbb" * 16, b"\xcc" * 16)),
    "replica_directory-1": ReplicaDirectoryRecord(ORDERS, 0, broker_id=1, directory=b"\xbb" * 16),
    "topic-1": TopicRecord("orders", ORDERS),
    "partition-2": PartitionRecord(
        topic_id=ORDERS,
        partition=0,
        replicas=(1, 2, 3),
        isr=(1,),
        leader=1,
        adding=(1,),
        removing=(3,),
        elr=(2,),
        last_known_elr=(3,),
    ),
    "partition_change-2": PartitionChangeRecord(
        ORDERS,
        0,
        isr=(),
        leader=-1,
        replicas=(2, 3, 1),
        adding=(2,),
        removing=(1,),
        elr=(2, 3),
        last_known_elr=(3,),
    ),
    "remove_topic-1": RemoveTopicRecord(ORDERS),
    "config-1": ConfigRecord(ORDERS, "min.insync.replicas", "2"),
    "broker_config-1": BrokerConfigRecord(None, "log.retention.ms", "1000"),
    "group_config-1": GroupConfigRecord("readers", "consumer.session.timeout.ms", "50000"),
    "client_quota-1": ClientQuotaRecord(
        (("client-id", None), ("user", "alice")), "producer_byte_rate", 1000.5
    ),
    "feature_level-1": FeatureLevelRecord("transaction.version", 1),
    "scram_credential-1": ScramCredentialRecord(
        name="alice",
        mechanism="SCRAM-SHA-256",
        salt=b"salt",
        stored_key=b"\x01" * 32,
        server_key=b"\x02" * 32,
        iterations=4096,
    ),
    "remove_scram_credential-1": RemoveScramCredentialRecord("alice", "SCRAM-SHA-256"),
    "acl-1": AclRecord(
        acl_id=b"\xee" * 16,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission=3,
    ),
    "remove_acl-1": RemoveAclRecord(b"\xee" * 16),
    "producer_ids-1": ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
}

# Of versions that are read, and are written no more.
FORMER: dict[str, MetadataRecord] = {
    "partition-1": PartitionRecord(
        topic_id=ORDERS, partition=0, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1
    ),
    "partition_change-1": PartitionChangeRecord(
        ORDERS, 0, isr=(2, 3), leader=2, leader_recovery_state=LeaderRecoveryState.RECOVERED
    ),
}
PARTITION = FORMER["partition-1"]


def image_of(*records: MetadataRecord) -> MetadataImage:
    return MetadataImage().apply_all(records, offset=len(records) - 1, leader_epoch=0)


def orders(*more: MetadataRecord) -> MetadataImage:
    return image_of(EXAMPLES["topic-1"], PARTITION, *more)


@pytest.mark.parametrize("name", EXAMPLES)
def test_bytes_of_a_released_version_never_change(name: str) -> None:
    golden = (GOLDEN / f"{name}.msgpack").read_bytes()
    assert encode_record(EXAMPLES[name]) == golden
    assert decode_record(golden) == EXAMPLES[name]


@pytest.mark.parametrize("name", FORMER)
def test_a_former_version_is_read(name: str) -> None:
    assert decode_record((GOLDEN / f"{name}.msgpack").read_bytes()) == FORMER[name]


def test_every_golden_file_is_still_read() -> None:
    assert {path.stem for path in GOLDEN.glob("*.msgpack")} == EXAMPLES.keys() | FORMER.keys()


def test_a_change_record_leaves_other_fields_unchanged() -> None:
    before = orders().partition(TopicPartition("orders", 0))
    after = orders(EXAMPLES["partition_change-2"]).partition(TopicPartition("orders", 0))
    assert before is not None
    assert after == PartitionRegistration(
        (2, 3, 1),
        (),
        leader=-1,
        leader_epoch=1,
        partition_epoch=1,
        adding=(2,),
        removing=(1,),
        elr=(2, 3),
        last_known_elr=(3,),
    )
    assert before.merge(PartitionChangeRecord(ORDERS, 0, elr=(2,))) == attrs.evolve(
        before, partition_epoch=1, elr=(2,)
    )


def test_a_replica_that_is_moved_away_has_no_log_directory_any_more() -> None:
    before = orders(
        ReplicaDirectoryRecord(ORDERS, 0, 1, b"a" * 16),
        ReplicaDirectoryRecord(ORDERS, 0, 2, b"b" * 16),
    )
    moved = before.apply(PartitionChangeRecord(ORDERS, 0, replicas=(2, 3)))
    after = partition_of(moved, "orders")
    assert (after.directory(1), after.directory(2)) == (None, b"b" * 16)


@pytest.mark.parametrize(
    ("record", "elr"),
    [
        (ConfigRecord(ORDERS, "min.insync.replicas", "1"), ()),
        (BrokerConfigRecord(None, "min.insync.replicas", "1"), ()),
        (ConfigRecord(ORDERS, "retention.ms", "1"), (2,)),
        (BrokerConfigRecord(None, "log.retention.ms", "1"), (2,)),
    ],
    ids=["the topic's", "the cluster's", "another of the topic's", "another of the cluster's"],
)
def test_another_minimum_of_replicas_in_sync_clears_the_eligible_replicas(
    record: MetadataRecord, elr: tuple[int, ...]
) -> None:
    led = orders(PartitionChangeRecord(ORDERS, 0, isr=(1,), elr=(2,)))
    leaderless = orders(PartitionChangeRecord(ORDERS, 0, isr=(), elr=(2,), leader=-1))
    # Without a leader nothing can have been committed since.
    for image, then in ((led, elr), (leaderless, (2,))):
        partition = partition_of(image.apply(record), "orders")
        assert (partition.elr, partition.partition_epoch) == (then, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(msgpack.packb(["acls", 1, "x"]), "unknown metadata record 'acls'", id="type"),
        pytest.param(msgpack.packb(["topic", 9, "x"]), "'topic' of version 9", id="version"),
        pytest.param(msgpack.packb(["topic", 1, "x"]), "'topic' version 1: 1 fields", id="fields"),
        pytest.param(msgpack.packb([[1], 1, "x"]), r"unknown metadata record \[1\]", id="list"),
        pytest.param(msgpack.packb(["topic", [], 1]), "'topic' of version", id="odd version"),
        pytest.param(msgpack.packb(7), "not msgpack", id="a number"),
        pytest.param(msgpack.packb([]), "not msgpack", id="empty"),
        pytest.param(b"\xc1", "not msgpack", id="garbage"),
        pytest.param(b"", "not msgpack", id="nothing"),
        pytest.param(
            msgpack.packb(["partition", 1, ORDERS, 0, 5, (), 1, 0, 0, 0]),
            "'partition' version 1",
            id="a number for a list",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        decode_record(data)


@given(st.binary(max_size=40))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(MetadataError):
        decode_record(data)


def test_the_metadata_topic_id_is_an_id() -> None:
    assert len(METADATA_TOPIC_ID) == 16


def test_applying_changes_a_copy_and_shares_the_rest() -> None:
    before = orders(TopicRecord("payments", PAYMENTS))
    after = before.apply(PartitionChangeRecord(ORDERS, 0, isr=(1, 2)))
    assert before.partition(TopicPartition("orders", 0)) != after.partition(
        TopicPartition("orders", 0)
    )
    assert after.topics["payments"] is before.topics["payments"]
    assert (before.offset, after.offset) == (2, 3)


@pytest.mark.parametrize(
    ("change", "leader_epoch", "partition_epoch"),
    [
        pytest.param(
            PartitionChangeRecord(ORDERS, 0, isr=(1, 2)),
            0,
            1,
            id="an ISR alone keeps the leader epoch",
        ),
        pytest.param(PartitionChangeRecord(ORDERS, 0, leader=2), 1, 1, id="a leader bumps both"),
        pytest.param(PartitionChangeRecord(ORDERS, 0, leader=-1), 1, 1, id="so does no leader"),
        pytest.param(
            PartitionChangeRecord(ORDERS, 0, leader=1), 1, 1, id="and the same leader named again"
        ),
    ],
)
def test_epochs_of_a_changed_partition(
    change: PartitionChangeRecord, leader_epoch: int, partition_epoch: int
) -> None:
    partition = partition_of(orders(change), "orders")
    assert (partition.leader_epoch, partition.partition_epoch) == (leader_epoch, partition_epoch)


def test_a_registration_is_fenced_until_a_change_unfences_it() -> None:
    registered = image_of(EXAMPLES["register_broker-1"])
    assert not registered.is_alive(1)
    assert registered.broker_epoch(1) is None
    alive = registered.apply(BrokerRegistrationChangeRecord(1, 7, fenced=False))
    assert alive.is_alive(1)
    assert alive.broker_epoch(1) == 7
    assert alive.may_join_isr(1)
    leaving = alive.apply(BrokerRegistrationChangeRecord(1, 7, in_controlled_shutdown=True))
    assert leaving.is_alive(1)
    assert not leaving.may_join_isr(1)
    gone = leaving.apply(UnregisterBrokerRecord(1, 7))
    assert gone.broker(1) is None
    assert not gone.may_join_isr(1)


def test_a_registration_names_its_listeners() -> None:
    broker = image_of(EXAMPLES["register_broker-1"]).broker(1)
    assert isinstance(broker, BrokerRegistration)
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    assert broker.endpoint("SSL") is None


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(1, 6, fenced=False),
        UnregisterBrokerRecord(2, 7),
        TopicRecord("orders", PAYMENTS),
        PartitionChangeRecord(ORDERS, 5, leader=1),
        PartitionChangeRecord(PAYMENTS, 0, leader=1),
        RemoveTopicRecord(PAYMENTS),
        ConfigRecord(PAYMENTS, "a", "b"),
    ],
    ids=repr,
)
def test_a_record_that_fits_nothing_is_refused(record: MetadataRecord) -> None:
    with pytest.raises(MetadataError):
        orders(EXAMPLES["register_broker-1"]).apply(record)


def test_configs_are_set_and_taken_away() -> None:
    changed = orders(ConfigRecord(ORDERS, "a", "1"), ConfigRecord(ORDERS, "b", "2"))
    assert changed.topics["orders"].configs == {"a": "1", "b": "2"}
    assert changed.apply(ConfigRecord(ORDERS, "a", None)).topics["orders"].configs == {"b": "2"}


def test_configs_of_one_broker_and_of_all_are_separate() -> None:
    before = image_of(BrokerConfigRecord(None, "a", "1"), BrokerConfigRecord(2, "a", "2"))
    assert before.broker_configs == {None: {"a": "1"}, 2: {"a": "2"}}
    after = before.apply(BrokerConfigRecord(2, "a", None))
    assert after.broker_configs == {None: {"a": "1"}}, "nothing set is nothing kept"
    assert delta_between(before, after).reconfigured_brokers == {2}
    assert delta_between(after, after.apply(ClusterRecord("c"))).reconfigured_brokers == frozenset()
    assert before.broker_configs[2] == {"a": "2"}, "an image never changes"


def test_lookups_by_name_and_by_id() -> None:
    image = orders()
    assert image.topic_id("orders") == ORDERS
    assert image.topic_id("payments") is None
    assert image.topic_by_id(ORDERS) is image.topics["orders"]
    assert image.topic_by_id(PAYMENTS) is None
    assert image.partition(TopicPartition("payments", 0)) is None
    assert [each for each, _, _ in image.partitions()] == [TopicPartition("orders", 0)]
    assert image.apply(ProducerIdsRecord(1, 7, 2000)).next_producer_id == 2000
    assert image.apply(ClusterRecord("c")).cluster_id == "c"
    assert image.apply(ControllerRecord(9, 4)).controller_id == 9


def test_a_delta_contains_all_changes_and_nothing_else() -> None:
    second = PartitionRecord(topic_id=ORDERS, partition=1, replicas=[1], isr=[1], leader=1)
    old = orders(second)
    new = old.apply(PartitionChangeRecord(ORDERS, 1, leader=-1)).apply(
        EXAMPLES["register_broker-1"]
    )
    delta = delta_between(old, new)
    assert delta.changed == {TopicPartition("orders", 1)}
    assert delta.brokers == {1}
    assert not delta.removed
    assert not delta.reconfigured
    assert delta_between(new, new.apply(ConfigRecord(ORDERS, "a", "b"))).reconfigured == {"orders"}
    assert delta_between(MetadataImage(), new).changed == {
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
    }


def test_a_topic_created_again_is_both_removed_and_new() -> None:
    old = orders()
    new = old.apply_all(
        [
            RemoveTopicRecord(ORDERS),
            TopicRecord("orders", PAYMENTS),
            PartitionRecord(topic_id=PAYMENTS, partition=0, replicas=[2], isr=[2], leader=2),
        ],
        offset=4,
        leader_epoch=0,
    )
    delta = delta_between(old, new)
    assert delta.removed == {RemovedPartition(TopicPartition("orders", 0), ORDERS)}
    assert delta.changed == {TopicPartition("orders", 0)}
    assert delta_between(new, new.apply(RemoveTopicRecord(PAYMENTS))).changed == frozenset()


def test_one_batch_and_single_records_lead_to_the_same_image() -> None:
    records = [EXAMPLES["topic-1"], PARTITION, EXAMPLES["register_broker-1"]]
    one_by_one = MetadataImage(leader_epoch=0)
    for record in records:
        one_by_one = one_by_one.apply(record)
    assert one_by_one == image_of(*records)
    partition = one_by_one.partition(TopicPartition("orders", 0))
    assert partition == PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0)
