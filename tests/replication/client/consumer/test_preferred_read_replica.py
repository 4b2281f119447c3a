"""The leader, the replica that it names, and who leads after it (KIP-392, KIP-951)."""

import pytest

from replication.errors import ErrorCode
from replication.wire.metadata import LeaderIdAndEpoch, NodeEndpoint
from storage.types import TopicPartition
from tests.replication.client.consumer.fetching import T0, T1, Rig, data, reading, values


@pytest.mark.conformance("CF-69")
def test_the_next_fetch_goes_to_the_replica_that_the_leader_names() -> None:
    rig = reading(T0, rack="r2")
    sent = rig.fetch({T0: data(preferred_read_replica=2)})
    assert (sent.node.id, sent.request.rack_id) == (1, "r2")
    rig.collect()
    [sent] = rig.send()
    assert sent.node.id == 2
    rig.answer(sent, {T0: data(values(0, 2), preferred_read_replica=9)})
    assert rig.collect() == {T0: [0, 1, 2]}
    [sent] = rig.send()
    assert sent.node.id == 1, "nobody knows a broker 9"
    assert rig.metadata_requested == 1
    assert rig.subscriptions.preferred_read_replica(T0, rig.now_ms) is None


def test_a_preferred_replica_is_preferred_for_as_long_as_metadata_is_good() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(preferred_read_replica=2)})
    rig.collect()
    rig.now_ms = 200_000
    rig.fetch({T0: data(preferred_read_replica=2)})
    rig.collect()
    assert rig.subscriptions.preferred_read_replica(T0, 300_000) == 2
    assert rig.subscriptions.preferred_read_replica(T0, 300_001) is None, (
        "a repeated preference lasts no longer"
    )


def prefer(rig: Rig, *partitions: TopicPartition) -> None:
    rig.assign(*partitions, at=0)
    rig.fetch({tp: data(preferred_read_replica=2) for tp in partitions})
    rig.collect()
    for tp in partitions:
        assert rig.subscriptions.preferred_read_replica(tp, 0) == 2


@pytest.mark.conformance("CF-71")
def test_a_connection_lost_after_the_partition_is_harmless() -> None:
    rig = Rig()
    prefer(rig, T0)
    [sent] = rig.send()
    rig.assign(T1, at=0)
    rig.requests.on_failure(sent.node)
    assert rig.subscriptions.preferred_read_replica(T0, 0) is None
    rig.assign(T0, at=0)
    prefer(rig, T0)
    [sent] = rig.send()
    rig.requests.on_failure(sent.node)
    assert rig.subscriptions.preferred_read_replica(T0, 0) is None, "and back to the leader"


@pytest.mark.conformance("CF-72")
def test_an_error_sends_us_back_to_the_leader_whatever_it_names() -> None:
    rig = Rig()
    prefer(rig, T0)
    rig.fetch({T0: data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, preferred_read_replica=2)})
    assert rig.collect() == {}
    assert rig.subscriptions.preferred_read_replica(T0, 0) is None


LEADERSHIP = [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.conformance("CF-67")
@pytest.mark.parametrize("error", LEADERSHIP)
def test_a_leader_that_left_without_naming_another(error: ErrorCode) -> None:
    rig = Rig()
    prefer(rig, T0, T1)
    rig.fetch({T0: data(error=error)})
    rig.collect()
    assert rig.view.leader(T0).epoch == 1
    assert rig.metadata_requested == 1
    assert rig.subscriptions.preferred_read_replica(T0, 0) is None
    assert rig.subscriptions.preferred_read_replica(T1, 0) == 2
    assert rig.subscriptions.is_fetchable(T0)
    rig.now_ms += 100
    sent = [each for each in rig.send() if T0 in each.data.session_partitions]
    assert [each.node.id for each in sent] == [1], "still fetched, from where it was"


@pytest.mark.conformance("CF-68")
@pytest.mark.parametrize("error", LEADERSHIP)
def test_a_leader_that_names_its_successor_is_believed_at_once(error: ErrorCode) -> None:
    rig = reading(T0, T1)
    rig.fetch(
        {
            T0: data(error=error, current_leader=LeaderIdAndEpoch(leader_id=5, leader_epoch=9)),
            T1: data(values(0, 1)),
        },
        node_endpoints=[NodeEndpoint(node_id=5, host="b5", port=9092)],
    )
    assert rig.collect() == {T1: [0, 1]}
    leader = rig.view.leader(T0)
    assert leader.node is not None
    assert (leader.node.id, leader.node.host, leader.epoch) == (5, "b5", 9)
    position = rig.subscriptions.state(T0).position
    assert position is not None
    assert (position.offset, position.leader) == (0, leader)
    assert rig.metadata_requested == 1
    assert {each.node.id: each.offsets() for each in rig.send()} == {5: {"t-0": 0}, 1: {"t-1": 2}}
