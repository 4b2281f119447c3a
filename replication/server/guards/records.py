"""The guards of Produce and Fetch: the rights to write records and to read them."""

from functools import partial
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.metadata.rules.security_image import SecurityImage
from replication.net.pace import in_steps
from replication.security.rules.acls import Operation, ResourceType
from replication.server.answers import Later, present
from replication.server.guards.access import Access, all_refused, sorted_out
from replication.server.server import CloseConnectionError, Handler
from replication.steps import STEP, Steps
from replication.wire.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic
from replication.wire.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from storage.attributes import define
from storage.batch.record_batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)

_LOWER_ATTRIBUTES_AT = ATTRIBUTES_AT + 1  # the upper byte has no meaning
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MOST_SESSIONS = 10_000


@define(eq=False)
class FetchGuard:
    """The guard of Fetch: a session is valid only for its principal, and for the same ACLs.

    With other ACLs the session counts as unknown, and the client names all its partitions again.
    No session is opened if a topic is refused: the client would believe the topic to be in the
    session, and never get an answer about it.
    """

    _sessions: dict[int, tuple[str, SecurityImage]] = attrs.field(init=False, factory=dict)

    async def guard(self, access: Access, request: FetchRequest, handler: Handler) -> Any:
        by = (access.context.principal, access.image.security)
        is_let_in = request.replica.replica_id < 0 or access.cluster(Operation.CLUSTER_ACTION)
        if request.session_epoch > 0 and (
            not is_let_in or self._sessions.get(request.session_id) != by
        ):
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not is_let_in:
            return FetchResponse(responses=await refused_topics(request.topics))
        allowed: list[FetchTopic] = request.topics
        denied: list[FetchTopic] = []
        if request.replica.replica_id < 0:
            allowed, denied = await sorted_out(
                request.topics, partial(_may, access, Operation.READ)
            )
        if denied and request.session_epoch > 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if denied:
            request.session_epoch = -1
            request.topics = allowed
        response: FetchResponse | Later = FetchResponse()
        if request.topics or request.session_epoch != -1:
            response = await handler(access.context, request)
        if isinstance(response, Later):
            if not denied:
                return response.then(partial(self._with_session, by))
            response = await response.response()
        assert isinstance(response, FetchResponse), "fetch answers a fetch"
        response.responses += await refused_topics(denied)
        return self._with_session(by, response)

    def _with_session(
        self, by: tuple[str, SecurityImage], response: FetchResponse
    ) -> FetchResponse:
        """Note by whom, and under which ACLs, the session was opened."""
        if response.session_id:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.clear()  # their clients open new ones
            self._sessions[response.session_id] = by
        return response


def _may(access: Access, operation: Operation, topic: FetchTopic | TopicProduceData) -> bool:
    name = access.name_of(topic)
    return name is None or access.topic(operation, name)


async def refused_topics(denied: list[FetchTopic]) -> list[FetchableTopicResponse]:
    return await all_refused(FetchableTopicResponse, denied, DENIED)


async def produce(access: Access, request: ProduceRequest, handler: Handler) -> Any:
    """Check the topics, and the transactional id only if records are transactional, as Kafka does.

    A refused produce without a response (acks=0) closes the connection.
    """
    name = await in_steps(_transactional_id(request))
    if name is not None and not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        _close_without_acks(request)
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return await access.refuse(request, code)
    request.topic_data, denied = await sorted_out(
        request.topic_data, partial(_may, access, Operation.WRITE)
    )
    if not denied:
        return await handler(access.context, request)
    response: ProduceResponse | None = ProduceResponse()
    if request.topic_data:
        response = await present(handler(access.context, request))
    _close_without_acks(request)
    assert response is not None, "only acks=0 has no response"
    response.responses += await all_refused(TopicProduceResponse, denied, DENIED)
    return response


def _transactional_id(request: ProduceRequest) -> Steps[str | None]:
    """Return the id that must be writable: "" for transactional records without an id."""
    is_transactional = yield from has_transactional_records(request)
    return (request.transactional_id or "") if is_transactional else None


def _close_without_acks(request: ProduceRequest) -> None:
    if request.acks == 0:
        raise CloseConnectionError("a produce with acks=0 was not authorized")


def has_transactional_records(request: ProduceRequest) -> Steps[bool]:
    """Return whether the first batch of some partition is transactional."""
    due = 0
    for topic in request.topic_data:
        due += 1
        for data in topic.partition_data:
            if (due := due + 1) >= STEP:
                yield due
                due = 0
            if _is_transactional(data.records):
                return True
        if due >= STEP:
            yield due
            due = 0
    return False


def _is_transactional(records: object) -> bool:
    assert isinstance(records, memoryview | None), "a request has its records in memory"
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and bool(records[_LOWER_ATTRIBUTES_AT] & TRANSACTIONAL_BIT)
    )
