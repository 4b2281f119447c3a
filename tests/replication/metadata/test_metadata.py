"""Records survive their bytes, images their records, and nothing unknown is skipped."""

import attrs
import pytest

from replication.errors import MetadataError
from replication.metadata.rules.image import (
    UNASSIGNED,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    RemovedPartition,
    delta_between,
)
from replication.metadata.rules.records import METADATA_TOPIC_ID
from replication.wire.broker_registration import Endpoint
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from storage.types import TopicPartition
from tests.replication.controller.images import broker_config, partition_of, topic_config

ORDERS = bytes(range(16))
PAYMENTS = bytes(range(16, 32))

TOPIC = TopicRecord(name="orders", topic_id=ORDERS)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=ORDERS,
    replicas=[1, 2, 3],
    isr=[1, 2, 3],
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
)
REGISTERED = RegisterBrokerRecord(
    broker_id=1,
    broker_epoch=7,
    incarnation_id=b"\xaa" * 16,
    end_points=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
    rack="r1",
    fenced=True,
)


def image_of(*records: MetadataRecord) -> MetadataImage:
    return MetadataImage().apply_all(records, offset=len(records) - 1, leader_epoch=0)


def orders(*more: MetadataRecord) -> MetadataImage:
    return image_of(TOPIC, PARTITION, *more)


def test_a_change_record_leaves_other_fields_unchanged() -> None:
    before = orders().partition(TopicPartition("orders", 0))
    after = orders(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=ORDERS,
            isr=[],
            leader=-1,
            replicas=[2, 3, 1],
            adding_replicas=[2],
            removing_replicas=[1],
            eligible_leader_replicas=[2, 3],
            last_known_elr=[3],
        )
    ).partition(TopicPartition("orders", 0))
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
    assert before.merge(
        PartitionChangeRecord(topic_id=ORDERS, partition_id=0, eligible_leader_replicas=[2])
    ) == attrs.evolve(before, partition_epoch=1, elr=(2,))


def test_a_replica_that_is_moved_away_has_no_log_directory_any_more() -> None:
    directories = [b"a" * 16, b"b" * 16, UNASSIGNED]
    before = orders(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, directories=directories))
    moved = before.apply(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, replicas=[2, 3]))
    after = partition_of(moved, "orders")
    assert (after.directory(1), after.directory(2)) == (None, b"b" * 16)


def test_the_metadata_topic_id_is_an_id() -> None:
    assert len(METADATA_TOPIC_ID) == 16


def test_applying_changes_a_copy_and_shares_the_rest() -> None:
    before = orders(TopicRecord(name="payments", topic_id=PAYMENTS))
    after = before.apply(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, isr=[1, 2]))
    assert before.partition(TopicPartition("orders", 0)) != after.partition(
        TopicPartition("orders", 0)
    )
    assert after.topics["payments"] is before.topics["payments"]
    assert (before.offset, after.offset) == (2, 3)


@pytest.mark.parametrize(
    ("change", "leader_epoch", "partition_epoch"),
    [
        pytest.param(
            PartitionChangeRecord(topic_id=ORDERS, partition_id=0, isr=[1, 2]),
            0,
            1,
            id="an ISR alone keeps the leader epoch",
        ),
        pytest.param(
            PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=2),
            1,
            1,
            id="a leader bumps both",
        ),
        pytest.param(
            PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=-1),
            1,
            1,
            id="so does no leader",
        ),
        pytest.param(
            PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=1),
            1,
            1,
            id="and the same leader named again",
        ),
    ],
)
def test_epochs_of_a_changed_partition(
    change: PartitionChangeRecord, leader_epoch: int, partition_epoch: int
) -> None:
    partition = partition_of(orders(change), "orders")
    assert (partition.leader_epoch, partition.partition_epoch) == (leader_epoch, partition_epoch)


def test_a_registration_is_fenced_until_a_change_unfences_it() -> None:
    registered = image_of(REGISTERED)
    assert not registered.is_alive(1)
    assert registered.broker_epoch(1) is None
    alive = registered.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert alive.is_alive(1)
    assert alive.broker_epoch(1) == 7
    assert alive.may_join_isr(1)
    leaving = alive.apply(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1)
    )
    assert leaving.is_alive(1)
    assert not leaving.may_join_isr(1)
    gone = leaving.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert gone.broker(1) is None
    assert not gone.may_join_isr(1)


def test_a_registration_names_its_listeners() -> None:
    broker = image_of(REGISTERED).broker(1)
    assert isinstance(broker, BrokerRegistration)
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    assert broker.endpoint("SSL") is None


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=-1),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=7),
        TopicRecord(name="orders", topic_id=PAYMENTS),
        PartitionChangeRecord(topic_id=ORDERS, partition_id=5, leader=1),
        PartitionChangeRecord(topic_id=PAYMENTS, partition_id=0, leader=1),
        RemoveTopicRecord(topic_id=PAYMENTS),
        topic_config("payments", "a", "b"),
    ],
    ids=repr,
)
def test_a_record_that_fits_nothing_is_refused(record: MetadataRecord) -> None:
    with pytest.raises(MetadataError):
        orders(REGISTERED).apply(record)


def test_configs_are_set_and_taken_away() -> None:
    changed = orders(
        topic_config("orders", "a", "1"),
        topic_config("orders", "b", "2"),
    )
    assert changed.topics["orders"].configs == {"a": "1", "b": "2"}
    assert changed.apply(topic_config("orders", "a", None)).topics["orders"].configs == {"b": "2"}


def test_configs_of_one_broker_and_of_all_are_separate() -> None:
    before = image_of(
        broker_config("", "a", "1"),
        broker_config("2", "a", "2"),
    )
    assert before.broker_configs == {None: {"a": "1"}, 2: {"a": "2"}}
    after = before.apply(broker_config("2", "a", None))
    assert after.broker_configs == {None: {"a": "1"}}, "nothing set is nothing kept"
    assert delta_between(before, after).reconfigured_brokers == {2}
    assert delta_between(after, after.apply(NoOpRecord())).reconfigured_brokers == frozenset()
    assert before.broker_configs[2] == {"a": "2"}, "an image never changes"


def test_lookups_by_name_and_by_id() -> None:
    image = orders()
    assert image.topic_id("orders") == ORDERS
    assert image.topic_id("payments") is None
    assert image.topic_by_id(ORDERS) is image.topics["orders"]
    assert image.topic_by_id(PAYMENTS) is None
    assert image.partition(TopicPartition("payments", 0)) is None
    assert [each for each, _, _ in image.partitions()] == [TopicPartition("orders", 0)]
    assert (
        image.apply(
            ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=2000)
        ).next_producer_id
        == 2000
    )


def test_a_delta_contains_all_changes_and_nothing_else() -> None:
    second = PartitionRecord(
        topic_id=ORDERS,
        partition_id=1,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    old = orders(second)
    new = old.apply(PartitionChangeRecord(topic_id=ORDERS, partition_id=1, leader=-1)).apply(
        REGISTERED
    )
    delta = delta_between(old, new)
    assert delta.changed == {TopicPartition("orders", 1)}
    assert delta.brokers == {1}
    assert not delta.removed
    assert not delta.reconfigured
    assert delta_between(
        new,
        new.apply(topic_config("orders", "a", "b")),
    ).reconfigured == {"orders"}
    assert delta_between(MetadataImage(), new).changed == {
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
    }


def test_a_topic_created_again_is_both_removed_and_new() -> None:
    old = orders()
    new = old.apply_all(
        [
            RemoveTopicRecord(topic_id=ORDERS),
            TopicRecord(name="orders", topic_id=PAYMENTS),
            PartitionRecord(
                topic_id=PAYMENTS,
                partition_id=0,
                replicas=[2],
                isr=[2],
                leader=2,
                leader_epoch=0,
                partition_epoch=0,
            ),
        ],
        offset=4,
        leader_epoch=0,
    )
    delta = delta_between(old, new)
    assert delta.removed == {RemovedPartition(TopicPartition("orders", 0), ORDERS)}
    assert delta.changed == {TopicPartition("orders", 0)}
    assert (
        delta_between(new, new.apply(RemoveTopicRecord(topic_id=PAYMENTS))).changed == frozenset()
    )


def test_one_batch_and_single_records_lead_to_the_same_image() -> None:
    records: list[MetadataRecord] = [TOPIC, PARTITION, REGISTERED]
    one_by_one = MetadataImage(leader_epoch=0)
    for record in records:
        one_by_one = one_by_one.apply(record)
    assert one_by_one == image_of(*records)
    partition = one_by_one.partition(TopicPartition("orders", 0))
    assert partition == PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0)
