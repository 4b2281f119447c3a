"""FindCoordinator and InitProducerId: producers and groups ask who looks after them.

A group is looked after by the leader of its partition of `__consumer_offsets`; that topic
is made when somebody first asks. Transactions have no coordinator here yet, and
COORDINATOR_NOT_AVAILABLE is Kafka's word for that. An idempotent producer needs none: any
broker gives it an id of its own (KIP-98).
"""

from replication.cluster.handlers.node import BrokerNode
from replication.cluster.handlers.topics import create_automatically
from replication.cluster.handlers.view import View
from replication.cluster.server import RequestContext
from replication.errors import ErrorCode, KafkaError
from replication.groups import GROUP_METADATA_TOPIC, partition_for
from replication.wire.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from replication.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.types import TopicPartition

MANY_KEYS_SINCE = 4  # KIP-699
NOBODY = -1
NO_PRODUCER_ID, NO_PRODUCER_EPOCH = -1, -1


async def find_coordinator(
    node: BrokerNode, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    many = context.version >= MANY_KEYS_SINCE
    keys = request.coordinator_keys if many else [request.key]
    if request.key_type == GROUP:
        await create_automatically(node, [GROUP_METADATA_TOPIC])
        view = View(node.metadata.image, context.listener)
        found = [_group_coordinator(view, key) for key in keys]
    elif request.key_type == TRANSACTION:
        explanation = "this cluster has no transaction coordinator yet"
        found = [_nobody(each, explanation) for each in keys]
    else:
        explanation = f"no key is of type {request.key_type}"
        found = [_nobody(each, explanation, ErrorCode.INVALID_REQUEST) for each in keys]
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


def _group_coordinator(view: View, group_id: str) -> Coordinator:
    topic = view.image.topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        return _nobody(group_id, f"{GROUP_METADATA_TOPIC} could not be made yet")
    number = partition_for(group_id, len(topic.partitions))
    leader, _ = view.leader(TopicPartition(GROUP_METADATA_TOPIC, number))
    endpoint = view.endpoint(leader)
    if endpoint is None:
        return _nobody(group_id, f"{GROUP_METADATA_TOPIC}-{number} has no leader")
    return Coordinator(key=group_id, node_id=leader, host=endpoint.host, port=endpoint.port)


def _nobody(
    key: str, explanation: str, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
) -> Coordinator:
    return Coordinator(
        key=key, node_id=NOBODY, host="", port=-1, error_code=error, error_message=explanation
    )


async def init_producer_id(
    node: BrokerNode, _: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id at epoch 0; also where a producer asks to have its epoch bumped (KIP-360)."""
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch >= 0
    if request.transactional_id == "" or has_id != has_epoch:
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _no_producer_id(ErrorCode.NOT_COORDINATOR)
    try:
        producer_id = await node.producer_ids.allocate(broker_epoch=node.broker_epoch())
    except KafkaError as error:
        return _no_producer_id(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _no_producer_id(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
