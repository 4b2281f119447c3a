"""CreatePartitions, ElectLeaders and reassignments, which this broker forwards to the controller.

CreatePartitions is answered once this broker's metadata has the new partitions. Elections and
reassignments are answered at once, as in Kafka: the client looks at the metadata afterwards.
"""

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.rules.image import MetadataImage
from replication.server.server import RequestContext
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from replication.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from replication.wire.elect_leaders import (
    ElectionPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def create_partitions(
    node: BrokerNode, _: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    deadline_ms = node.clock.now_ms() + request.timeout_ms
    try:
        response = await node.forward(request, timeout_ms=request.timeout_ms)
    except PeerUnavailableError as error:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.REQUEST_TIMED_OUT,
                    error_message=_no_answer(error),
                )
                for topic in request.topics
            ]
        )
    assert isinstance(response, CreatePartitionsResponse), "an answer decodes as what was asked"
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in request.topics}
        grown = {
            result.name: counts[result.name]
            for result in response.results
            if result.error_code == ErrorCode.NONE
        }
        await node.metadata.wait_at_most(
            lambda image: _has_grown(image, grown),
            timeout_ms=deadline_ms - node.clock.now_ms(),
        )
    return response


def _has_grown(image: MetadataImage, grown: dict[str, int]) -> bool:
    """Return whether the topics have so many partitions, or were deleted meanwhile."""
    return all(
        (topic := image.topics.get(name)) is None or len(topic.partitions) >= count
        for name, count in grown.items()
    )


def _no_answer(error: PeerUnavailableError) -> str:
    return f"no answer from the controller: {error}"


async def elect_leaders(
    node: BrokerNode, _: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    try:
        response = await node.forward(request, timeout_ms=request.timeout_ms)
    except PeerUnavailableError as error:
        return ElectLeadersResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        ElectionPartitionResult(
                            partition_id=partition,
                            error_code=ErrorCode.REQUEST_TIMED_OUT,
                            error_message=_no_answer(error),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topic_partitions or ()
            ],
        )
    assert isinstance(response, ElectLeadersResponse), "an answer decodes as what was asked"
    return response


async def alter_partition_reassignments(
    node: BrokerNode, _: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        response = await node.forward(request, timeout_ms=request.timeout_ms)
    except PeerUnavailableError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT,
            error_message=_no_answer(error),
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.REQUEST_TIMED_OUT,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
    assert isinstance(response, AlterPartitionReassignmentsResponse), "as it was asked"
    return response


async def list_partition_reassignments(
    node: BrokerNode, _: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:  # The request's own timeout means nothing to Kafka (ControllerApis).
        response = await node.forward(request, timeout_ms=node.config.request_timeout_ms)
    except PeerUnavailableError as error:
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=_no_answer(error)
        )
    assert isinstance(response, ListPartitionReassignmentsResponse), "as it was asked"
    return response
