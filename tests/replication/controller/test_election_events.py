"""Why there was an election, as the event says it: from the images before and after a decision."""

import pytest

from replication.controller.rules.events import events_of
from replication.events import LeaderElected
from replication.metadata.rules.image import MetadataImage
from replication.observe.sentences import REASONS, elected_because
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.replication.controller.images import ORDERS, after, registered

DIRECTORY, OTHER = (bytes([*bytes(15), each]) for each in (101, 102))


def changed(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=ORDERS, partition_id=0, **fields)  # type: ignore[arg-type]


def of_broker(broker_id: int, **fields: object) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=7,
        **fields,  # type: ignore[arg-type]
    )


def before(leader: int = 1) -> MetadataImage:
    """Return an image in which 1 leads a partition of 1, 2 and 3, and 4 has no replica."""
    partition = PartitionRecord(
        topic_id=ORDERS,
        partition_id=0,
        replicas=[2, 1, 3],
        isr=[1, 2, 3],
        leader=leader,
        leader_epoch=4,
        partition_epoch=4,
        directories=[DIRECTORY] * 3,
    )
    brokers = [registered(each) for each in (1, 2, 3, 4)]
    topic = TopicRecord(name="orders", topic_id=ORDERS)
    online = [of_broker(each, log_dirs=[DIRECTORY, OTHER]) for each in (1, 2, 3, 4)]
    return after(MetadataImage(), [*brokers, *online, topic, partition])


WHY: dict[str, list[MetadataRecord]] = {
    "leader fenced": [of_broker(1, fenced=1), changed(isr=[2, 3], leader=2)],
    "leader shuts down": [
        of_broker(1, in_controlled_shutdown=1),
        changed(isr=[2, 3], leader=2),
    ],
    "leader registered again": [registered(1, epoch=8), changed(isr=[2, 3], leader=2)],
    "leader unregistered": [
        UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
        changed(isr=[2, 3], leader=2),
    ],
    "leader moved away": [
        changed(replicas=[2, 3], isr=[2, 3], leader=2, directories=[DIRECTORY] * 2)
    ],
    "log directory of leader lost": [
        of_broker(1, log_dirs=[OTHER]),
        changed(isr=[2, 3], leader=2),
    ],
    "leader out of sync": [changed(isr=[2, 3], leader=2)],
    "preferred": [changed(leader=2)],
    "replicas changed": [
        changed(replicas=[2, 1], isr=[1, 2], leader=1, directories=[DIRECTORY] * 2)
    ],
    "leader epoch raised": [changed(leader=1)],
}


@pytest.mark.parametrize("reason", WHY)
def test_an_election_says_what_had_become_of_the_leader(reason: str) -> None:
    image = before()
    records = WHY[reason]
    events = events_of(records, image, after(image, records), cause="")
    (elected,) = [each for each in events if isinstance(each, LeaderElected)]
    assert (elected.reason, elected.previous_leader) == (reason, 1)
    sentence = elected_because(elected)
    assert sentence.startswith(REASONS[reason].format(leader=f"b{elected.leader}", previous="b1"))
    assert "the first live replica of the in-sync set leads" in sentence


def test_two_elections_of_one_decision_have_each_its_leader() -> None:
    image = before()
    records: list[MetadataRecord] = [
        registered(1, epoch=8),
        changed(isr=[2, 3], leader=2),
        changed(isr=[3], leader=3),
    ]
    events = events_of(records, image, after(image, records), cause="")
    elected = [each for each in events if isinstance(each, LeaderElected)]
    assert [(each.previous_leader, each.leader, each.leader_epoch) for each in elected] == [
        (1, 2, 5),
        (2, 3, 6),
    ]
    assert [each.isr for each in elected] == [(2, 3), (3,)]


def test_a_partition_that_had_no_leader_gets_one() -> None:
    image = before(NO_LEADER)
    records = [changed(leader=3)]
    (elected,) = events_of(records, image, after(image, records), cause="")
    assert isinstance(elected, LeaderElected)
    assert elected.reason == "no leader before"
    assert elected_because(elected).startswith("it had no leader, and b3 may lead again; ")


def test_every_reason_has_its_words() -> None:
    assert REASONS.keys() == {"created", "no leader before", *WHY}
