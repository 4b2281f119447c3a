"""Requests about everything that a broker has, to a broker that has much of it.

    FILLED    the requests, in the order in which they are sent: the last ones delete
    filled    an attacked cluster whose topic has many partitions, with many groups, transactional
              ids and producers, a consumer group of a tenth as many members, and a classic one of
              half as many

Partitions are created as any other. Groups, transactional ids and producers are put where the
broker keeps what it has read from its logs: a hundred thousand requests would take minutes.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import attrs

from replication.broker.broker import Broker
from replication.config import ConfigOperation
from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerMember,
    GroupChange,
)
from replication.groups.rules.group import Group, GroupState, Member, Protocol
from replication.groups.rules.offsets import CommittedOffset
from replication.transactions.rules.decisions import Slot, created
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from replication.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from replication.wire.consumer_group_heartbeat import (
    LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_groups import DescribeGroupsRequest
from replication.wire.describe_log_dirs import DescribeLogDirsRequest
from replication.wire.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from replication.wire.describe_topic_partitions import DescribeTopicPartitionsRequest
from replication.wire.describe_transactions import DescribeTransactionsRequest
from replication.wire.end_txn import EndTxnRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest
from replication.wire.list_groups import ListGroupsRequest
from replication.wire.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.list_transactions import ListTransactionsRequest
from replication.wire.metadata import MetadataRequest
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.records import Record, encode_batch
from storage.producers.snapshot import ProducerState
from storage.types import TopicPartition
from tests.replication.broker.clients import Client
from tests.replication.server.attacked import ADMIN, TOPIC, Attacked, Cost, attacked, frame_of
from tests.replication.server.hostile import create_partitions, names

READER, WRITER = "reader", "writer"
"""The group that has read every partition, and the transactional id that writes to all of them."""
CROWD, CLASSIC_CROWD = "crowd", "classic-crowd"
"""The groups with many members, of the new protocol and of the classic one."""
RANGE = Protocol("range", bytes(50))
LONG_MS = 600_000
EXPENSIVE = "(a?){1000}(b?){900}.*"
"""A regular expression that has nearly as many instructions as one may have."""


@attrs.frozen
class Filled(Attacked):
    """An attacked cluster with `partitions` of its topic, and `others` of everything else."""

    partitions: int
    others: int
    producer: tuple[int, int]
    """The producer id and epoch of `WRITER`."""

    @property
    def numbers(self) -> range:
        return range(self.partitions)


@attrs.frozen
class Request:
    """A request of `FILLED`; `version` is the newest, if None."""

    make: Callable[[Filled], object]
    version: int | None = None

    async def sent_to(self, stage: Filled, watch: Any) -> Cost:
        return await stage.send(frame_of(self.make(stage), self.version), watch)


@asynccontextmanager
async def filled(
    *, partitions: int, others: int, properties: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Filled]:
    """A cluster of one broker that has so much."""
    # What is counted or weighed takes long: meanwhile the broker is to stay in the cluster.
    async with attacked(properties={**properties, "broker.session.timeout.ms": "600000"}) as stage:
        growth = create_partitions(partitions, validate_only=False)
        growth.timeout_ms = 600_000
        await stage.send(frame_of(growth), nullcontext({}))
        cluster, broker = stage.cluster, stage.cluster.brokers[1]
        hosted = broker.replica_manager.hosted.online
        await cluster.until(lambda: len(hosted) >= partitions, what="every partition is led")
        client = Client(stage.seams(ADMIN))
        for key_type, key in ((GROUP, READER), (TRANSACTION, WRITER)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            await client.ask(stage.address, request)
        await cluster.until(
            lambda: _are_loaded(broker), what="the coordinators have read their logs"
        )
        given = await client.ask(
            stage.address,
            InitProducerIdRequest(transactional_id=WRITER, transaction_timeout_ms=60_000),
        )
        assert given.error_code == ErrorCode.NONE, given
        _fill(broker, partitions, others)
        yield Filled(
            cluster,
            sender=None,
            partitions=partitions,
            others=others,
            producer=(given.producer_id, given.producer_epoch),
        )


def _are_loaded(broker: Broker) -> bool:
    return all(
        led.shards and all(shard.ready for shard in led.shards.values())
        for led in (broker.groups, broker.transactions)
    )


def _fill(broker: Broker, partitions: int, count: int) -> None:
    now_ms = broker.seams.clock.wall_ms()
    partition = TopicPartition(TOPIC, 0)
    log = broker.replica_manager.hosted.get(partition).log
    for number, name in enumerate(names(count, "filled-%d"), start=1_000_000):
        group = broker.groups.serving(name).add(Group(name))
        group.offsets.put(
            partition, CommittedOffset(offset=0, commit_timestamp=now_ms), log_offset=0
        )
        slot = Slot(created(name, producer_id=number, timeout_ms=60_000, now_ms=now_ms))
        broker.transactions.serving(name).slots[name] = slot
        log.producers.producers[number] = ProducerState(number, last_timestamp=now_ms)
    for name in names(count, "consumers-%d"):
        _add_consumers(broker, name, ["member"])
    _add_consumers(broker, CROWD, names(partitions // 10, "member-%d"))
    _add_classic_crowd(broker, names(partitions // 2, "member-%d"))


def _add_consumers(broker: Broker, group_id: str, members: list[str]) -> None:
    """Add a group of the new protocol whose members have not been assigned anything yet."""
    change = GroupChange(ConsumerGroup(group_id))
    for each in members:
        member = ConsumerMember(member_id=each, topic_names=frozenset([TOPIC]))
        change.put(member.metadata_value(), each)
    hosted = broker.groups.serving(group_id).add(Group(group_id))
    hosted.consumers = change.group


def _add_classic_crowd(broker: Broker, members: list[str]) -> None:
    """Add a classic group that rebalances, and whose members have all joined again."""
    group = Group(
        CLASSIC_CROWD,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol_name=RANGE.name,
        generation=1,
    )
    hosted = broker.groups.serving(CLASSIC_CROWD).add(group)
    for each in members:
        group.add(
            Member(
                member_id=each,
                group_instance_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=LONG_MS,
                session_timeout_ms=LONG_MS,
                protocol_type="consumer",
                protocols=(RANGE,),
            )
        )
    hosted.machine.prepare_rebalance("there is a crowd", broker.groups.at)
    for number, member in enumerate(group.members.values(), start=1):
        member.join_ticket = -number  # of a connection that is closed


# The requests.


def fetch(stage: Filled, *, max_wait_ms: int = 0, session_epoch: int = -1) -> FetchRequest:
    asked = [
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in stage.numbers
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=TOPIC, partitions=asked)],
    )


def produce_everywhere(stage: Filled) -> ProduceRequest:
    batch = encode_batch([Record(timestamp=0, value=b"x")])
    sent = [PartitionProduceData(index=each, records=batch) for each in stage.numbers]
    topic = TopicProduceData(name=TOPIC, partition_data=sent)
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def list_offsets(stage: Filled) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=each, timestamp=LATEST, max_num_offsets=1 << 30)
        for each in stage.numbers
    ]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])


def epoch_ends(stage: Filled) -> OffsetForLeaderEpochRequest:
    asked = [OffsetForLeaderPartition(partition=each, leader_epoch=0) for each in stage.numbers]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=asked)])


def commit(stage: Filled) -> OffsetCommitRequest:
    offsets = [
        OffsetCommitPartition(partition_index=each, committed_offset=0, committed_metadata="")
        for each in stage.numbers
    ]
    topic = OffsetCommitTopic(name=TOPIC, partitions=offsets)
    return OffsetCommitRequest(group_id=READER, member_id="", topics=[topic])


def fetch_offsets(_: Filled) -> OffsetFetchRequest:
    group = OffsetFetchGroup(group_id=READER, topics=None)
    return OffsetFetchRequest(groups=[group], require_stable=True)


def delete_offsets(stage: Filled) -> OffsetDeleteRequest:
    partitions = [OffsetDeletePartition(partition_index=each) for each in stage.numbers]
    return OffsetDeleteRequest(
        group_id=READER, topics=[OffsetDeleteTopic(name=TOPIC, partitions=partitions)]
    )


def add_to_transaction(stage: Filled) -> AddPartitionsToTxnRequest:
    producer_id, producer_epoch = stage.producer
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=WRITER,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(stage.numbers))],
    )


def end_transaction(stage: Filled) -> EndTxnRequest:
    producer_id, producer_epoch = stage.producer
    return EndTxnRequest(
        transactional_id=WRITER,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=True,
    )


def describe_producers(_: Filled) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=[0])]
    )


def alter_default(_: Filled) -> IncrementalAlterConfigsRequest:
    """Change what every topic has unless it says otherwise."""
    change = IncrementalAlterableConfig(
        name="log.retention.ms", config_operation=ConfigOperation.SET, value="1000000"
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="", configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def delete_records(stage: Filled) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=each, offset=-1) for each in stage.numbers]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=30_000
    )


def join_consumers(
    group_id: str, *, topics: list[str] | None = None, pattern: str | None = None
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="newcomer",
        rebalance_timeout_ms=LONG_MS,
        subscribed_topic_names=topics,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )


def join_classic(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        group_instance_id="newcomer",
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name=RANGE.name, metadata=RANGE.metadata)],
    )


FILLED: dict[str, Request] = {
    "Produce to every partition": Request(produce_everywhere),
    "Fetch every partition": Request(fetch, version=12),  # the last version with names
    "Fetch every partition, waiting": Request(
        lambda stage: fetch(stage, max_wait_ms=50), version=12
    ),
    "Fetch every partition, in a session": Request(
        lambda stage: fetch(stage, session_epoch=0), version=12
    ),
    "ListOffsets of every partition": Request(list_offsets),
    "ListOffsets 0 of every partition": Request(list_offsets, version=0),
    "OffsetForLeaderEpoch of every partition": Request(epoch_ends),
    "Metadata of every topic": Request(lambda _: MetadataRequest(topics=None)),
    "DescribeTopicPartitions of every topic": Request(lambda _: DescribeTopicPartitionsRequest()),
    "DescribeLogDirs of every partition": Request(lambda _: DescribeLogDirsRequest(topics=None)),
    "OffsetCommit of every partition": Request(commit),
    "OffsetFetch of all offsets": Request(fetch_offsets),
    "OffsetDelete of all offsets": Request(delete_offsets),
    "ListGroups": Request(lambda _: ListGroupsRequest()),
    "DescribeGroups of every group": Request(
        lambda stage: DescribeGroupsRequest(groups=names(stage.others, "filled-%d"))
    ),
    "ConsumerGroupHeartbeat with many names": Request(
        lambda stage: join_consumers("readers", topics=names(2 * stage.others))
    ),
    "ConsumerGroupHeartbeat with a long pattern": Request(
        lambda _: join_consumers("readers-by-pattern", pattern=EXPENSIVE)
    ),
    "ConsumerGroupHeartbeat that assigns a crowd": Request(
        lambda _: join_consumers(CROWD, topics=[TOPIC])
    ),
    "ConsumerGroupDescribe of every group": Request(
        lambda stage: ConsumerGroupDescribeRequest(
            group_ids=[CROWD, *names(stage.others, "consumers-%d")]
        )
    ),
    "JoinGroup that completes a crowd": Request(lambda _: join_classic(CLASSIC_CROWD)),
    "ConsumerGroupHeartbeat that upgrades a crowd": Request(
        lambda _: join_consumers(CLASSIC_CROWD, topics=[TOPIC])
    ),
    "ConsumerGroupHeartbeat that downgrades a crowd": Request(
        lambda _: ConsumerGroupHeartbeatRequest(
            group_id=CLASSIC_CROWD, member_id="newcomer", member_epoch=LEAVE_EPOCH
        )
    ),
    "JoinGroup to a crowd of consumers": Request(lambda _: join_classic(CROWD)),
    "AddPartitionsToTxn of every partition": Request(add_to_transaction, version=3),
    "DescribeTransactions of every partition": Request(
        lambda _: DescribeTransactionsRequest(transactional_ids=[WRITER])
    ),
    "EndTxn with every partition": Request(end_transaction, version=3),
    "ListTransactions": Request(lambda _: ListTransactionsRequest()),
    "DescribeProducers of one partition": Request(describe_producers),
    "IncrementalAlterConfigs of every broker": Request(alter_default),
    "DeleteRecords of every partition": Request(delete_records),
    "DeleteGroups of every group": Request(
        lambda stage: DeleteGroupsRequest(groups_names=names(stage.others, "filled-%d"))
    ),
    "DeleteTopics with every partition": Request(
        lambda _: DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=60_000)
    ),
}
