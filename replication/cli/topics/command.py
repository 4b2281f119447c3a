"""The commands. After each change they wait until brokers show it, and print what they show.

understudy topic create orders --partitions 3 --config retention.ms=60000
understudy topic describe orders
understudy topic delete --topic 'tmp-.*'              only shows them; --execute deletes them
"""

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import click

from replication.cli.command_groups import CommandGroup
from replication.cli.connection import ClusterConnection, connected, key_values
from replication.cli.output import (
    EXECUTE,
    JSON,
    OUTPUT,
    show_json,
    show_line,
    tell,
    tell_unless_executed,
)
from replication.cli.patience import NotFoundError, gone, led, patiently
from replication.cli.topics.choosing import (
    INTERNAL,
    PATTERN,
    TOPICS,
    Only,
    WantedTopics,
    assignment,
    names_of,
    only_some,
)
from replication.cli.topics.describing import DescribedTopic, as_json, described, lines
from replication.client.admin import Admin, NewTopic
from replication.client.admin.values import TopicDescription
from replication.errors import ErrorCode, KafkaError
from storage.checkpoint import uuid_text

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
    type=click.IntRange(min=1),
    help="The number of partitions.  [default: num.partitions of the cluster]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="The number of replicas of each partition.  [default: default.replication.factor]",
)
@ASSIGNMENT
@click.option(
    "--config", "configs", callback=key_values, multiple=True, metavar="KEY=VALUE",
    help="A configuration of the topic; may be repeated.",
)  # fmt: skip
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists already.")
@connected()
@OUTPUT
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
        return is_new, await led(
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
    if output == JSON:
        show_json(
            {
                "topic": found.name,
                "created": created,
                "topic_id": uuid_text(found.topic_id),
                "partition_count": len(found.partitions),
                "replication_factor": replicas,
            }
        )
        return
    show_line(f"Created topic {found.name}." if created else f"Topic {found.name} exists.")
    show_line(
        f"{found.name}: {len(found.partitions)} partitions, replication factor {replicas}, all with a leader"
    )


@command.command(name="list")
@PATTERN
@EXCLUDE_INTERNAL
@connected()
@OUTPUT
def list_topics(
    pattern: str | None, *, exclude_internal: bool, connection: ClusterConnection, output: str
) -> None:
    """List the names of topics."""
    wanted = WantedTopics(pattern=pattern, exclude_internal=exclude_internal, if_exists=True)
    found = connection.ask(wanted.found)
    if output == JSON:
        show_json([{"topic": name, "is_internal": name in INTERNAL} for name in found])
    else:
        for name in found:
            show_line(name)


@command.command(name="describe")
@TOPICS
@PATTERN
@click.option("--topic-id", help="Describe only the topic of this id.")
@only_some
@click.option(
    "--topics-with-overrides",
    is_flag=True,
    help="Show only topics with configurations of their own.",
)
@IF_EXISTS
@EXCLUDE_INTERNAL
@connected()
@OUTPUT
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

    found = connection.look(all_of_them)
    if output == JSON:
        show_json(as_json(found, only))
    else:
        for line in lines(found, only):
            show_line(line)


@command.command(name="alter")
@TOPICS
@PATTERN
@click.option(
    "--partitions", type=click.IntRange(min=1), required=True, help="The new number of partitions."
)
@ASSIGNMENT
@IF_EXISTS
@connected()
@OUTPUT
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
    names_of(names, pattern)
    wanted = WantedTopics(names=tuple(names), pattern=pattern, if_exists=if_exists)

    async def grown(admin: Admin) -> list[TopicDescription]:
        found = await patiently(partial(wanted.found, admin), timeout_ms=connection.timeout_ms)
        before = await admin.describe_topics(found) if replicas else {}
        new = {name: replicas[len(each.partitions) :] for name, each in before.items()}
        await admin.create_partitions(dict.fromkeys(found, partitions), replicas=new)
        return [
            await led(admin, name, partitions, timeout_ms=connection.timeout_ms, after="Altered")
            for name in found
        ]

    found = connection.ask(grown)
    if output == JSON:
        show_json([{"topic": e.name, "partition_count": len(e.partitions)} for e in found])
    else:
        for each in found:
            show_line(f"{each.name}: {len(each.partitions)} partitions, all with a leader")


@command.command(name="delete")
@TOPICS
@PATTERN
@IF_EXISTS
@EXECUTE
@connected()
@OUTPUT
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
    names_of(names, pattern)
    wanted = WantedTopics(names=tuple(names), pattern=pattern, if_exists=if_exists)

    async def deleted(admin: Admin) -> list[str]:
        found = await patiently(partial(wanted.found, admin), timeout_ms=connection.timeout_ms)
        if execute and found:
            await admin.delete_topics(found)
            await gone(admin, found, timeout_ms=connection.timeout_ms)
        return found

    found = connection.ask(deleted)
    if output == JSON:
        show_json([{"topic": name, "deleted": execute} for name in found])
    else:
        for name in found:
            show_line(f"Deleted topic {name}." if execute else f"Would delete topic {name}.")
    tell_unless_executed(execute=execute)
