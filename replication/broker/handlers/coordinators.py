"""FindCoordinator and InitProducerId: the coordinators of groups and transactions, producer ids.

The coordinator of a group is the leader of its partition of `__consumer_offsets`, that of a
transactional id the leader of its partition of `__transaction_state`; the first FindCoordinator
creates these topics. An idempotent producer needs no coordinator: any broker gives it an id (KIP-98).
"""

from functools import partial

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.topics import create_automatically
from replication.broker.handlers.view import View
from replication.coordinator.rules import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    partition_for,
)
from replication.errors import ErrorCode, KafkaError
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import each_of
from replication.wire.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from replication.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.batch.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.types import TopicPartition

MANY_KEYS_SINCE = 4  # KIP-699
FENCING_HAS_A_NAME_SINCE = 4  # KIP-588
_TOPICS = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}


async def find_coordinator(
    node: BrokerNode, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    many = context.version >= MANY_KEYS_SINCE
    keys = request.coordinator_keys if many else [request.key]
    topic = _TOPICS.get(request.key_type)
    if topic is not None:
        await create_automatically(node, [topic])
        view = View(node.metadata.image, context.listener)
        found = await in_steps(each_of(partial(_coordinator, view, topic), keys))
    else:
        explanation = f"no key is of type {request.key_type}"
        found = await in_steps(
            each_of(lambda key: _no_coordinator(key, explanation, ErrorCode.INVALID_REQUEST), keys)
        )
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(view: View, topic: str, key: str) -> Coordinator:
    image = view.image.topics.get(topic)
    if image is None:
        return _no_coordinator(key, f"{topic} could not be made yet")
    number = partition_for(key, len(image.partitions))
    leader, _ = view.leader(TopicPartition(topic, number))
    endpoint = view.endpoint(leader)
    if endpoint is None:
        return _no_coordinator(key, f"{topic}-{number} has no leader")
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _no_coordinator(
    key: str, explanation: str, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=explanation
    )


async def init_producer_id(
    node: BrokerNode, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new producer id at epoch 0, or the next epoch of a transactional id.

    A producer without a transactional id that asks for the next epoch (KIP-360) gets a new id.
    """
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if request.transactional_id == "" or has_id != has_epoch:
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is not None:
            given = await node.transactions.init_producer_id(
                request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=(request.producer_id, request.producer_epoch) if has_id else None,
            )
            return InitProducerIdResponse(
                producer_id=given.producer_id, producer_epoch=given.producer_epoch
            )
        producer_id = await node.producer_ids.allocate(broker_epoch=node.broker_epoch())
    except KafkaError as error:
        fenced = error.code is ErrorCode.PRODUCER_FENCED
        older = context.version < FENCING_HAS_A_NAME_SINCE
        return _no_producer_id(ErrorCode.INVALID_PRODUCER_EPOCH if fenced and older else error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _no_producer_id(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
