"""Requests that a broker only forwards: the controller decides, and its answer is the client's.

AlterClientQuotas   UpdateFeatures   UnregisterBroker   DescribeQuorum
AddRaftVoter   RemoveRaftVoter
"""

from typing import Any

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
)
from replication.wire.refusals import each_refused, refused_whole_in_steps
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    FeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def forward(node: BrokerNode, context: RequestContext, request: Any) -> Any:
    """Return the controller's answer; REQUEST_TIMED_OUT if there is none in time."""
    return await _forward(node, context, request, timeout_ms=node.config.request_timeout_ms)


async def update_features(
    node: BrokerNode, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Forward the request; version 0 has no types of updates, and 0 and 1 have a result for each."""
    for each in request.feature_updates:
        if each.allow_downgrade:
            each.upgrade_type = SAFE_DOWNGRADE
    answer: UpdateFeaturesResponse = await _forward(
        node, context, request, timeout_ms=request.timeout_ms
    )
    if answer.error_code == ErrorCode.NONE:
        names = dict.fromkeys(each.feature for each in request.feature_updates)
        answer.results = [FeatureResult(feature=name) for name in names]
    return answer


async def describe_quorum(
    node: BrokerNode, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Forward the request; any other log than that of the quorum is unknown (KafkaRaftClient)."""
    asked = [(topic.topic_name, topic.partitions) for topic in request.topics[:2]]
    if asked != [(QUORUM_TOPIC, [QuorumPartition(partition_index=0)])]:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await in_steps(each_refused(DescribedQuorumTopic, request.topics, unknown))
        return DescribeQuorumResponse(topics=refused)
    answer: DescribeQuorumResponse = await forward(node, context, request)
    return answer


async def _forward(
    node: BrokerNode, context: RequestContext, request: Any, *, timeout_ms: int
) -> Any:
    try:
        return await node.forward(request, timeout_ms=timeout_ms)
    except PeerUnavailableError:
        late = ErrorCode.REQUEST_TIMED_OUT
        return await in_steps(
            refused_whole_in_steps(context.api_key, context.version, request, late)
        )
