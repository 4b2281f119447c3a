"""What a client believes of its cluster: leader epochs only move forward."""

from hypothesis import given, settings, strategies as st

from replication.client.cluster_view import ClusterView, Node
from replication.errors import ErrorCode
from replication.wire.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.types import TopicPartition

TP = TopicPartition("t", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16


def answer(
    *,
    leader: int = 1,
    epoch: int = 5,
    topic_id: bytes = ID_A,
    error: int = 0,
    topic: str = "t",
    brokers: int = 3,
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, error_code=error
    )
    return MetadataResponse(
        cluster_id="c",
        brokers=[
            MetadataResponseBroker(node_id=each, host=f"b{each}", port=9092)
            for each in range(1, brokers + 1)
        ],
        topics=[MetadataResponseTopic(name=topic, topic_id=topic_id, partitions=[partition])],
    )


def test_an_older_epoch_changes_nothing() -> None:
    view = ClusterView()
    view.update(answer(leader=2, epoch=5))
    view.update(answer(leader=1, epoch=4))
    leader = view.leader(TP)
    assert (leader.node, leader.epoch) == (Node(2, "b2", 9092), 5)
    view.update(answer(leader=3, epoch=5))
    assert view.leader(TP).node == Node(3, "b3", 9092), "the same epoch may name another"


def test_a_topic_made_again_begins_its_epochs_anew() -> None:
    view = ClusterView()
    view.update(answer(leader=2, epoch=5))
    view.update(answer(leader=1, epoch=0, topic_id=ID_B))
    assert view.leader(TP).epoch == 0
    assert view.topic_id("t") == ID_B


def test_an_epoch_heard_of_in_passing_makes_ours_stale_until_metadata_has_it() -> None:
    view = ClusterView()
    assert not view.note_epoch(TP, 7), "of nothing known, nothing is stale"
    view.update(answer(epoch=5))
    assert not view.note_epoch(TP, 5)
    assert view.note_epoch(TP, 6)
    assert view.leader(TP).node is None
    assert view.leader(TP).epoch == 6
    view.update(answer(epoch=5))
    assert view.leader(TP).node is None, "an old answer does not mend it"
    view.update(answer(epoch=6))
    assert view.leader(TP).node == Node(1, "b1", 9092)


def test_a_leader_out_of_another_answer_counts_where_it_is_newer() -> None:
    view = ClusterView()
    view.update(answer(leader=1, epoch=5))
    assert view.update_leaders({TP: (2, 5)}) == []
    assert view.update_leaders({TP: (9, 6)}) == [], "nobody knows where that is"
    assert view.update_leaders({TP: (9, 6)}, [Node(9, "b9", 1)]) == [TP]
    assert view.leader(TP).node == Node(9, "b9", 1)
    assert view.leader(TP).epoch == 6
    assert view.update_leaders({TopicPartition("other", 0): (1, 1)}) == []


def test_a_retriable_error_is_requested_again() -> None:
    view = ClusterView()
    assert view.update(answer(error=ErrorCode.LEADER_NOT_AVAILABLE, leader=-1))
    assert view.leader(TP).node is None
    assert not view.update(answer())


def test_topics_that_are_no_longer_wanted_are_forgotten() -> None:
    view = ClusterView()
    view.update(answer(topic="t"))
    view.update(answer(topic="u"), retain=lambda topic: topic == "u")
    assert view.partitions_of("t") is None
    assert view.partitions_of("u") == [0]
    assert TP not in view._last_seen


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=20))
def test_the_epoch_of_one_topic_never_moves_back(steps: list[tuple[int, bool]]) -> None:
    view = ClusterView()
    newest = -1
    for epoch, by_metadata in steps:
        if by_metadata:
            view.update(answer(epoch=epoch))
            newest = max(newest, epoch)
        elif view.note_epoch(TP, epoch):
            newest = max(newest, epoch)
        assert view._last_seen.get(TP, 0) == max(newest, 0)
        assert view.partition(TP) is None or view.leader(TP).epoch == newest
