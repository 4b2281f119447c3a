"""The events that the nodes of a quorum report."""

from replication.errors import ErrorCode
from replication.events import MetadataApplied, PeerContradicted
from replication.metadata.rules.records import METADATA_PARTITION
from replication.observe.sentences import FAULT, kind, sentence
from replication.wire.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BegunPartition,
    BegunTopic,
)
from scenarios.world.world import World
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import played
from tests.replication.raft.running_quorum import IDS, create, join, name_of, quorum


@played
async def test_a_second_leader_of_an_epoch_is_reported_and_floods_no_log(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        right, wrong = (
            leader.config.node_id,
            next(each for each in IDS if each != leader.config.node_id),
        )
        epoch = leader.node.quorum.leader_epoch
        begun = BegunPartition(partition_index=0, leader_id=wrong, leader_epoch=epoch)
        request = BeginQuorumEpochRequest(
            cluster_id="a-quorum",
            topics=[BegunTopic(topic_name=METADATA_PARTITION.topic, partitions=[begun])],
        )
        client = Client(world.node("client"))
        for _ in range(50):
            answer = await client.ask(f"{name_of(right)}:9093", request)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        assert [each.left_out for each in contradictions(world)] == [0]
        await world.node("client").clock.sleep(10)
        await client.ask(f"{name_of(right)}:9093", request)
        first, second = contradictions(world)
        assert second.left_out == 49
        assert kind(first) == FAULT
        assert sentence(second) == (
            f"does not believe another controller: a peer says that {wrong} leads in epoch {epoch},"
            f" but this node is Leading in epoch {epoch} with leader {right};"
            " 49 more such claims before"
        )


def contradictions(world: World) -> list[PeerContradicted]:
    return [each.event for each in world.trace.entries if isinstance(each.event, PeerContradicted)]


@played
async def test_a_standby_reports_what_it_has_applied(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        assert await create(leader, "t") is ErrorCode.NONE
        await three.until_equal()
        applied = {
            each.node: each.event.offset
            for each in world.trace.entries
            if isinstance(each.event, MetadataApplied)
        }
        end = leader.log.committed_image.offset + 1
        standbys = [name_of(each) for each in IDS if each != leader.config.node_id]
        assert applied == dict.fromkeys(standbys, end)
