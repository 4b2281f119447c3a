r"""`understudy topic`: topics of any Kafka cluster, with the flags of kafka-topics.sh.

    understudy topic create orders --partitions 3 --config retention.ms=60000
    understudy topic describe orders
    understudy topic delete --topic 'tmp-.*'       only shows them; --execute deletes them

After each change a command waits until brokers show it, and prints what they show. `describe` prints
the lines of kafka-topics.sh, with tabs, because scripts grep them:

    Topic: t	TopicId: fw..	PartitionCount: 1	ReplicationFactor: 3	Configs: retention.ms=5
        Topic: t	Partition: 0	Leader: 2	Replicas: 2,3,1	Isr: 2,1	Elr: 	LastKnownElr:

A partition without a leader shows `none`. `N/A` means that the broker does not report eligible
leaders (KIP-966). Topics are sorted by name; Kafka's tool has the order of a hash map.
(org.apache.kafka.tools.TopicCommand, 4.1.)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import click

from replication.cli import CommandGroup
from replication.cli.choosing import (
    INTERNAL,
    PATTERN,
    TOPICS,
    Only,
    WantedTopics,
    assignment,
    check_topics_given,
    only_some,
)
from replication.cli.connection import (
    ClusterConnection,
    NotFoundError,
    connected,
    retry_while_unknown,
    wait_for_leaders,
    wait_until_topics_gone,
)
from replication.cli.options import AT_LEAST_ONE, key_values_option
from replication.cli.output import EXECUTE, show_answer, tell, tell_unless_executed
from replication.client.admin import Admin, NewTopic
from replication.client.admin.values import (
    ConfigValue,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MIN_INSYNC_REPLICAS
from storage.attributes import frozen
from storage.checkpoint import uuid_text
from storage.types import NO_TOPIC_ID, TopicPartition


@frozen(kw_only=True)
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
    return attrs.asdict(partition) | {
        "leader": partition.leader if partition.leader >= 0 else None,
        "adding_replicas": move.adding if move is not None else [],
        "removing_replicas": move.removing if move is not None else [],
    }


IF_EXISTS = click.option(
    "--if-exists", is_flag=True, help="Do not fail for a topic that does not exist."
)
EXCLUDE_INTERNAL = click.option(
    "--exclude-internal", is_flag=True, help="Leave out Kafka's own topics."
)
ASSIGNMENT = click.option(
    "--replica-assignment",
    "replicas",
    callback=assignment,
    metavar="1:2,2:3",
    help="The brokers of each partition, its preferred leader first.",
)


@click.group(name="topic", cls=CommandGroup)
def command() -> None:
    """Create, list, describe, alter and delete topics of any Kafka cluster."""


@command.command(name="create")
@click.argument("name", required=False, metavar="TOPIC")
@click.option("--topic", "option_name", metavar="TOPIC", help="The topic, as the argument TOPIC.")
@click.option(
    "--partitions",
    type=AT_LEAST_ONE,
    help="The number of partitions.  [default: num.partitions of the cluster]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="The number of replicas of each partition.  [default: default.replication.factor]",
)
@ASSIGNMENT
@key_values_option("--config", "configs", about="A configuration of the topic; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists already.")
@connected()
def create(
    *,
    name: str | None,
    option_name: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replicas: tuple[tuple[int, ...], ...],
    configs: Mapping[str, str],
    if_not_exists: bool,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Create a topic, and wait until each of its partitions has a leader."""
    if (name is None) == (option_name is None):
        raise click.UsageError("give the TOPIC, or --topic")
    if replicas and (partitions or replication_factor):
        raise click.UsageError(
            "--replica-assignment excludes --partitions and --replication-factor"
        )
    topic = name or option_name or ""
    if "." in topic or "_" in topic:
        tell(
            f"{topic}: metric names do not distinguish '.' and '_'; it is best to use only one of them"
        )
    new = NewTopic(
        name=topic,
        partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        replicas=replicas,
        configs=dict(configs),
    )

    async def made(admin: Admin) -> tuple[bool, TopicDescription]:
        is_new = await _create(admin, new, if_not_exists=if_not_exists)
        wanted = max(new.partitions, len(replicas)) if is_new else 1
        after = f"Created topic {topic}"
        return is_new, await wait_for_leaders(
            admin, topic, wanted, timeout_ms=connection.timeout_ms, after=after
        )

    is_new, found = connection.ask(made)
    _show_made(found, output, created=is_new)


async def _create(admin: Admin, new: NewTopic, *, if_not_exists: bool) -> bool:
    """Create a topic; return False if it exists already."""
    try:
        await admin.create_topics([new])
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
            raise
        return False
    return True


def _show_made(found: TopicDescription, output: str, *, created: bool) -> None:
    replicas = len(found.partitions[0].replicas)
    facts = {
        "topic": found.name,
        "created": created,
        "topic_id": uuid_text(found.topic_id),
        "partition_count": len(found.partitions),
        "replication_factor": replicas,
    }
    count = len(found.partitions)
    counts = f"{count} partition{'' if count == 1 else 's'}, replication factor {replicas}"
    shown = [
        f"Created topic {found.name}." if created else f"Topic {found.name} exists.",
        f"{found.name}: {counts}, all with a leader",
    ]
    show_answer(output, facts, shown)


@command.command(name="list")
@PATTERN
@EXCLUDE_INTERNAL
@connected()
def list_topics(
    pattern: str | None, *, exclude_internal: bool, connection: ClusterConnection, output: str
) -> None:
    """List the names of topics."""
    wanted = WantedTopics(pattern=pattern, exclude_internal=exclude_internal, if_exists=True)
    found = connection.ask(wanted.found)
    facts = [{"topic": name, "is_internal": name in INTERNAL} for name in found]
    show_answer(output, facts, found)


@command.command(name="describe")
@TOPICS
@PATTERN
@click.option("--topic-id", help="Describe only the topic with this id.")
@only_some
@click.option(
    "--topics-with-overrides",
    is_flag=True,
    help="Show only topics with configurations of their own.",
)
@IF_EXISTS
@EXCLUDE_INTERNAL
@connected()
def describe(
    names: Sequence[str],
    pattern: str | None,
    topic_id: str | None,
    *,
    only: Only,
    topics_with_overrides: bool,
    if_exists: bool,
    exclude_internal: bool,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Describe topics: leader, replicas and ISR of each partition. By default, all topics."""
    only = attrs.evolve(only, overrides=topics_with_overrides)
    if only.overrides and only.some_partitions:
        raise click.UsageError("--topics-with-overrides excludes the flags for partitions")
    wanted = WantedTopics(
        names=tuple(names), pattern=pattern, exclude_internal=exclude_internal, if_exists=if_exists
    )

    async def all_of_them(admin: Admin) -> list[DescribedTopic]:
        found = await described(admin, await wanted.found(admin))
        chosen = [each for each in found if topic_id in (None, uuid_text(each.topic.topic_id))]
        if topic_id is not None and not chosen and not if_exists:
            raise NotFoundError(f"TopicId '{topic_id}' does not exist as expected")
        return chosen

    found = connection.ask_retrying(all_of_them)
    show_answer(output, as_json(found, only), lines(found, only))


@command.command(name="alter")
@TOPICS
@PATTERN
@click.option(
    "--partitions", type=AT_LEAST_ONE, required=True, help="The new number of partitions."
)
@ASSIGNMENT
@IF_EXISTS
@connected()
def alter(
    names: Sequence[str],
    pattern: str | None,
    partitions: int,
    replicas: tuple[tuple[int, ...], ...],
    *,
    if_exists: bool,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Add partitions to topics; keys may go to other partitions from then on.

    --replica-assignment names the brokers of all partitions, including the existing ones.
    """
    check_topics_given(names, pattern)
    wanted = WantedTopics(names=tuple(names), pattern=pattern, if_exists=if_exists)

    async def grown(admin: Admin) -> list[TopicDescription]:
        found = await retry_while_unknown(
            partial(wanted.found, admin), timeout_ms=connection.timeout_ms
        )
        before = await admin.describe_topics(found) if replicas else {}
        new = {name: replicas[len(each.partitions) :] for name, each in before.items()}
        await admin.create_partitions(dict.fromkeys(found, partitions), replicas=new)
        return [
            await wait_for_leaders(
                admin, name, partitions, timeout_ms=connection.timeout_ms, after="Altered"
            )
            for name in found
        ]

    found = connection.ask(grown)
    counts = {each.name: len(each.partitions) for each in found}
    facts = [{"topic": name, "partition_count": count} for name, count in counts.items()]
    shown = (f"{name}: {n} partitions, all with a leader" for name, n in counts.items())
    show_answer(output, facts, shown)


@command.command(name="delete")
@TOPICS
@PATTERN
@IF_EXISTS
@EXECUTE
@connected()
def delete(
    names: Sequence[str],
    pattern: str | None,
    *,
    if_exists: bool,
    execute: bool,
    connection: ClusterConnection,
    output: str,
) -> None:
    """Delete topics and their records. Without --execute, only show which."""
    check_topics_given(names, pattern)
    wanted = WantedTopics(names=tuple(names), pattern=pattern, if_exists=if_exists)

    async def deleted(admin: Admin) -> list[str]:
        found = await retry_while_unknown(
            partial(wanted.found, admin), timeout_ms=connection.timeout_ms
        )
        if execute and found:
            await admin.delete_topics(found)
            await wait_until_topics_gone(admin, found, timeout_ms=connection.timeout_ms)
        return found

    found = connection.ask(deleted)
    done = "Deleted" if execute else "Would delete"
    facts = [{"topic": name, "deleted": execute} for name in found]
    show_answer(output, facts, (f"{done} topic {name}." for name in found))
    tell_unless_executed(execute=execute)
