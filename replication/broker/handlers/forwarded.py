"""Requests that a broker only forwards: the controller decides, and its answer is the client's.

AlterClientQuotas   UpdateFeatures   UnregisterBroker   DescribeQuorum
AddRaftVoter   RemoveRaftVoter
"""

from typing import Any

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, PeerUnavailableError
from replication.net.pace import in_steps
from replication.server.older_forms import fill_older_form, newest_form
from replication.server.server import RequestContext
from replication.wire.refusals import refused_whole_in_steps
from replication.wire.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def forward(node: BrokerNode, context: RequestContext, request: Any) -> Any:
    """Return the controller's answer; REQUEST_TIMED_OUT if there is none in time."""
    return await _forward(node, context, request, timeout_ms=node.config.request_timeout_ms)


async def update_features(
    node: BrokerNode, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Forward the request in the newest form, for as long as it says."""
    request = newest_form(request, context.version)
    answer: UpdateFeaturesResponse = await _forward(
        node, context, request, timeout_ms=request.timeout_ms
    )
    fill_older_form(request, answer, context.version)
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
