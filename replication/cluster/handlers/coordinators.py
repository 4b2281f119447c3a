"""FindCoordinator and InitProducerId: producers and groups ask who looks after them.

Groups and transactions have no coordinator here yet. COORDINATOR_NOT_AVAILABLE is Kafka's
word for that, and a client takes it as "later". An idempotent producer needs none: any
broker gives it an id of its own (KIP-98).
"""

from replication.cluster.handlers.node import BrokerNode
from replication.cluster.server import RequestContext
from replication.errors import ErrorCode, KafkaError
from replication.wire.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from replication.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

MANY_KEYS_SINCE = 4  # KIP-699
NOBODY = -1
NO_PRODUCER_ID, NO_PRODUCER_EPOCH = -1, -1
EXPLANATION = "this cluster has no group or transaction coordinator yet"


async def find_coordinator(
    _: BrokerNode, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    error, explanation = ErrorCode.COORDINATOR_NOT_AVAILABLE, EXPLANATION
    if request.key_type not in (GROUP, TRANSACTION):
        error, explanation = ErrorCode.INVALID_REQUEST, f"no key is of type {request.key_type}"
    if context.version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(
            error_code=error, error_message=explanation, node_id=NOBODY, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=NOBODY,
                host="",
                port=-1,
                error_code=error,
                error_message=explanation,
            )
            for key in request.coordinator_keys
        ]
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
