"""Produce: the request that appends records; the answer has their offsets.

Bytes that are not exactly one batch of version 2 are refused here, as in
ProduceRequest.validateRecords; the log checks the batch itself. A request with acks=0 has no
answer, so an error in it closes the connection (KafkaApis).

With acks=all the request is answered later (`replication.server.answers`): its connection appends
the next request while the followers of this one fetch.

A batch that would open a transaction is verified first (KIP-890): `TransactionVerification`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.view import View
from replication.errors import ErrorCode, KafkaError
from replication.net.pace import in_steps
from replication.replica_manager import (
    ProduceResult,
    TransactionalBatches,
    refusals,
    support_of_produce,
    the_one_producer,
)
from replication.replica_manager.produce import NO_GUARDS, Appended
from replication.server.answers import Later, MakeResponse
from replication.server.guards.records import has_transactional_records
from replication.server.server import CloseConnectionError, RequestContext
from replication.steps import STEP, Steps, at_once, each_of
from replication.wire.codec import FEW_ITEMS
from replication.wire.metadata import NO_CURRENT_LEADER, LeaderIdAndEpoch, NodeEndpoint
from replication.wire.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from storage.batch.compression import Codec
from storage.batch.record_batch import (
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    read_header,
)
from storage.errors import StorageError, UnsupportedCompressionTypeError
from storage.producers.verification import VerificationGuard
from storage.types import TopicPartition

LEAST_LENGTH = 14  # of a record of magic 0
ZSTD_SINCE = 7  # KIP-110
LEADER_HINTS_SINCE = 10  # KIP-951
ERRORS_NAMED = 16
"""The most errors of one request that the reason for closing its connection names."""


def _refused(error: ErrorCode, message: str) -> ProduceResult:
    return ProduceResult(error=error, error_message=message)


_LACKS_ID = _refused(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "a transactional batch without a transactional id",
)
_NAMED_TWICE = _refused(ErrorCode.INVALID_REQUEST, "partition named twice")
_UNKNOWN = _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
_NO_BATCH = _refused(ErrorCode.INVALID_RECORD, "no record batch")


async def produce(
    node: BrokerNode, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later | None:
    entries, results = await in_steps(_sorted_out(node, context, request))
    if entries:
        guards = NO_GUARDS
        if request.transactional_id is not None:
            refused, guards = await _verify(node, context, request.transactional_id, entries)
            results |= refused
            entries = {each: entry for each, entry in entries.items() if each not in refused}
        produce_path = node.replica_manager.produce
        appended = await produce_path.append_here(
            entries, required_acks=request.acks, guards=guards
        )
        items = len(request.topic_data) + len(results) + len(appended.results)
        if appended.required and items <= FEW_ITEMS:
            appended.results |= results
            return _answer_later(node, context, request, appended)
        await produce_path.wait_for_followers(appended, timeout_ms=request.timeout_ms)
        results |= appended.results
    if request.acks == 0:
        await in_steps(_hang_up_on_error(results))
        return None
    return await in_steps(_response(node, context, request, results))


def _answer_later(
    node: BrokerNode, context: RequestContext, request: ProduceRequest, appended: Appended
) -> Later:
    """Return the answer that is made when the followers have what was `appended`."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None  # they lie in memory that the next request overwrites

    return Later(partial(_start_wait, node, context, request, appended))


def _start_wait(
    node: BrokerNode,
    context: RequestContext,
    request: ProduceRequest,
    appended: Appended,
    respond: Callable[[MakeResponse], object],
) -> Callable[[], object]:
    return node.replica_manager.produce.call_when_followed(
        appended,
        timeout_ms=request.timeout_ms,
        done=lambda: respond(lambda: at_once(_response(node, context, request, appended.results))),
    )


def _sorted_out(
    node: BrokerNode, context: RequestContext, request: ProduceRequest
) -> Steps[tuple[dict[TopicPartition, memoryview], dict[TopicPartition, ProduceResult]]]:
    """Return the records to append, and the answers to what is refused before that."""
    entries: dict[TopicPartition, memoryview] = {}
    results: dict[TopicPartition, ProduceResult] = {}
    lacks_id = request.transactional_id is None and (yield from has_transactional_records(request))
    due = 0
    for topic in request.topic_data:
        due += 1
        for data in topic.partition_data:
            if (due := due + 1) >= STEP:
                yield due
                due = 0
            partition = TopicPartition(topic.name, data.index)
            assert isinstance(data.records, memoryview | None), (
                "a request has its records in memory"
            )
            if lacks_id:
                results[partition] = _LACKS_ID
            elif partition in entries or partition in results:
                results[partition] = _NAMED_TWICE
                entries.pop(partition, None)
            elif _is_unknown(node, partition):
                results[partition] = _UNKNOWN
            elif data.records is None:
                results[partition] = _NO_BATCH
            elif (refusal := _refusal(data.records, context.version)) is not None:
                results[partition] = refusal
            else:
                entries[partition] = data.records
        if due >= STEP:
            yield due
            due = 0
    return entries, results


def _is_unknown(node: BrokerNode, partition: TopicPartition) -> bool:
    """Return whether `partition` is neither in the metadata nor among this broker's replicas."""
    if node.metadata.image.partition(partition) is not None:
        return False
    try:
        node.replica_manager.hosted.get(partition)
    except KafkaError:
        return True
    return False


async def _verify(
    node: BrokerNode,
    context: RequestContext,
    transactional_id: str,
    entries: Mapping[TopicPartition, memoryview],
) -> tuple[Mapping[TopicPartition, ProduceResult], Mapping[TopicPartition, VerificationGuard]]:
    """Return the answers for what may not be appended, and the guards of the rest."""
    found = await in_steps(each_of(read_header, list(entries.values())))
    headers = dict(zip(entries, found, strict=True))
    opening = {each: header for each, header in headers.items() if header.is_transactional}
    try:
        producer = the_one_producer(
            (header.producer_id, header.producer_epoch) for header in opening.values()
        )
    except KafkaError as error:
        return dict.fromkeys(entries, _refused(error.code, str(error))), {}
    if producer is None:
        return {}, {}
    batches = TransactionalBatches(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        sequences={each: header.base_sequence for each, header in opening.items()},
    )
    support = support_of_produce(context.version)
    verified = await node.verification.verify(batches, support)
    return refusals(verified.errors, support), verified.guards


def _refusal(records: memoryview, version: int) -> ProduceResult | None:
    """Return the error in a partition's bytes that their header shows; None if there is none."""
    length = int.from_bytes(records[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if len(records) >= LENGTH_OVERHEAD and length < LEAST_LENGTH:
        message = f"a batch length of {length}, less than any format has"
        return _refused(ErrorCode.CORRUPT_MESSAGE, message)
    if len(records) < HEADER_SIZE:
        return _refused(ErrorCode.INVALID_RECORD, "no whole record batch")
    if records[MAGIC_AT] < MAGIC:
        message = f"a batch of magic {records[MAGIC_AT]}; since Produce 3 it is {MAGIC}"
        return _refused(ErrorCode.INVALID_RECORD, message)
    try:
        header = read_header(records)
        codec = header.codec
    except UnsupportedCompressionTypeError as error:
        return _refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    except StorageError as error:
        return _refused(ErrorCode.CORRUPT_MESSAGE, str(error))
    if header.size != len(records):
        return _refused(ErrorCode.INVALID_RECORD, "not exactly one record batch")
    if codec is Codec.ZSTD and version < ZSTD_SINCE:
        return _refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7")
    return None


def _hang_up_on_error(results: Mapping[TopicPartition, ProduceResult]) -> Steps[None]:
    errors = []
    count = 0
    for partition, result in results.items():
        if result.error != ErrorCode.NONE:
            count += 1
            if count <= ERRORS_NAMED:
                errors.append(f"{partition}: {result.error.name}")
        yield 1
    if count > ERRORS_NAMED:
        errors.append(f"{count - ERRORS_NAMED} more")
    if errors:
        raise CloseConnectionError(f"a produce with acks=0 failed: {', '.join(errors)}")


def _response(
    node: BrokerNode,
    context: RequestContext,
    request: ProduceRequest,
    results: Mapping[TopicPartition, ProduceResult],
) -> Steps[ProduceResponse]:
    view = View(node.metadata.image, context.listener)
    response = ProduceResponse()
    leaders: set[int] = set()
    due = 0
    for topic in request.topic_data:
        if (due := due + 1) >= STEP:
            yield due
            due = 0
        if not topic.partition_data:
            continue
        answer = TopicProduceResponse(name=topic.name)
        response.responses.append(answer)
        for data in topic.partition_data:
            partition = TopicPartition(topic.name, data.index)
            result = results[partition]
            leader = NO_CURRENT_LEADER
            if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, leader_epoch = view.leader(partition)
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders.add(leader_id)
            answer.partition_responses.append(_partition(partition, result, leader))
            if (due := due + 1) >= STEP:
                yield due
                due = 0
    if leaders and context.version >= LEADER_HINTS_SINCE:
        response.node_endpoints = [
            NodeEndpoint(node_id=broker_id, host=end.host, port=end.port, rack=rack)
            for broker_id, end, rack in view.brokers()
            if broker_id in leaders
        ]
    return response


def _partition(
    partition: TopicPartition, result: ProduceResult, leader: LeaderIdAndEpoch
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition.partition,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in sorted(result.record_errors.items())
        ],
        error_message=result.error_message,
        current_leader=leader,
    )
