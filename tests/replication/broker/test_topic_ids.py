"""The newest versions of Produce and of the requests for offsets, which name topics by their ids."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from replication.client.admin import Operation, ResourceType
from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from scenarios.world.world import World
from storage.batch.records import Record, encode_batch
from tests.replication.broker.members import Member
from tests.replication.broker.stage import Stage, played_in
from tests.replication.broker.test_kafkas_answers import begun
from tests.replication.groups.test_groups import reading
from tests.replication.server.test_acls import allow, asking, governed, make

NOBODY = b"0123456789abcdef"
OTHER = b"fedcba9876543210"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_ID
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def produced(*topic_ids: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = PartitionProduceData(
        index=partition, records=encode_batch([Record(timestamp=5, value=b"v")])
    )
    topics = [
        TopicProduceData(topic_id=each, partition_data=[attrs.evolve(data)]) for each in topic_ids
    ]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


def committed(*topic_ids: bytes, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitTopic(topic_id=each, partitions=[partition]) for each in topic_ids]
    return OffsetCommitRequest(group_id=group, topics=topics)


def fetched(*topic_ids: bytes) -> OffsetFetchRequest:
    topics = [OffsetFetchTopic(topic_id=each, partition_indexes=[0]) for each in topic_ids]
    return OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=topics or None)])


def errors(topics: Any, array: str = "partitions") -> dict[bytes, list[int]]:
    assert {each.name for each in topics} == {""}, "there are no names on the wire"
    return {each.topic_id: [one.error_code for one in getattr(each, array)] for each in topics}


@asynccontextmanager
async def there(world: World) -> AsyncIterator[tuple[Stage, bytes]]:
    """A broker with the topic `t`, the id of that topic, and a coordinator for the group `g`."""
    async with reading(world) as stage:
        await Member(stage).coordinator()
        yield stage, stage.cluster.image.topics["t"].topic_id


@played_in(there)
async def test_records_are_appended_by_topic_id(it: tuple[Stage, bytes]) -> None:
    stage, topic_id = it
    address = stage.address(1)
    answer = await stage.client.ask(address, produced(NOBODY, topic_id, OTHER), version=13)
    assert errors(answer.responses, "partition_responses") == {
        topic_id: [ErrorCode.NONE],
        NOBODY: [UNKNOWN],
        OTHER: [UNKNOWN],
    }
    offsets = {each.topic_id: each.partition_responses[0].base_offset for each in answer.responses}
    assert offsets == {topic_id: 0, NOBODY: -1, OTHER: -1}
    answer = await stage.client.ask(address, produced(topic_id, partition=99), version=13)
    found = errors(answer.responses, "partition_responses")
    assert found == {topic_id: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    answer = await stage.client.ask(address, produced(NOBODY), version=13)
    assert errors(answer.responses, "partition_responses") == {NOBODY: [UNKNOWN]}


@played_in(there)
async def test_an_unknown_id_without_acks_ends_the_connection(it: tuple[Stage, bytes]) -> None:
    stage, topic_id = it
    request = produced(NOBODY, topic_id, acks=0)
    async with stage.client.connected(stage.address(1)) as client:
        with pytest.raises(PeerUnavailableError):
            await client.call(request, version=13, timeout_ms=5000)
    assert (await stage.client.fetch(stage.address(1), topic_id)).high_watermark == 1


@played_in(there)
async def test_offsets_are_committed_and_returned_by_topic_id(it: tuple[Stage, bytes]) -> None:
    stage, topic_id = it
    address = stage.address(1)
    answer = await stage.client.ask(address, committed(NOBODY, topic_id, OTHER), version=10)
    assert errors(answer.topics) == {
        topic_id: [ErrorCode.NONE],
        NOBODY: [UNKNOWN],
        OTHER: [UNKNOWN],
    }
    answer = await stage.client.ask(address, fetched(NOBODY, topic_id), version=10)
    (group,) = answer.groups
    assert errors(group.topics) == {topic_id: [ErrorCode.NONE], NOBODY: [UNKNOWN]}
    offsets = {each.topic_id: each.partitions[0].committed_offset for each in group.topics}
    assert offsets == {topic_id: 3, NOBODY: -1}
    (group,) = (await stage.client.ask(address, fetched(), version=10)).groups
    assert errors(group.topics) == {topic_id: [ErrorCode.NONE]}, "all that the group has"
    (group,) = (await stage.client.ask(address, fetched(), version=9)).groups
    assert [each.name for each in group.topics] == ["t"]


@played_in(reading)
async def test_a_group_that_fails_answers_no_topic(stage: Stage) -> None:
    request = fetched(NOBODY, stage.cluster.image.topics["t"].topic_id)
    (group,) = (await stage.client.ask(stage.address(1), request, version=10)).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR
    assert group.topics == []


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)],
)
@played_in(begun)
async def test_a_transaction_commits_offsets_by_topic_id(
    it: tuple[Stage, Any], version: int, error: ErrorCode
) -> None:
    stage, producer = it
    await Member(stage).coordinator()
    topic_id = stage.cluster.image.topics["t"].topic_id
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    ids = [topic_id] if version < 6 else [topic_id, NOBODY]
    topics = [
        TxnOffsetCommitRequestTopic(name="t", topic_id=each, partitions=[partition]) for each in ids
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
    )
    of_member = attrs.evolve(request, member_id="m", generation_id=4)
    answer = await stage.client.ask(stage.address(1), of_member, version=version)
    assert answer.topics[0].partitions[0].error_code == error
    answer = await stage.client.ask(stage.address(1), request, version=version)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    if version >= 6:
        assert errors(answer.topics) == {topic_id: [ErrorCode.NONE], NOBODY: [UNKNOWN]}


async def test_the_rights_to_a_topic_are_those_of_its_name() -> None:
    async with governed() as (cluster, admin):
        group = allow(Operation.READ, "g", kind=ResourceType.GROUP)
        await make(
            cluster, admin, allow(Operation.WRITE, "open"), allow(Operation.READ, "open"), group
        )
        alice, address = asking("alice", "a"), cluster.bootstrap_list[0]
        ids = [cluster.image.topics[each].topic_id for each in ("open", "shut")] + [NOBODY]
        wanted = dict(zip(ids, ([ErrorCode.NONE], [DENIED], [UNKNOWN]), strict=True))
        answer = await alice.ask(address, produced(*ids), version=13)
        assert errors(answer.responses, "partition_responses") == wanted
        coordinator = FindCoordinatorRequest(coordinator_keys=["g"])
        for _ in range(1000):
            await asking("admin", "top").ask(address, coordinator)
            answer = await alice.ask(address, committed(*ids), version=10)
            if errors(answer.topics)[ids[0]] == [ErrorCode.NONE]:
                break
        assert errors(answer.topics) == wanted
        (group,) = (await alice.ask(address, fetched(*ids), version=10)).groups
        assert errors(group.topics) == wanted
        (group,) = (await alice.ask(address, fetched(), version=10)).groups
        assert errors(group.topics) == {ids[0]: [ErrorCode.NONE]}
