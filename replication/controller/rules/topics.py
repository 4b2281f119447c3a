"""CreateTopics, DeleteTopics and AllocateProducerIds (ReplicationControlManager).

A topic is refused for its name, because it exists, for its configuration, and for an invalid
assignment, in this order; the other topics of the request are created all the same, in one batch.

Replicas are placed round-robin from a random start, brokers that are not fenced first, so that
three partitions on brokers 1, 2, 3 are led by all three:

    partition 0    2, 3, 1        the first leads
    partition 1    3, 1, 2        the others follow
    partition 2    1, 2, 3

A fenced broker gets replicas only where the others do not suffice, and is not in sync
(StripedReplicaPlacer, without racks).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache, partial
from typing import Protocol

from replication.config import BrokerConfig, DynamicBrokerConfig, TopicConfig
from replication.config.topic import describe_topic
from replication.controller.rules.decisions import Decision, is_current_incarnation
from replication.controller.rules.topic_names import MAX_NAME, NOT_TO_BE_MADE, fault_of
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import UNASSIGNED, MetadataImage, TopicImage
from replication.metadata.rules.records import MAX_RECORDS, METADATA_TOPIC_ID, TOO_LARGE
from replication.metadata.rules.snapshot import config_records
from replication.wire.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.wire.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.types import NO_TOPIC_ID, TopicId

PRODUCER_ID_BLOCK = 1000
MAX_NEW_PARTITIONS = 10_000
"""The most partitions of one request (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)."""

TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
_DEFAULT = -1
_RESERVED_IDS = (NO_TOPIC_ID, METADATA_TOPIC_ID)


class Chance(Protocol):
    """The two draws that placing replicas needs; `random.Random` has them."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to but not including `stop`."""

    def randbytes(self, n: int, /) -> bytes:
        """Return `n` bytes."""


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    *,
    config: BrokerConfig,
    chance: Chance,
) -> Decision[CreateTopicsResponse]:
    asked = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    if sum(_asked_partitions(each, config) for each in topics.values()) > MAX_NEW_PARTITIONS:
        return Decision(_refused_all(topics, TOO_MANY_PARTITIONS))
    dynamic = DynamicBrokerConfig.of(config, image.broker_configs)
    configs_of = cache(partial(_configs, dynamic))  # most topics of a request have the same
    records: list[MetadataRecord] = []
    results = []
    twins = _twins(image.topics, topics)
    # A repeated name has one answer: librdkafka drops a response that repeats a name.
    for topic in topics.values():
        try:
            check_name(topic.name, image.topics, twins, times=asked[topic.name])
            overrides = _overrides(topic)
            configs = configs_of(tuple(sorted(overrides.items())))
            assignment = _assignment(image, topic, config, chance)
        except KafkaError as error:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.detail or None
                )
            )
            continue
        topic_id = _new_topic_id(image, chance)
        records += _records(image, topic.name, topic_id, assignment, overrides)
        results.append(
            CreatableTopicResult(
                name=topic.name,
                topic_id=topic_id,
                num_partitions=len(assignment),
                replication_factor=len(assignment[0]),
                configs=configs,
            )
        )
        if len(records) > MAX_RECORDS:
            return Decision(_refused_all(topics, TOO_LARGE))
    if request.validate_only:
        records.clear()
    return Decision(CreateTopicsResponse(topics=results), tuple(records))


def _asked_partitions(topic: CreatableTopic, config: BrokerConfig) -> int:
    """Return the number of partitions in a request for a topic, valid or not."""
    if topic.assignments:
        return len(topic.assignments)
    return (
        config.num_partitions if topic.num_partitions == _DEFAULT else max(0, topic.num_partitions)
    )


def _refused_all(names: Iterable[str], reason: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=name, error_code=ErrorCode.POLICY_VIOLATION, error_message=reason
            )
            for name in names
        ]
    )


def check_name(
    name: str, existing: Collection[str], twins: Mapping[str, str], *, times: int = 1
) -> None:
    """Raise KafkaError for a name that is invalid or taken (Topic.validate)."""

    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name[:MAX_NAME]!r} {reason}")

    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is asked for {times} times")
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
    if (fault := fault_of(name)) is not None:
        raise refuse(fault)
    if name in NOT_TO_BE_MADE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{name}' is the cluster's own")
    if _may_collide(name) and (other := twins.get(_metric_name(name))) is not None:
        raise refuse(f"differs from {other!r} only in dots and underscores")


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name


def _metric_name(name: str) -> str:
    """Return the name in metrics, where a.b and a_b are the same."""
    return name.replace(".", "_")


def _twins(existing: Iterable[str], asked: Iterable[str]) -> dict[str, str]:
    """Return the existing topics that one of `asked` may collide with, by their metric names."""
    if not any(map(_may_collide, asked)):
        return {}
    return {_metric_name(name): name for name in existing if _may_collide(name)}


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    overrides = {}
    for each in topic.configs:
        if each.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{each.name} has no value")
        overrides[each.name] = each.value
    return overrides


def _assignment(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig, chance: Chance
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition."""
    if topic.assignments:
        if topic.replication_factor != _DEFAULT or topic.num_partitions != _DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "with an assignment, the partitions and the replication factor must be -1",
            )
        return manual_assignment(image, topic.assignments)
    partitions, factor = topic.num_partitions, topic.replication_factor
    if factor == _DEFAULT:
        factor = config.default_replication_factor
    if partitions == _DEFAULT:
        partitions = config.num_partitions
    if factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas")
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions")
    return place(image, partitions=partitions, factor=factor, chance=chance)


def place(
    image: MetadataImage, *, partitions: int, factor: int, chance: Chance
) -> list[tuple[int, ...]]:
    active = sorted(filter(image.may_join_isr, image.brokers))
    others = sorted(image.brokers.keys() - set(active))
    if not active:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "every broker is fenced")
    if factor > len(active) + len(others):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas, but {len(active) + len(others)} brokers are registered",
        )
    start = chance.randrange(len(active))

    def replicas(number: int) -> tuple[int, ...]:
        order = _rotated(active, start + number) + _rotated(others, start + number)
        return tuple(order[:factor])

    return [replicas(number) for number in range(partitions)]


def _rotated(brokers: list[int], by: int) -> list[int]:
    middle = by % len(brokers) if brokers else 0
    return brokers[middle:] + brokers[:middle]


def manual_assignment(
    image: MetadataImage,
    assignments: Iterable[CreatableReplicaAssignment],
    *,
    factor: int | None = None,
) -> list[tuple[int, ...]]:
    """Return the requested replicas; each list has `factor` of them, or as many as the first."""

    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    by_number = sorted((each.partition_index, tuple(each.broker_ids)) for each in assignments)
    if [number for number, _ in by_number] != list(range(len(by_number))):
        raise refuse("partitions must be numbered from 0, each once")
    if factor is None:
        factor = len(by_number[0][1])
    for number, replicas in by_number:
        if not replicas or len(set(replicas)) < len(replicas):
            raise refuse(f"partition {number}: replicas {list(replicas)}")
        if len(replicas) != factor:
            raise refuse(f"partition {number} has {len(replicas)} replicas, others {factor}")
        unknown = [replica for replica in replicas if image.broker(replica) is None]
        if unknown:
            raise refuse(f"partition {number}: broker {unknown[0]} is not registered")
        if not any(map(image.may_join_isr, replicas)):
            raise refuse(f"partition {number}: every replica is fenced or shutting down")
    return [replicas for _, replicas in by_number]


def _new_topic_id(image: MetadataImage, chance: Chance) -> TopicId:
    while True:
        topic_id = chance.randbytes(16)
        if topic_id not in _RESERVED_IDS and topic_id not in image.topic_names_by_id:
            return topic_id


def _records(
    image: MetadataImage,
    name: str,
    topic_id: TopicId,
    assignment: list[tuple[int, ...]],
    overrides: Mapping[str, str],
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
    records += config_records(ConfigResourceType.TOPIC, name, overrides)
    for number, replicas in enumerate(assignment):
        records.append(new_partition(image, topic_id, number, replicas))
    return records


def new_partition(
    image: MetadataImage, topic_id: TopicId, number: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    """Return the record of a new partition, whose active replicas are all in sync: it is empty."""
    isr = list(filter(image.may_join_isr, replicas))
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[UNASSIGNED] * len(replicas),
    )


def _configs(
    dynamic: DynamicBrokerConfig, overrides: tuple[tuple[str, str], ...]
) -> list[CreatableTopicConfigs]:
    """Return the configuration of a new topic; raise KafkaError for an invalid one."""
    TopicConfig.from_overrides(dict(overrides), dynamic.current)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
        )
        for entry in describe_topic(dict(overrides), dynamic)
    ]


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, *, config: BrokerConfig
) -> Decision[DeleteTopicsResponse]:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    if not config.delete_topic_enable:
        return Decision(_deletion_disabled(asked))
    found = {(state.name, state.topic_id): _topic_to_delete(image, state) for state in asked}
    # A topic that is named twice, by name, by id or by both, is not deleted, and has one answer
    # (ControllerApis.deleteTopics).
    times = Counter(
        topic.topic_id
        for state in asked
        if (topic := found[state.name, state.topic_id][1]) is not None
    )
    records: list[MetadataRecord] = []
    results: dict[object, DeletableTopicResult] = {}
    for key, (error, topic) in found.items():
        if topic is None:
            name, topic_id = key
            results[key] = DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error, error_message=error.name
            )
            continue
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        results[topic.topic_id] = result
        if times[topic.topic_id] == 1:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        else:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"topic '{topic.name}' is named twice"
    return Decision(DeleteTopicsResponse(responses=list(results.values())), tuple(records))


def _deletion_disabled(asked: Iterable[DeleteTopicState]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=state.name,
                topic_id=state.topic_id,
                error_code=ErrorCode.TOPIC_DELETION_DISABLED,
                error_message="delete.topic.enable is false",
            )
            for state in asked
        ]
    )


def _topic_to_delete(
    image: MetadataImage, state: DeleteTopicState
) -> tuple[ErrorCode, TopicImage | None]:
    by_id = state.topic_id != NO_TOPIC_ID
    if by_id == (state.name is not None):
        return ErrorCode.INVALID_REQUEST, None  # one of the two, and not both
    if by_id:
        topic, missing = image.topic_by_id(state.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = image.topics.get(state.name or "")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return (ErrorCode.NONE, topic) if topic is not None else (missing, None)


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    if not is_current_incarnation(image, request.broker_id, request.broker_epoch):
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    start = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK,
    )
    answer = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK)
    return Decision(answer, (record,))
