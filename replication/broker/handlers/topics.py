"""CreateTopics and DeleteTopics, which this broker forwards to the controller.

The answer waits until this broker's own metadata has the change, so that a client that asks this
broker for the topic's leader next finds it. If that takes longer than the request's timeout, the
client gets the controller's answer all the same: the topic is created.
"""

from collections.abc import Iterable

from replication.broker.handlers.node import BrokerNode
from replication.controller.rules.topic_names import fault_of
from replication.coordinator.rules import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    offsets_topic,
    transaction_state_topic,
)
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MAX_RECORDS
from replication.net.pace import in_steps
from replication.server.older_forms import fill_older_form, newest_form
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.wire.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from storage.types import NO_TOPIC_ID

AUTO_CREATION_TIMEOUT_MS = 1_000
BROKER_DEFAULT = -1  # of partitions and of the replication factor (KIP-464)


async def create_topics(
    node: BrokerNode, _: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Forward the request; then wait until this broker has the topics too."""
    deadline_ms = node.clock.now_ms() + request.timeout_ms
    try:
        response = await node.forward(request, timeout_ms=request.timeout_ms)
    except PeerUnavailableError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.REQUEST_TIMED_OUT,
                    error_message=f"no answer from the controller: {error}",
                )
                for topic in request.topics
            ]
        )
    assert isinstance(response, CreateTopicsResponse), "an answer decodes as what was asked"
    if not request.validate_only:
        created = {
            topic.name: topic.topic_id
            for topic in response.topics
            if topic.error_code == ErrorCode.NONE
        }
        await node.metadata.wait_at_most(
            lambda image: _has_all(image, created),
            timeout_ms=deadline_ms - node.clock.now_ms(),
        )
    return response


async def delete_topics(
    node: BrokerNode, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Forward the request in the form of version 6; then wait until this broker has no such topics."""
    deadline_ms = node.clock.now_ms() + request.timeout_ms
    forwarded = newest_form(request, context.version)
    try:
        response = await node.forward(forwarded, timeout_ms=request.timeout_ms)
    except PeerUnavailableError as error:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=state.name,
                    topic_id=state.topic_id,
                    error_code=ErrorCode.REQUEST_TIMED_OUT,
                    error_message=f"no answer from the controller: {error}",
                )
                for state in forwarded.topics
            ]
        )
    assert isinstance(response, DeleteTopicsResponse), "an answer decodes as what was asked"
    fill_older_form(request, response, context.version)
    deleted = {
        topic.topic_id for topic in response.responses if topic.error_code == ErrorCode.NONE
    } - {NO_TOPIC_ID}
    await node.metadata.wait_at_most(
        lambda image: deleted.isdisjoint(image.topic_names_by_id),
        timeout_ms=deadline_ms - node.clock.now_ms(),
    )
    return response


async def create_automatically(node: BrokerNode, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create those of `names` that do not exist; return the errors of those that were refused.

    A topic that another request is creating is not requested again, only waited for; if there are
    more topics than one CreateTopics may create, none is requested (AutoTopicCreationManager).
    """
    missing = await in_steps(_missing(node, names))
    new = [name for name in missing if name not in node.creating]
    if not missing or len(new) * (1 + node.config.num_partitions) > MAX_RECORDS:
        return {}
    refused: dict[str, ErrorCode] = {}
    if new:
        node.creating.update(new)
        try:
            answered = await _create(node, new)
        finally:
            node.creating.difference_update(new)
        if not answered:
            return {}
        # Another client may have made it in the meantime: then it is there for us as well.
        fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        refused = {name: error for name, error in answered.items() if error not in fine}
    awaited = missing.keys() - refused.keys()
    await node.metadata.wait_at_most(
        lambda image: awaited <= image.topics.keys(), timeout_ms=AUTO_CREATION_TIMEOUT_MS
    )
    return refused


def _missing(node: BrokerNode, names: Iterable[str]) -> Steps[dict[str, None]]:
    """Return the valid names in `names` that no topic has, each once."""
    topics = node.metadata.image.topics
    missing: dict[str, None] = {}
    for name in names:
        if name not in topics and fault_of(name) is None:
            missing[name] = None
        yield 1
    return missing


async def _create(node: BrokerNode, names: Iterable[str]) -> dict[str, ErrorCode]:
    request = CreateTopicsRequest(
        topics=[_creatable(node, name) for name in names], timeout_ms=AUTO_CREATION_TIMEOUT_MS
    )
    try:
        response = await node.forward(request, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
    except PeerUnavailableError:
        return {}
    assert isinstance(response, CreateTopicsResponse), "an answer decodes as what was asked"
    return {topic.name: ErrorCode.of(topic.error_code) for topic in response.topics}


def _creatable(node: BrokerNode, name: str) -> CreatableTopic:
    if name == GROUP_METADATA_TOPIC:
        return offsets_topic(node.config)
    if name == TRANSACTION_STATE_TOPIC:
        return transaction_state_topic(node.config)
    return CreatableTopic(
        name=name, num_partitions=BROKER_DEFAULT, replication_factor=BROKER_DEFAULT
    )


def _has_all(image: MetadataImage, topics: dict[str, bytes]) -> bool:
    return all(
        (topic := image.topics.get(name)) is not None and topic.topic_id == topic_id
        for name, topic_id in topics.items()
    )
