r"""Topics as kafka-topics.sh --describe prints them, with tabs, because scripts grep these lines.

    Topic: t	TopicId: fw..	PartitionCount: 1	ReplicationFactor: 3	Configs: retention.ms=5
        Topic: t	Partition: 0	Leader: 2	Replicas: 2,3,1	Isr: 2,1	Elr: 	LastKnownElr:

A partition without a leader shows `none`. `N/A` means that the broker does not report eligible
leaders (KIP-966). Topics are sorted by name; Kafka's tool has the order of a hash map.
(org.apache.kafka.tools.TopicCommand, 4.1.)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from replication.cli.topics.choosing import Only
from replication.client.admin import Admin
from replication.client.admin.values import (
    ConfigValue,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from replication.metadata.rules import MIN_INSYNC_REPLICAS
from storage.checkpoint import uuid_text
from storage.types import NO_TOPIC_ID, TopicPartition


@attrs.frozen(kw_only=True)
class DescribedTopic:
    """A topic with all that its lines show."""

    topic: TopicDescription
    configs: Mapping[str, ConfigValue]
    moves: Mapping[int, Reassignment]
    alive: Collection[int]
    """The ids of the brokers that are alive."""

    @property
    def own_configs(self) -> dict[str, str | None]:
        return {each.name: each.value for each in self.configs.values() if not each.is_default}

    @property
    def min_isr(self) -> int:
        return int(self.configs[MIN_INSYNC_REPLICAS].value or 1)

    def replication_factor(self, partition: PartitionDescription) -> int:
        """Return the replication factor, without replicas that a reassignment is adding."""
        move = self.moves.get(partition.partition)
        changing = {*move.adding, *move.removing} if move is not None else set()
        if move is None or not changing.intersection(partition.replicas):
            return len(partition.replicas)
        return len(move.replicas) - len(move.adding)

    def is_shown(self, partition: PartitionDescription, only: Only) -> bool:
        isr, leads = len(partition.isr), partition.leader >= 0
        return (
            not only.some_partitions
            or (only.under_replicated and self.replication_factor(partition) > isr)
            or (only.unavailable and partition.leader not in self.alive)
            or (only.under_min_isr and (not leads or isr < self.min_isr))
            or (only.at_min_isr and isr == self.min_isr)
        )


async def described(admin: Admin, names: Sequence[str]) -> list[DescribedTopic]:
    """Return the topics of these names, sorted by name."""
    if not names:
        return []
    topics = await admin.describe_topics(names)
    configs = await admin.describe_topic_configs(names)
    alive = {each.id for each in (await admin.describe_cluster()).brokers}
    partitions = [
        TopicPartition(name, each.partition) for name in names for each in topics[name].partitions
    ]
    moves = await admin.list_partition_reassignments(partitions)
    return [
        DescribedTopic(
            topic=topics[name],
            configs=configs[name],
            moves={at.partition: move for at, move in moves.items() if at.topic == name},
            alive=alive,
        )
        for name in sorted(names)
    ]


def lines(found: Iterable[DescribedTopic], only: Only) -> Iterator[str]:
    for each in found:
        if not only.some_partitions and (not only.overrides or each.own_configs):
            yield _topic_line(each)
        if not only.overrides:
            for partition in each.topic.partitions:
                if each.is_shown(partition, only):
                    yield _partition_line(each, partition)


def _topic_line(each: DescribedTopic) -> str:
    configs = ",".join(f"{name}={_or_null(value)}" for name, value in each.own_configs.items())
    topic_id = each.topic.topic_id
    fields = [
        f"Topic: {each.topic.name}",
        *([f"TopicId: {uuid_text(topic_id)}"] if topic_id != NO_TOPIC_ID else []),
        f"PartitionCount: {len(each.topic.partitions)}",
        f"ReplicationFactor: {each.replication_factor(each.topic.partitions[0])}",
        f"Configs: {configs}",
    ]
    return "\t".join(fields)


def _or_null(value: str | None) -> str:
    return "null" if value is None else value  # Java prints null like that


def _partition_line(each: DescribedTopic, partition: PartitionDescription) -> str:
    fields = [
        f"\tTopic: {each.topic.name}",
        f"Partition: {partition.partition}",
        f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
        f"Replicas: {_brokers(partition.replicas)}",
        f"Isr: {_brokers(partition.isr)}",
    ]
    move = each.moves.get(partition.partition)
    if move is not None:
        fields.append(f"Adding Replicas: {_brokers(move.adding)}")
        fields.append(f"Removing Replicas: {_brokers(move.removing)}")
    fields.append(f"Elr: {_brokers(partition.eligible_leaders)}")
    fields.append(f"LastKnownElr: {_brokers(partition.last_known_eligible)}")
    return "\t".join(fields)


def _brokers(ids: Iterable[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def as_json(found: Iterable[DescribedTopic], only: Only) -> list[dict[str, Any]]:
    """Return the topics of which something is shown, as JSON."""
    topics = []
    for each in found:
        partitions = [
            _partition_json(each, partition)
            for partition in each.topic.partitions
            if not only.overrides and each.is_shown(partition, only)
        ]
        if partitions or (only.overrides and each.own_configs):
            topics.append(
                {
                    "topic": each.topic.name,
                    "topic_id": uuid_text(each.topic.topic_id),
                    "is_internal": each.topic.is_internal,
                    "partition_count": len(each.topic.partitions),
                    "replication_factor": each.replication_factor(each.topic.partitions[0]),
                    "configs": each.own_configs,
                    "partitions": partitions,
                }
            )
    return topics


def _partition_json(each: DescribedTopic, partition: PartitionDescription) -> dict[str, Any]:
    move = each.moves.get(partition.partition)
    return {
        "partition": partition.partition,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline_replicas": partition.offline_replicas,
        "adding_replicas": move.adding if move is not None else [],
        "removing_replicas": move.removing if move is not None else [],
        "eligible_leaders": partition.eligible_leaders,
        "last_known_eligible": partition.last_known_eligible,
    }
