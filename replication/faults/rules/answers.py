"""The error of a rule in a response, at the place where each API has it.

    whole    as in Kafka's own response to a request that fails        whole
    parts    the request is split: the part that the rule takes is     split, of_parts, merged
             refused, the rest is handled, and both are one response
    after    the request is handled, and the response is overwritten:  Overwriting
             for a fetch session and the metadata of all topics

Rule 1: a refused part is not handled; the rest is handled as usual. A fetch is always handled, since
its session must go on and the leader learns from it what a follower has.

Rule 2: the error of a partition affects only that partition. A fetch with such an error does not
wait for records, as in Kafka.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.faults.rules.parts import Matches, NamedPart, NameOf, partition_number, topic_name
from replication.wire.apis import API, ApiKey
from replication.wire.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from replication.wire.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from replication.wire.metadata import MetadataResponse
from replication.wire.refusals import ERROR_FIELDS, UNKNOWN, can_err, refused, refused_whole
from replication.wire.schema import Field, Kind, fields_of
from storage.attributes import frozen

OVERWRITTEN = {
    ApiKey.FETCH: ("responses", "partitions"),
    ApiKey.METADATA: ("topics", "partitions"),
    ApiKey.OFFSET_FETCH: ("topics", "partitions"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topics", "partitions"),
}
"""APIs that change nothing; the fields of their topics, and of the partitions of a topic."""
OF_THE_SESSION = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
_IDENTITIES = {"name", "topic", "topic_id", "group_id", "transactional_id", "producer_id"}
_KEPT = _IDENTITIES | {
    *("partition_index", "is_internal", "replica_nodes", "isr_nodes", "offline_replicas")
}
_METADATA_ERROR_SINCE = 13
_LOG_DIRS_ERROR_SINCE = 3


def whole(key: ApiKey, version: int, request: Any, code: ErrorCode) -> Any:
    """Return Kafka's response to a request that fails (AbstractRequest.getErrorResponse).

    Before its version 3 DescribeLogDirs has an error only for a log directory.
    """
    response = refused_whole(key, version, request, code)
    if isinstance(response, DescribeLogDirsResponse) and version < _LOG_DIRS_ERROR_SINCE:
        response.results = [DescribeLogDirsResult(error_code=code)]
    return response


def of_parts(key: ApiKey, request: Any, code: ErrorCode) -> Any:
    """Return a response in which every topic or partition named in `request` has the error."""
    response = refused(API[key].response, request, code)
    if hasattr(response, "error_code"):
        response.error_code = ErrorCode.NONE
    return response


def is_overwritten(key: ApiKey, code: ErrorCode, *, by_parts: bool) -> bool:
    """Return whether an error overwrites a real response; `by_parts` means only for some topics."""
    if key is ApiKey.FETCH:
        return code not in OF_THE_SESSION
    return key is ApiKey.METADATA or (by_parts and key in OVERWRITTEN)


@frozen(kw_only=True)
class Overwriting:
    """An error that replaces some parts of a real response."""

    key: ApiKey
    code: ErrorCode
    matches: Matches
    name_of: NameOf
    of_topics: bool
    """Whether a whole topic gets the error, not its partitions."""

    def answer(self, response: Any, parts: Iterable[NamedPart]) -> Any:
        """Return `response` with the error in all matching parts; `parts` were requested."""
        if self.key is ApiKey.OFFSET_FETCH and response.groups:
            groups = [
                attrs.evolve(group, topics=[self._topic(each) for each in group.topics])
                for group in response.groups
            ]
            return attrs.evolve(response, groups=groups)
        array, _ = OVERWRITTEN[self.key]
        topics = [self._topic(each) for each in getattr(response, array)]
        if isinstance(response, FetchResponse):
            topics += self._unchanged(topics, parts)
        response = attrs.evolve(response, **{array: topics})
        if isinstance(response, MetadataResponse) and not topics:
            response.error_code = self.code
        return response

    def _topic(self, topic: Any) -> Any:
        name = topic_name(topic, self.name_of)
        if self.of_topics:
            return self._blank(topic) if self.matches(name, None) else topic
        _, array = OVERWRITTEN[self.key]
        partitions = [
            self._blank(each) if self.matches(name, partition_number(each)) else each
            for each in getattr(topic, array)
        ]
        return attrs.evolve(topic, **{array: partitions})

    def _unchanged(
        self, topics: list[Any], parts: Iterable[NamedPart]
    ) -> Iterator[FetchableTopicResponse]:
        """Yield the error for requested partitions that a session's response leaves out."""
        there = {
            (topic_name(topic, self.name_of) or topic.topic_id, each.partition_index)
            for topic in topics
            for each in topic.partitions
        }
        for part in parts:
            is_there = (part.topic or part.topic_id, part.partition) in there
            if self.matches(part.topic, part.partition) and not is_there:
                assert part.partition is not None, "a fetch names partitions"
                yield FetchableTopicResponse(
                    topic=part.topic or "",
                    topic_id=part.topic_id,
                    partitions=[self._blank(PartitionData(partition_index=part.partition))],
                )

    def _blank(self, item: Any) -> Any:
        """Return an item of a response with the error and its identity, and no other values."""
        kind: type = type(item)
        names = {field.name for field in fields_of(kind)}
        values: dict[str, Any] = {name: UNKNOWN[name] for name in names & UNKNOWN.keys()}
        values |= dict.fromkeys(names & ERROR_FIELDS, self.code)
        values |= {name: getattr(item, name) for name in names & _KEPT}
        return kind(**values)


def merged(response: Any, others: Any) -> Any:
    """Return `response` with the items of `others` added; an item in both is merged."""
    values = {}
    for field in _fields(response):
        if _holds_errors(field):
            mine, theirs = getattr(response, field.name), getattr(others, field.name)
            values[field.name] = _merged_items(mine, theirs)
    return attrs.evolve(response, **values)


def _merged_items(mine: list[Any], theirs: list[Any]) -> list[Any]:
    items = list(mine)
    for other in theirs:
        same = [index for index, each in enumerate(items) if _is_same(each, other)]
        if same:
            items[same[0]] = merged(items[same[0]], other)
        else:
            items.append(other)
    return items


def _is_same(one: Any, other: Any) -> bool:
    """Return whether both are about the same topic (group, ...) and have items below them."""
    names = [field.name for field in _fields(one) if field.name in _IDENTITIES]
    return (
        bool(names)
        and any(map(_holds_errors, _fields(one)))
        and all(getattr(one, name) == getattr(other, name) for name in names)
    )


def _fields(message: object) -> tuple[Field, ...]:
    kind: type = type(message)
    return fields_of(kind)


def _holds_errors(field: Field) -> bool:
    items = field.wire.items
    return field.wire.kind is Kind.ARRAY and isinstance(items, type) and can_err(items)


def errors_in(message: Any, version: int) -> set[int]:
    """Return every error code in a response at `version`."""
    found: set[int] = set()
    for field in _fields(message):
        value = getattr(message, field.name)
        if version not in field.wire.versions:
            continue
        if field.name in ERROR_FIELDS:
            found.add(value)
        elif _holds_errors(field):
            found = found.union(*(errors_in(each, version) for each in value or ()))
    return found


def has_place_for_error(key: ApiKey, version: int, request: Any, *, names_something: bool) -> bool:
    """Return whether the response to `request` has a place for an error."""
    if key is ApiKey.METADATA:
        return names_something or version >= _METADATA_ERROR_SINCE
    if key is ApiKey.FETCH:
        return names_something
    if key is ApiKey.PRODUCE and request.acks == 0:
        return True  # as in Kafka, the connection is closed
    found = errors_in(whole(key, version, request, ErrorCode.UNKNOWN_SERVER_ERROR), version)
    return ErrorCode.UNKNOWN_SERVER_ERROR in found
