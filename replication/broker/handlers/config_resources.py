"""ListConfigResources (KIP-714, KIP-1142): the names of what may be configured.

Brokers are those that the client can reach, as the resources BROKER and BROKER_LOGGER. A controller of
Apache Kafka may have subscriptions to the metrics of clients; ours makes none.
"""

from collections.abc import Iterable

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.view import View
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

EVERY_TYPE_SINCE = 1  # KIP-1142


async def list_config_resources(
    node: BrokerNode, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = {int(ConfigResourceType.CLIENT_METRICS)}
    if context.version >= EVERY_TYPE_SINCE:
        known = {int(each) for each in ConfigResourceType} - {ConfigResourceType.UNKNOWN}
    asked = set(request.resource_types) or known
    if not asked <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    await node.metadata.catch_up()
    listed = await in_steps(_listed(node.metadata.image, context.listener, asked))
    return ListConfigResourcesResponse(config_resources=listed)


def _listed(image: MetadataImage, listener: str, asked: set[int]) -> Steps[list[ConfigResource]]:
    brokers = [str(broker_id) for broker_id, _, _ in View(image, listener).brokers()]
    names: dict[int, Iterable[str]] = {
        ConfigResourceType.GROUP: image.group_configs,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.TOPIC: image.topics,
        ConfigResourceType.CLIENT_METRICS: image.client_metrics,
    }
    listed = []
    for kind, each in names.items():
        if kind in asked:
            for name in each:
                listed.append(ConfigResource(resource_name=name, resource_type=kind))
                yield 1
    yield 1
    return listed
