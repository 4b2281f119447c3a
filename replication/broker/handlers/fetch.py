"""Fetch: the request by which followers replicate and consumers read.

    request ── session ── replicas ── session ── answer
                  │           │           └ only what has changed since it last answered
                  │           └ reads, or waits until min.bytes are there
                  └ every partition wanted, named now or in an earlier request (KIP-227)

Partitions that the metadata does not have, or whose topic id it does not have, are answered without
a read, behind those that were read. From version 13 on topics go by id; every partition
is then asked and answered by id alone (KIP-516).
"""

from collections.abc import Callable
from functools import lru_cache, partial
from operator import is_not
from typing import TypeAlias

import trio

from replication.broker.handlers.node import BrokerNode
from replication.broker.handlers.view import View
from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import (
    Answers,
    ClientMetadata,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    Isolation,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session.context import FetchContext
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.replica_manager.fetch import FEW_PARTITIONS, DelayedFetch, FetchPath
from replication.server.answers import Later, MakeResponse
from replication.server.server import RequestContext
from replication.steps import STEP, Steps, at_once, each_of
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_DIVERGENCE,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from replication.wire.metadata import NO_CURRENT_LEADER, LeaderIdAndEpoch, NodeEndpoint
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId

Sought: TypeAlias = tuple[FetchContext, Wanted, Answers]
"""The context of a request, what to read for it, and the answers that are known without that."""

HARD_LIMIT_UNTIL = 2
STORAGE_ERROR_SINCE = 6
CLIENT_METADATA_SINCE = 11  # KIP-392
LEADER_HINTS_SINCE = 16  # KIP-951
READ_COMMITTED = 1
CATCH_UP_MS = 200
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


async def fetch(
    node: BrokerNode, context: RequestContext, request: FetchRequest
) -> FetchResponse | Later:
    params = _params(node, context, request)
    sought = await in_steps(
        _asked(node, context, request, params, may_be_ahead=not params.from_follower)
    )
    if sought is None:
        sought = await _caught_up_with(node, context, request, params)
    asked, readable, unreadable = sought
    answers: Answers = []
    if readable or (asked.session is not None and asked.session.any_settled):
        fetch_path = node.replica_manager.fetch
        found = await fetch_path.begin(params, readable, asked.session)
        if isinstance(found, DelayedFetch):
            if found.is_short and len(unreadable) <= FEW_PARTITIONS:
                response_to = partial(_response, node, context, asked)
                return Later(partial(_start_wait, fetch_path, found, unreadable, response_to))
            found = await fetch_path.wait(found)
        answers = found
    response = await in_steps(_response(node, context, asked, answers + unreadable))
    if len(readable) + len(unreadable) > STEP:  # so much is not let go of in one turn of the loop
        del answers, readable, unreadable
        await trio.lowlevel.checkpoint()
    return response


def _start_wait(
    fetch_path: FetchPath,
    delayed: DelayedFetch,
    unreadable: Answers,
    response: Callable[[Answers], Steps[FetchResponse]],
    respond: Callable[[MakeResponse], object],
) -> Callable[[], object]:
    return fetch_path.call_when_enough(
        delayed, lambda read: respond(lambda: at_once(response(read() + unreadable)))
    )


def _asked(
    node: BrokerNode,
    context: RequestContext,
    request: FetchRequest,
    params: FetchParams,
    *,
    may_be_ahead: bool,
) -> Steps[Sought | None]:
    """Return the context of the request, what to read for it, and the answers known already.

    Return None, and do nothing, if the request is ahead of this broker's metadata and may not be.
    """
    image = node.metadata.image
    wanted, is_ahead = yield from _wanted(image, request, version=context.version)
    if is_ahead and not may_be_ahead:
        return None
    forgotten: list[TopicIdPartition] = []
    if request.forgotten_topics_data:
        forgotten = yield from _forgotten(image, request, version=context.version)
    asked = yield from node.fetch_sessions.new_context(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        is_follower=params.from_follower,
        version=context.version,
        wanted=wanted,
        forgotten=forgotten,
        topic_names=image.topic_names_by_id,
        now_ms=node.clock.now_ms(),
        terms=node.replica_manager.fetch.terms(params),
    )
    readable, unreadable = yield from _sort_out(image, (yield from asked.wanted()))
    return asked, readable, unreadable


def _response(
    node: BrokerNode, context: RequestContext, asked: FetchContext, answers: Answers
) -> Steps[FetchResponse]:
    due = yield from asked.response(answers)
    return FetchResponse(
        error_code=due.error,
        session_id=due.session_id,
        responses=(yield from _topics(node, context, due.partitions)),
        node_endpoints=_endpoints(node, context, due.partitions),
    )


# The request.


async def _caught_up_with(
    node: BrokerNode, context: RequestContext, request: FetchRequest, params: FetchParams
) -> Sought:
    """Return `_asked` after a wait for metadata that a follower has and this broker does not.

    A follower may know a topic, or a leader epoch, earlier than this broker. After an error it
    would wait for `replica.fetch.backoff.ms`, while the metadata is on its way to this broker.
    """
    now_ms = node.clock.now_ms()
    deadline_ms = now_ms + min(request.max_wait_ms, CATCH_UP_MS)
    in_time = True
    while True:
        image = node.metadata.image
        sought = await in_steps(_asked(node, context, request, params, may_be_ahead=not in_time))
        if sought is not None:
            return sought
        now_ms = node.clock.now_ms()
        in_time = now_ms < deadline_ms and await node.metadata.wait_at_most(
            partial(is_not, image), timeout_ms=deadline_ms - now_ms
        )


def _params(node: BrokerNode, context: RequestContext, request: FetchRequest) -> FetchParams:
    replica = request.replica
    return _made_params(
        version=context.version,
        client_id=context.client_id,
        rack_id=request.rack_id,
        replica_id=replica.replica_id,
        replica_epoch=replica.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        most_bytes=node.config.fetch_max_bytes,
        isolation_level=request.isolation_level,
    )


@lru_cache(maxsize=256)
def _made_params(
    *,
    version: int,
    client_id: str | None,
    rack_id: str,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    most_bytes: int,
    isolation_level: int,
) -> FetchParams:
    """Return the parameters, which are the same for nearly all fetches of a reader."""
    if replica_id >= 0:
        isolation = Isolation.LOG_END
    elif isolation_level == READ_COMMITTED:
        isolation = Isolation.LAST_STABLE
    else:
        isolation = Isolation.HIGH_WATERMARK
    client_metadata = None
    if version >= CLIENT_METADATA_SINCE:
        client_metadata = ClientMetadata(rack_id, client_id or "")
    max_bytes = min(max_bytes, most_bytes)
    return FetchParams(
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=min(min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=isolation,
        hard_max_bytes=version <= HARD_LIMIT_UNTIL,
        client_metadata=client_metadata,
    )


def _wanted(
    image: MetadataImage, request: FetchRequest, *, version: int
) -> Steps[tuple[Wanted, bool]]:
    """Return the partitions of the request, and whether it names a topic, a partition or a leader
    epoch that `image` lacks.

    The last entry counts for a partition that is named twice (FetchRequest.fetchData).
    """
    wanted: dict[TopicIdPartition, FetchInfo] = {}
    is_ahead = False
    due = 0
    for topic in request.topics:
        due += 1 + len(topic.partitions)
        if due >= STEP:
            yield due
            due = 0
        topic_id, name = _identity(image, topic.topic_id, topic.topic, version)
        known = None if name is None else image.topics.get(name)
        is_ahead = is_ahead or known is None
        for number, asked in enumerate(topic.partitions, start=1):
            # Any negative epoch stands for none (FetchRequest.optionalEpoch).
            leader_epoch, last_epoch = asked.current_leader_epoch, asked.last_fetched_epoch
            info = FetchInfo(
                fetch_offset=asked.fetch_offset,
                log_start_offset=asked.log_start_offset,
                max_bytes=asked.partition_max_bytes,
                current_leader_epoch=leader_epoch if leader_epoch >= 0 else NO_LEADER_EPOCH,
                last_fetched_epoch=last_epoch if last_epoch >= 0 else NO_LEADER_EPOCH,
            )
            wanted[TopicIdPartition(topic_id, name, asked.partition)] = info
            if known is not None:
                partition = known.partitions.get(asked.partition)
                is_ahead = is_ahead or partition is None or leader_epoch > partition.leader_epoch
            if number % STEP == 0:
                yield STEP
    return list(wanted.items()), is_ahead


def _forgotten(
    image: MetadataImage, request: FetchRequest, *, version: int
) -> Steps[list[TopicIdPartition]]:
    forgotten = []
    for topic in request.forgotten_topics_data:
        identity = _identity(image, topic.topic_id, topic.topic, version)
        forgotten += yield from each_of(partial(TopicIdPartition, *identity), topic.partitions)
    return forgotten


def _identity(
    image: MetadataImage, topic_id: TopicId, name: str, version: int
) -> tuple[TopicId, str | None]:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return topic_id, image.topic_names_by_id.get(topic_id)
    return NO_TOPIC_ID, name


def _sort_out(image: MetadataImage, wanted: Wanted) -> Steps[tuple[Wanted, Answers]]:
    """Return the partitions to read, and the answers for those that cannot be read."""
    topics = image.topics
    readable: Wanted = []
    unreadable: Answers = []
    for number, pair in enumerate(wanted, start=1):
        if number % STEP == 0:
            yield STEP
        partition = pair[0]
        name = partition.topic
        if name is None:
            unreadable.append((partition, _unknown(ErrorCode.UNKNOWN_TOPIC_ID)))
        elif name not in topics or partition.partition not in topics[name].partitions:
            unreadable.append((partition, _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        else:
            readable.append(pair)
    return readable, unreadable


def _unknown(error: ErrorCode) -> FetchPartitionData:
    # Kafka's own answer without a read (FetchResponse.partitionResponse) has an empty list of
    # transactions here, and no list after a read.
    return FetchPartitionData(error=error, aborted_transactions=())


# The answer.


def _topics(
    node: BrokerNode, context: RequestContext, answers: Answers
) -> Steps[list[FetchableTopicResponse]]:
    """Return an entry for each run of partitions of one topic, in the order of the session."""
    topics: list[FetchableTopicResponse] = []
    last: tuple[TopicId, str | None] | None = None
    for number, (partition, answer) in enumerate(answers, start=1):
        topic = partition[:2]
        if topic != last:
            topic_id, name = last = topic
            topics.append(FetchableTopicResponse(topic=name or "", topic_id=topic_id))
        topics[-1].partitions.append(_partition(node, context, partition, answer))
        if number % STEP == 0:
            yield STEP
    return topics


def _partition(
    node: BrokerNode,
    context: RequestContext,
    partition: TopicIdPartition,
    answer: FetchPartitionData,
) -> PartitionData:
    diverging = answer.diverging_epoch
    aborted = answer.aborted_transactions
    error, leader = answer.error, NO_CURRENT_LEADER
    if error is not ErrorCode.NONE:
        error, leader = _error(error, context.version), _leader(node, context, partition, answer)
    return PartitionData(
        partition_index=partition.partition,
        error_code=error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=NO_DIVERGENCE
        if diverging is None
        else DivergingEpoch(epoch=diverging.leader_epoch, end_offset=diverging.offset),
        current_leader=leader,
        aborted_transactions=None if aborted is None else list(aborted),
        preferred_read_replica=answer.preferred_read_replica,
        records=b"" if answer.records is None else answer.records,
    )


def _error(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # which makes an old client look for the leader
    return error


def _leader(
    node: BrokerNode,
    context: RequestContext,
    partition: TopicIdPartition,
    answer: FetchPartitionData,
) -> LeaderIdAndEpoch:
    """Return the leader and its epoch, for a client that came to the wrong broker (KIP-951)."""
    if answer.error not in MOVED or context.version < LEADER_HINTS_SINCE or partition.topic is None:
        return NO_CURRENT_LEADER
    view = View(node.metadata.image, context.listener)
    leader_id, leader_epoch = view.leader(partition.topic_partition)
    return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def _endpoints(node: BrokerNode, context: RequestContext, answers: Answers) -> list[NodeEndpoint]:
    moved = [pair for pair in answers if pair[1].error in MOVED]
    if not moved:
        return []
    view = View(node.metadata.image, context.listener)
    leaders = {_leader(node, context, *pair).leader_id for pair in moved} - {-1}
    return [
        NodeEndpoint(node_id=broker_id, host=end.host, port=end.port, rack=rack)
        for broker_id, end, rack in view.brokers()
        if broker_id in leaders
    ]
