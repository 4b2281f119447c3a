"""Changes of the configuration at run time (ConfigurationControlManager).

    broker     checks the form of the request, and the values of a broker  (handlers.configs)
    here       checks that the topic or broker exists, and the values of a topic or of a consumer
               group, which need not exist  -> records

A change may give a leader to a partition without one (unclean.leader.election.enable): such
elections are part of the same decision.

IncrementalAlterConfigs names the changes; the older AlterConfigs names all values, and removes the
others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from replication.config import BrokerConfig, ConfigChange, DynamicBrokerConfig, TopicConfig
from replication.config.alter import altered
from replication.config.dynamic import DESCRIBED
from replication.config.group import check_group
from replication.config.known import is_of_listener
from replication.config.topic import TOPIC_SPECS
from replication.controller.rules.decisions import Decision, RulesOf, elections_of_leaderless
from replication.controller.rules.election import ElectionRules
from replication.controller.rules.topic_names import fault_of
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MIN_INSYNC_REPLICAS, MetadataImage, TopicImage
from replication.metadata.rules.snapshot import config_records
from replication.wire.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from replication.wire.api_versions import ELIGIBLE_LEADER_REPLICAS_VERSION
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import ConfigRecord, MetadataRecord, PartitionChangeRecord

_MAX_VALUE_LENGTH = 2**15 - 1  # a list that is appended to again and again has a limit


class Resource(Protocol):
    """A topic, a broker or a group, as the requests and answers of both APIs name it."""

    resource_type: int
    resource_name: str


Wanted = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the configuration after a change, from the present one."""


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, *, config: BrokerConfig
) -> Decision[IncrementalAlterConfigsResponse]:
    def wanted(resource: Resource, changes: Sequence[ConfigChange]) -> Wanted:
        of_topic = resource.resource_type == ConfigResourceType.TOPIC
        known = TOPIC_SPECS if of_topic else DESCRIBED
        return lambda current: altered(current, changes, known)

    asked: list[tuple[Resource, Wanted]] = [
        (
            each,
            wanted(each, [ConfigChange(c.name, c.config_operation, c.value) for c in each.configs]),
        )
        for each in request.resources
    ]
    results, records = _decide(image, asked, config)
    if request.validate_only:
        records = []
    return Decision(
        IncrementalAlterConfigsResponse(responses=results), tuple(records), "configuration changed"
    )


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, *, config: BrokerConfig
) -> Decision[AlterConfigsResponse]:
    def wanted(configs: Mapping[str, str]) -> Wanted:
        return lambda _: configs

    asked: list[tuple[Resource, Wanted]] = [
        (each, wanted({c.name: c.value or "" for c in each.configs})) for each in request.resources
    ]
    results, records = _decide(image, asked, config)
    if request.validate_only:
        records = []
    return Decision(
        AlterConfigsResponse(responses=results), tuple(records), "configuration changed"
    )


def election_rules(image: MetadataImage, config: BrokerConfig) -> RulesOf:
    """Return a function that gives the election rules of a topic, as they are set in `image`."""
    current = DynamicBrokerConfig.of(config, image.broker_configs).current
    eligible = image.feature(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0

    def rules_of(topic: TopicImage) -> ElectionRules:
        topic_config = TopicConfig.in_force(topic.configs, current)
        return ElectionRules(
            min_insync_replicas=topic_config.min_insync_replicas,
            unclean=topic_config.unclean_leader_election_enable,
            eligible=eligible,
        )

    return rules_of


def one_minimum(image: MetadataImage, config: BrokerConfig) -> Iterable[MetadataRecord]:
    """Yield the records after which one min.insync.replicas is in force at all brokers.

    The ELR follows from the minimum that leaders keep to, so it must be the same for all of
    them: no broker may have one of its own (KIP-966).
    """
    if image.feature(ELIGIBLE_LEADER_REPLICAS_VERSION) == 0:
        return
    if MIN_INSYNC_REPLICAS not in image.broker_configs.get(None, {}):
        minimum = {MIN_INSYNC_REPLICAS: str(config.min_insync_replicas)}
        yield from config_records(ConfigResourceType.BROKER, "", minimum)
    for broker_id, configs in image.broker_configs.items():
        if broker_id is not None and MIN_INSYNC_REPLICAS in configs:
            none: dict[str, str | None] = {MIN_INSYNC_REPLICAS: None}
            yield from config_records(ConfigResourceType.BROKER, str(broker_id), none)


def before_isr_changes(
    before: MetadataImage, after: MetadataImage, config: BrokerConfig
) -> Iterable[PartitionChangeRecord]:
    """Yield a change for each leader that must hear of a larger minimum before it changes its ISR.

    A replica that leaves an ISR which becomes too small by the larger minimum is eligible, and a
    leader that knows the smaller one would commit without it. The change only counts up the
    partition epoch, so that what such a leader proposes is refused. Kafka writes no such record.
    """
    was, now = election_rules(before, config), election_rules(after, config)
    for name, topic in sorted(after.topics.items()):
        known, rules = was(before.topics[name]), now(topic)
        is_larger = rules.min_insync_replicas > known.min_insync_replicas
        if rules.eligible and (is_larger or not known.eligible):
            for number, partition in sorted(topic.partitions.items()):
                has_changed = partition != before.topics[name].partitions[number]
                if partition.leader != NO_LEADER and not has_changed:
                    yield PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id)


def _decide(
    image: MetadataImage, asked: Iterable[tuple[Resource, Wanted]], config: BrokerConfig
) -> tuple[list[AlterConfigsResourceResponse], list[MetadataRecord]]:
    results = []
    records: list[MetadataRecord] = []
    for resource, wanted in asked:
        try:
            records += _changes(image, resource, wanted, config)
        except KafkaError as error:
            results.append(answer(resource, error))
        else:
            results.append(answer(resource))
    if records:
        records += _without_eligible(image, records)
        after = image.apply_all(records, offset=image.offset, leader_epoch=image.leader_epoch)
        records += before_isr_changes(image, after, config)
        records += elections_of_leaderless(after, election_rules(after, config))
    return results, records


def _without_eligible(
    image: MetadataImage, records: Iterable[MetadataRecord]
) -> list[MetadataRecord]:
    """Return the changes that clear the ELRs which follow from another `min.insync.replicas`.

    Where there is no leader nothing is committed by any minimum, and the ELR stays. Kafka writes a
    ClearElrRecord, which makes no such difference.
    """
    changed = {
        each.resource_name if each.resource_type == ConfigResourceType.TOPIC else None
        for each in records
        if isinstance(each, ConfigRecord) and each.name == MIN_INSYNC_REPLICAS
    }
    topics = image.topics if None in changed else changed
    return [
        PartitionChangeRecord(
            partition_id=number, topic_id=topic.topic_id, eligible_leader_replicas=[]
        )
        for topic in (image.topics[name] for name in sorted(filter(None, topics)))
        for number, partition in sorted(topic.partitions.items())
        if partition.elr and partition.leader != NO_LEADER
    ]


def answer(resource: Resource, error: KafkaError | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _changes(
    image: MetadataImage, resource: Resource, wanted: Wanted, config: BrokerConfig
) -> Iterable[MetadataRecord]:
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            return _topic_changes(image, resource.resource_name, wanted, config)
        case ConfigResourceType.BROKER:
            return _broker_changes(image, resource.resource_name, wanted)
        case ConfigResourceType.GROUP:
            return _group_changes(image, resource.resource_name, wanted, config)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {other}")


def _topic_changes(
    image: MetadataImage, name: str, wanted: Wanted, config: BrokerConfig
) -> Iterable[MetadataRecord]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if (fault := fault_of(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} {fault}")
    topic = image.topics.get(name)
    current = {} if topic is None else topic.configs
    configs = wanted(current)
    changes = list(_difference(current, configs))
    TopicConfig.from_overrides(
        configs, DynamicBrokerConfig.of(config, image.broker_configs).current
    )
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(error, f"The topic '{name}' does not exist.")
    return config_records(ConfigResourceType.TOPIC, name, dict(changes))


def _broker_changes(image: MetadataImage, name: str, wanted: Wanted) -> Iterable[MetadataRecord]:
    broker_id = _broker_id(name)
    if broker_id is not None and image.broker(broker_id) is None:
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
        raise KafkaError(error, f"No broker with id {broker_id} found.")
    current = image.broker_configs.get(broker_id, {})
    configs = wanted(current)
    changes = dict(_difference(current, configs))
    # A file may be another under the same name: the broker reads it again (KAFKA-14136).
    changes |= {key: value for key, value in configs.items() if is_of_listener(key)}
    if MIN_INSYNC_REPLICAS in changes and image.feature(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0:
        minimum = changes[MIN_INSYNC_REPLICAS]
        if broker_id is not None and minimum is not None:
            reason = "may be set for a topic or for the cluster, not for one broker"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS} {reason}")
        if broker_id is None and minimum is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS} must be set")
    number = "" if broker_id is None else str(broker_id)
    return config_records(ConfigResourceType.BROKER, number, changes)


def _group_changes(
    image: MetadataImage, name: str, wanted: Wanted, config: BrokerConfig
) -> Iterable[MetadataRecord]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if len(name.encode()) > _MAX_VALUE_LENGTH:
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"The name of a group has at most {_MAX_VALUE_LENGTH} bytes.",
        )
    current = image.group_configs.get(name, {})
    configs = wanted(current)
    changes = list(_difference(current, configs))
    check_group(configs, DynamicBrokerConfig.of(config, image.broker_configs).current)
    return config_records(ConfigResourceType.GROUP, name, dict(changes))


def _broker_id(name: str) -> int | None:
    """Return the broker id in a resource name; None, for every broker, where it is empty."""
    if not name:
        return None
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a number.")
    return int(name)


def _difference(
    current: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterable[tuple[str, str | None]]:
    """Yield the keys that change and their values; None stands for a key that is removed."""
    for key in sorted({*current, *wanted}):
        if current.get(key) != (value := wanted.get(key)):
            if value is not None and len(value) > _MAX_VALUE_LENGTH:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "The configuration value cannot be added because it exceeds the maximum value"
                    f" size of {_MAX_VALUE_LENGTH} bytes.",
                )
            yield key, value
