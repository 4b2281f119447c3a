"""The requests about transactions: from producers to coordinators, from coordinators to leaders, and
from administrators to both (KIP-98, KIP-664).

    AddPartitionsToTxn   AddOffsetsToTxn   EndTxn      the coordinator of the transactional id
    TxnOffsetCommit                                    the coordinator of the group
    WriteTxnMarkers                                    leaders of partitions
    DescribeTransactions   ListTransactions            coordinators
    DescribeProducers                                  leaders of partitions
"""

from collections.abc import Iterable, Mapping
from itertools import compress

import trio

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.topics import create_automatically
from replication.controller.rules.topic_names import fault_of
from replication.coordinator.rules import GROUP_METADATA_TOPIC, partition_for
from replication.errors import ErrorCode, KafkaError
from replication.groups.rules.consumer_group.patterns import InvalidPatternError, Pattern
from replication.net.pace import in_steps
from replication.server.guards.transactions import by_topic, not_attempted, partitions_of
from replication.server.server import RequestContext
from replication.steps import STEP, Steps, each_of
from replication.transactions.coordinator import TransactionShard
from replication.transactions.rules.transaction import TransactionState
from replication.wire.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replication.wire.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from replication.wire.describe_producers import (
    ActiveProducerState,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from replication.wire.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from replication.wire.end_txn import EndTxnRequest, EndTxnResponse
from replication.wire.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from replication.wire.metadata import INTERNAL_TOPICS
from replication.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.producers.snapshot import ProducerState
from storage.types import TopicPartition

MANY_TRANSACTIONS_SINCE = 4  # KIP-890
EPOCH_BUMPING_SINCE = 5
FENCING_HAS_A_NAME_SINCE = 2  # KIP-588


async def add_partitions_to_txn(
    node: BrokerNode, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version >= MANY_TRANSACTIONS_SINCE:
        results = []
        for number, each in enumerate(request.transactions, start=1):
            topics = await in_steps(by_topic(await _add(node, each)))
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=topics
                )
            )
            if number % STEP == 0:
                await trio.lowlevel.checkpoint()
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    outcome = await in_steps(
        not_attempted(node.metadata.image, request.v3_and_below_topics, denied=INTERNAL_TOPICS)
    ) or await _add(
        node,
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )
    errors = {each: _fenced_then(error, context.version) for each, error in outcome.items()}
    results_by_topic = await in_steps(by_topic(errors))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_by_topic)


async def _add(
    node: BrokerNode, asked: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    """Add all of the partitions, or none; answer in the order of the request."""
    if refused := await in_steps(not_attempted(node.metadata.image, asked.topics)):
        return refused
    named = await in_steps(partitions_of(asked.topics))
    outcome = await node.transactions.add_or_verify(
        asked.transactional_id,
        (asked.producer_id, asked.producer_epoch),
        partitions=frozenset(named),
        verify_only=asked.verify_only,
    )
    return {each: outcome[each] for each in named}


def _fenced_then(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error for a fenced producer; older clients expect INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and version < FENCING_HAS_A_NAME_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


async def add_offsets_to_txn(
    node: BrokerNode, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the partition of the group's offsets to the transaction."""
    await create_automatically(node, [GROUP_METADATA_TOPIC])
    topic = node.metadata.image.topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    number = partition_for(request.group_id, len(topic.partitions))
    try:
        await node.transactions.add_partitions(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            partitions=frozenset({TopicPartition(GROUP_METADATA_TOPIC, number)}),
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=_fenced_then(error.code, context.version))
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


async def end_txn(
    node: BrokerNode, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    bumps_epoch = context.version >= EPOCH_BUMPING_SINCE
    try:
        identity = await node.transactions.end(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=bumps_epoch,
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=_fenced_then(error.code, context.version))
    if not bumps_epoch:
        return EndTxnResponse(error_code=ErrorCode.NONE)
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


async def write_txn_markers(
    node: BrokerNode, _: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append the markers. One without a producer is UNKNOWN_SERVER_ERROR for all (KafkaApis)."""
    is_sound = all(each.producer_id >= 0 and each.producer_epoch >= 0 for each in request.markers)
    results: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        if results:
            await trio.lowlevel.checkpoint()
        errors: Mapping[TopicPartition, ErrorCode] = {}
        if is_sound:
            errors = await node.transactions.markers.writer.write(marker)
        topics = await in_steps(_written(marker, errors))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=results)


def _written(
    marker: WritableTxnMarker, errors: Mapping[TopicPartition, ErrorCode]
) -> Steps[list[WritableTxnMarkerTopicResult]]:
    topics = []
    for topic in marker.topics:
        answer = WritableTxnMarkerTopicResult(name=topic.name)
        topics.append(answer)
        for number in topic.partition_indexes:
            partition = TopicPartition(topic.name, number)
            error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            answer.partitions.append(
                WritableTxnMarkerPartitionResult(partition_index=number, error_code=error)
            )
            yield 1
        yield 1
    return topics


async def describe_transactions(
    node: BrokerNode, _: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    names = list(dict.fromkeys(request.transactional_ids))  # each once: one may have much to tell
    described = await in_steps(_each_described(node, names))
    return DescribeTransactionsResponse(transaction_states=described)


def _each_described(node: BrokerNode, names: Iterable[str]) -> Steps[list[DescribedTransaction]]:
    described = []
    for name in names:
        described.append(_described(node, name))
        yield 1 + sum(len(topic.partitions) for topic in described[-1].topics)
    return described


def _described(node: BrokerNode, transactional_id: str) -> DescribedTransaction:
    try:
        slot = node.transactions.serving(transactional_id).slots.get(transactional_id)
    except KafkaError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    if slot is None:
        return DescribedTransaction(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    current = slot.current
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(current.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=current.state.label,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.started_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        topics=[
            TransactionTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()
        ],
    )


async def list_transactions(
    node: BrokerNode, _: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    labels = {state.label for state in TransactionState}
    unknown = await in_steps(each_of(lambda each: each not in labels, request.state_filters))
    shards = [shard for _, shard in sorted(node.transactions.shards.items())]
    is_ready = all(shard.ready for shard in shards)
    listed = await in_steps(_listed(shards, request, node.clock.wall_ms()))
    if request.transactional_id_pattern:
        try:
            pattern = Pattern.compile(request.transactional_id_pattern)
        except InvalidPatternError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        listed = await node.offload(
            lambda: [each for each in listed if pattern.matches(each.transactional_id)]
        )
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE if is_ready else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        unknown_state_filters=list(compress(request.state_filters, unknown)),
        transaction_states=listed,
    )


def _listed(
    shards: Iterable[TransactionShard], request: ListTransactionsRequest, now_ms: int
) -> Steps[list[ListedTransaction]]:
    """Return the transactions that `request` asks for, by their ids; an empty filter lets all pass."""
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    listed = []
    for shard in shards:
        for name in sorted(shard.slots):
            yield 1
            slot = shard.slots.get(name)
            if slot is None:
                continue  # forgotten in a pause
            current, label = slot.current, slot.current.state.label
            lasts_ms = now_ms - current.started_ms if current.started_ms >= 0 else -1
            if (
                (not states or label in states)
                and (not producers or current.producer_id in producers)
                and (request.duration_filter < 0 or lasts_ms > request.duration_filter)
            ):
                listed.append(
                    ListedTransaction(
                        transactional_id=name,
                        producer_id=current.producer_id,
                        transaction_state=label,
                    )
                )
    return listed


async def describe_producers(
    node: BrokerNode, _: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=await in_steps(_producers_of(node, request)))


def _producers_of(
    node: BrokerNode, request: DescribeProducersRequest
) -> Steps[list[TopicResponse]]:
    """Describe each partition once, however often it is named: it may have many producers."""
    topics = []
    described: set[TopicPartition] = set()
    for topic in request.topics:
        answer = TopicResponse(name=topic.name)
        topics.append(answer)
        for number in topic.partition_indexes:
            partition = TopicPartition(topic.name, number)
            if partition not in described:
                described.add(partition)
                answer.partitions.append((yield from _producers(node, partition)))
            yield 1
        yield 1
    return topics


def _producers(node: BrokerNode, partition: TopicPartition) -> Steps[PartitionResponse]:
    if fault_of(partition.topic) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=partition.partition, error_code=error)
    try:
        log = node.replica_manager.hosted.get(partition).log
    except KafkaError as error:
        return PartitionResponse(partition_index=partition.partition, error_code=error.code)
    known = log.producers.producers
    producers = yield from each_of(_producer, [known[each] for each in sorted(known)])
    return PartitionResponse(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        active_producers=producers,
    )


def _producer(state: ProducerState) -> ActiveProducerState:
    first = state.transaction_first_offset
    return ActiveProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=-1 if first is None else first,
    )
