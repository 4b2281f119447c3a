"""The commands that read, and those that send one request by hand.

    read t-0                                what a consumer receives now, from the beginning
    poll t-0 (or: poll t-0 &)               what the same consumer receives next
    poll t-0 rack=r1                        from the replica that the leader prefers for that rack
                                            (KIP-392)

With the epochs that the story chooses:

    fetch t-0 at=3                          from the leader, as a consumer without epochs
    fetch t-0 at=3 from=b3 rack=r2          from that broker, as a consumer in that rack (KIP-392)
    fetch t-0 at=3 epoch=2 last=1           current leader epoch 2, last fetched epoch 1 (KIP-320)
    fetch t-0 at=3 as=b2                    with the replica id of that follower
    sessions t-0 8 (or: sessions t-0 8 &)   from so many consumers, each asking for a session
    epoch-end t-0 1 from=b1 epoch=2         where epoch 1 ends in its log (OffsetForLeaderEpoch)

The records of such a fetch are shown and not kept.

Offsets of a group without members (OffsetCommit, OffsetFetch), where `__consumer_offsets` has one
partition:

    commit g t-0 3                          commit offset 3; from=b1 names the broker to ask
    commit g t-0 3 &                        the same, without waiting for the answer
    commits                                 the answers to those, once all are there
    committed g t-0                         what the coordinator says that the group has committed
"""

from functools import partial
from typing import Any

from replication.coordinator.rules import GROUP_METADATA_TOPIC
from replication.errors import ErrorCode
from replication.net.rpc import RpcClient
from replication.wire.fetch import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from scenarios.story.arguments import (
    Options,
    Words,
    background,
    broker_id_of,
    exactly,
    number_of,
    partition_of,
    refuse_any,
)
from scenarios.story.client_stage import ClientStage
from scenarios.world.client import FETCH_VERSION, READ_BYTES, closing, records_of
from scenarios.world.cluster import BROKER_PORT, node_name
from scenarios.world.probes import EPOCH_END_VERSION
from storage.types import TopicPartition


async def read(stage: ClientStage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    records = await stage.client.read(partition_of(where))
    return [" ".join(["read:", *(record.value for record in records)])]


async def poll(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    rack = options.pop("rack", "")
    (where,) = exactly(words, 1, options)
    consumer = partial(stage.consumer(partition_of(where)).poll, rack=rack)
    if in_background:
        stage.ask_in_background(consumer)
        return []
    return [
        " ".join(["polled:", *(value for _, value in await stage.retry_until_answered(consumer))])
    ]


OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION = 9, 9
GROUP_OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
ASKING_MS, COMMITTING_MS = 2_000, 60_000


async def fetch(stage: ClientStage, words: Words, options: Options) -> list[str]:
    replica = broker_id_of(stage, options.pop("as")) if "as" in options else CONSUMER_REPLICA_ID
    position, last = _number(options, "at", 0), _number(options, "last", -1)
    rack = options.pop("rack", "")
    broker, epoch = _whom(stage, options)
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    wanted = FetchPartition(
        partition=partition.partition,
        current_leader_epoch=epoch,
        fetch_offset=position,
        last_fetched_epoch=last,
        partition_max_bytes=READ_BYTES,
    )
    request = FetchRequest(
        replica_id=replica,
        rack_id=rack,
        topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
    )
    response = await _ask(stage, partition, broker, request, FETCH_VERSION)
    return [_fetched(response.responses[0].partitions[0], position)]


def _fetched(data: PartitionData, position: int) -> str:
    if data.error_code != ErrorCode.NONE:
        return f"refused, {ErrorCode.of(data.error_code).name}"
    if data.diverging_epoch.epoch >= 0:
        diverging = data.diverging_epoch
        return f"diverges: epoch {diverging.epoch} ends at {diverging.end_offset}"
    if data.preferred_read_replica >= 0:
        return f"{node_name(data.preferred_read_replica)} is to be asked"
    values = [record.value for record in records_of(data) if record.offset >= position]
    return " ".join(["fetched:", *values])


async def sessions(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    where, count = exactly(words, 2, options)
    ask = partial(_ask_for_sessions, stage, partition_of(where), number_of(count))
    if in_background:
        stage.ask_in_background(ask)
        return []
    given = await ask()
    return [f"{len(given) - given.count(0)} of {len(given)} have a session"]


async def _ask_for_sessions(stage: ClientStage, partition: TopicPartition, count: int) -> list[int]:
    wanted = FetchPartition(partition=partition.partition, partition_max_bytes=READ_BYTES)
    request = FetchRequest(
        topics=[FetchTopic(topic=partition.topic, partitions=[wanted])], session_epoch=0
    )
    return [
        (await _ask(stage, partition, None, request, FETCH_VERSION)).session_id
        for _ in range(count)
    ]


async def epoch_end(stage: ClientStage, words: Words, options: Options) -> list[str]:
    broker, current = _whom(stage, options)
    where, epoch = exactly(words, 2, options)
    partition = partition_of(where)
    wanted = OffsetForLeaderPartition(
        partition=partition.partition, current_leader_epoch=current, leader_epoch=number_of(epoch)
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])],
    )
    response = await _ask(stage, partition, broker, request, EPOCH_END_VERSION)
    return [_ended(response.topics[0].partitions[0])]


async def commit(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    broker, _ = _whom(stage, options)
    group, where, offset = exactly(words, 3, options)
    partition = partition_of(where)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitTopic(
                name=partition.topic,
                partitions=[
                    OffsetCommitPartition(
                        partition_index=partition.partition, committed_offset=number_of(offset)
                    )
                ],
            )
        ],
    )
    place = len(stage.commits)
    stage.commits.append(None)

    async def ask() -> None:
        async with closing(await _connect(stage, GROUP_OFFSETS, broker)) as client:
            response = await client.call(
                request, version=OFFSET_COMMIT_VERSION, timeout_ms=COMMITTING_MS
            )
        error = ErrorCode.of(response.topics[0].partitions[0].error_code)
        said = "committed" if error is ErrorCode.NONE else f"refused, {error.name}"
        stage.commits[place] = f"{group} {where} {offset}: {said}"

    if in_background:
        stage.ask_in_background(ask)
        return []
    await ask()
    return await commits(stage, [], {})


async def commits(stage: ClientStage, words: Words, options: Options) -> list[str]:
    refuse_any(words, options)
    await stage.cluster.until(lambda: None not in stage.commits, what="each commit is answered")
    answers, stage.commits = stage.commits, []
    return [answer for answer in answers if answer is not None]


async def committed(stage: ClientStage, words: Words, options: Options) -> list[str]:
    broker, _ = _whom(stage, options)
    group, where = exactly(words, 2, options)
    partition = partition_of(where)
    topic = OffsetFetchTopic(name=partition.topic, partition_indexes=[partition.partition])
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=group, topics=[topic])])
    response = await _ask(stage, GROUP_OFFSETS, broker, request, OFFSET_FETCH_VERSION)
    (found,) = response.groups
    if found.error_code != ErrorCode.NONE:
        return [f"refused, {ErrorCode.of(found.error_code).name}"]
    return [f"{group} {where}: {found.topics[0].partitions[0].committed_offset}"]


def _ended(answer: EpochEndOffset) -> str:
    if answer.error_code != ErrorCode.NONE:
        return f"refused, {ErrorCode.of(answer.error_code).name}"
    return f"epoch {answer.leader_epoch} ends at {answer.end_offset}"


def _whom(stage: ClientStage, options: Options) -> tuple[str | None, int]:
    """Return the broker to ask, None for the leader, and the leader epoch that the request carries."""
    broker = options.pop("from", None)
    if broker is not None:
        broker_id_of(stage, broker)
    return broker, _number(options, "epoch", -1)


def _number(options: Options, key: str, default: int) -> int:
    return number_of(options.pop(key)) if key in options else default


async def _ask(
    stage: ClientStage, partition: TopicPartition, broker: str | None, request: object, version: int
) -> Any:
    async with closing(await _connect(stage, partition, broker)) as client:
        return await client.call(request, version=version, timeout_ms=ASKING_MS)


async def _connect(stage: ClientStage, partition: TopicPartition, broker: str | None) -> RpcClient:
    """Connect to the named broker, or to the leader of the partition."""
    return await stage.client.connect(partition, None if broker is None else (broker, BROKER_PORT))
