"""The topics and partitions that a request names, by the field names of each API.

    ProduceRequest.topic_data[].partition_data[].index     ->  orders-0, orders-1
    OffsetFetchRequest.groups[].topics[].partition_indexes[]
    DeleteTopicsRequest.topic_names[]

A request can be split by them into the part that a rule takes, and the rest.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from replication.wire.apis import ApiKey
from replication.wire.describe_configs import ConfigResourceType
from storage.attributes import frozen
from storage.types import NO_TOPIC_ID, TopicId

NameOf: TypeAlias = Callable[[TopicId], str | None]
"""Returns the name of a topic by its id; None for an unknown id."""
WantedPartition: TypeAlias = tuple[TopicId, str | None, int]
"""A partition of a fetch session, by topic id and, as far as it is known, by name."""
Matches: TypeAlias = Callable[[str | None, int | None], bool]
"""Whether a topic's name and a partition match; the partition is None if only topics are named."""


@frozen
class Names:
    """The fields of a request with its topics, and of a topic with its partitions."""

    topics: str
    partitions: str | None = None
    within: str | None = None
    """The array whose items have the topics: groups, transactions."""


_PARTITIONS = (Names("topics", "partitions"),)
_INDEXES = (Names("topics", "partition_indexes"),)
_TOPICS = (Names("topics"),)
_RESOURCES = (Names("resources"),)

NAMES: Mapping[ApiKey, tuple[Names, ...]] = {
    ApiKey.PRODUCE: (Names("topic_data", "partition_data"),),
    ApiKey.FETCH: _PARTITIONS,
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.METADATA: _TOPICS,
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: (
        Names("topics", "partition_indexes"),
        Names("topics", "partition_indexes", within="groups"),
    ),
    ApiKey.CREATE_TOPICS: _TOPICS,
    ApiKey.DELETE_TOPICS: (Names("topics"), Names("topic_names")),
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Names("v3_and_below_topics", "partitions"),
        Names("topics", "partitions", within="transactions"),
    ),
    ApiKey.WRITE_TXN_MARKERS: (Names("topics", "partition_indexes", within="markers"),),
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.DESCRIBE_CONFIGS: _RESOURCES,
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.DESCRIBE_LOG_DIRS: _PARTITIONS,
    ApiKey.CREATE_PARTITIONS: _TOPICS,
    ApiKey.ELECT_LEADERS: (Names("topic_partitions", "partitions"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _INDEXES,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: _INDEXES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _TOPICS,
    ApiKey.ALTER_PARTITION: _PARTITIONS,
}

ANSWERED_BY_PARTITION = {ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
"""APIs whose requests name topics, and whose responses have their partitions."""
HAS_PARTITIONS = ANSWERED_BY_PARTITION | {
    key for key, places in NAMES.items() if any(each.partitions for each in places)
}
ANSWERED_AS_A_WHOLE = {ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
"""APIs whose responses have no place for the error of one topic."""
MAY_NAME_ALL = {
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""APIs in which null or an empty array means every topic; the response names each."""


@frozen
class NamedPart:
    """A topic or a partition that a request names."""

    topic: str | None
    partition: int | None = None
    topic_id: TopicId = NO_TOPIC_ID

    def __str__(self) -> str:
        topic = self.topic_id.hex() if self.topic is None else self.topic
        return topic if self.partition is None else f"{topic}-{self.partition}"


def parts_of(key: ApiKey, request: Any, name_of: NameOf) -> tuple[NamedPart, ...]:
    """Return the topics and partitions that a request names, each once."""
    found = (part for places in NAMES.get(key, ()) for part in _parts(request, places, name_of))
    return tuple(dict.fromkeys(found))


def names_all(key: ApiKey, request: Any) -> bool:
    """Return whether a request means every topic without naming one."""
    if key not in MAY_NAME_ALL:
        return False
    if key is ApiKey.OFFSET_FETCH:
        return any(group.topics is None for group in request.groups or [request])
    if key is ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        return not request.topics
    return request.topics is None


def split(
    key: ApiKey, request: Any, matches: Matches, name_of: NameOf
) -> tuple[Any | None, Any | None]:
    """Return the request with only the matching parts, and with only the rest; None if empty."""
    taken: dict[str, list[Any]] = {}
    rest: dict[str, list[Any]] = {}
    for places in NAMES[key]:
        array = places.within or places.topics
        part = _part_groups if places.within else _part_topics
        if array not in taken:
            taken[array], rest[array] = part(
                getattr(request, array) or [], places, matches, name_of
            )
    return (
        attrs.evolve(request, **taken) if any(taken.values()) else None,
        attrs.evolve(request, **rest) if any(rest.values()) else None,
    )


def topic_name(item: Any, name_of: NameOf) -> str | None:
    """Return the topic's name of an item; None if it is not a topic or its name is unknown."""
    if isinstance(item, str):
        return item
    if hasattr(item, "resource_type"):
        is_topic = item.resource_type == ConfigResourceType.TOPIC
        return str(item.resource_name) if is_topic else None
    name: str | None = getattr(item, "name", None) or getattr(item, "topic", None)
    return name or name_of(getattr(item, "topic_id", NO_TOPIC_ID))


def partition_number(item: Any) -> int:
    """Return the number of an item in an array of partitions."""
    if isinstance(item, int):
        return item
    for name in ("index", "partition_index", "partition", "partition_id"):
        if (value := getattr(item, name, None)) is not None:
            assert isinstance(value, int), "partitions are numbered"
            return value
    raise AssertionError(f"{type(item).__name__} has no partition")


def _parts(request: Any, places: Names, name_of: NameOf) -> Iterator[NamedPart]:
    outer = getattr(request, places.within) if places.within else [request]
    for each in outer:
        for topic in getattr(each, places.topics) or ():
            name = topic_name(topic, name_of)
            topic_id = getattr(topic, "topic_id", NO_TOPIC_ID)
            if name is None and topic_id == NO_TOPIC_ID:
                continue  # for example the configuration of a broker
            if places.partitions is None:
                yield NamedPart(name, None, topic_id)
            else:
                for asked in getattr(topic, places.partitions):
                    yield NamedPart(name, partition_number(asked), topic_id)


def _part_groups(
    groups: list[Any], places: Names, matches: Matches, name_of: NameOf
) -> tuple[list[Any], list[Any]]:
    taken: list[Any] = []
    rest: list[Any] = []
    for group in groups:
        out, left = _part_topics(getattr(group, places.topics) or [], places, matches, name_of)
        if out:
            taken.append(attrs.evolve(group, **{places.topics: out}))
        if left or not out:
            rest.append(attrs.evolve(group, **{places.topics: left}) if out else group)
    return taken, rest


def _part_topics(
    topics: list[Any], places: Names, matches: Matches, name_of: NameOf
) -> tuple[list[Any], list[Any]]:
    taken: list[Any] = []
    rest: list[Any] = []
    for topic in topics:
        name = topic_name(topic, name_of)
        if places.partitions is None:
            (taken if matches(name, None) else rest).append(topic)
            continue
        asked = getattr(topic, places.partitions)
        out = [each for each in asked if matches(name, partition_number(each))]
        if out:
            taken.append(attrs.evolve(topic, **{places.partitions: out}))
        if len(out) < len(asked) or not out:
            left = [each for each in asked if each not in out]
            rest.append(attrs.evolve(topic, **{places.partitions: left}))
    return taken, rest
