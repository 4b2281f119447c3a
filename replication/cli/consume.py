r"""`understudy consume`: records of any Kafka cluster, with the flags of Kafka's consumer and kcat.

    understudy consume orders --from-beginning --property print.key=true
    understudy consume orders -o -10 -e -f '%t-%p %o %k %s\n'
    understudy consume orders -e -o earliest --filter 'value~"total":\s*0' --output json | jq .key

It ends for one of four reasons:

    enough        --max-messages records that match the filters
    at the end    -e: where every partition ended at first sight
    too quiet     --timeout-ms without a record
    interrupted   by a signal

Rule: records of a poll are written at once, even when interrupted. Records beyond --max-messages are
given back by a seek, so that the group continues with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import click
import trio

from replication.cli import completion
from replication.cli.choosing import pattern
from replication.cli.connection import ClusterConnection, connected
from replication.cli.consume_choice import (
    Filter,
    Place,
    WantedPartitions,
    Where,
    filters,
    go_to,
    place,
)
from replication.cli.consume_formats import (
    Deserialisers,
    Format,
    KafkaDeserialiser,
    NotDeserialisableError,
    as_json,
    by_pattern,
    by_properties,
    for_a_terminal,
)
from replication.cli.interruptions import interruptible
from replication.cli.options import AT_LEAST_ONE, AT_LEAST_ZERO, exact_key_values, key_values_option
from replication.cli.output import JSON, CommandError, tell
from replication.cli.streams import StandardOutput
from replication.client.consumer import Consumer, ConsumerRecord
from storage.attributes import define, frozen
from storage.types import Offset, TopicPartition

LOOK_MS = 500.0

DESERIALISERS = ("key.deserializer", "value.deserializer", "headers.deserializer")


@define(eq=False, kw_only=True)
class Reading:
    """The loop that reads, filters and writes."""

    consumer: Consumer
    sink: StandardOutput
    format: Format
    filters: Sequence[Filter] = ()
    max_messages: int | None = None
    timeout_ms: int | None = None
    """The longest time without a record."""
    exit_at_end: bool = False
    written: int = attrs.field(init=False, default=0)
    _ends: dict[TopicPartition, Offset] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        last_record_at = trio.current_time()
        while not self._is_enough and not (self.exit_at_end and await self._is_at_end()):
            records = await self.consumer.poll(timeout_ms=self._wait_ms(last_record_at))
            if records:
                last_record_at = trio.current_time()
                await self._write(records)
            elif self._wait_ms(last_record_at) <= 0:
                return

    @property
    def _is_enough(self) -> bool:
        return self.max_messages is not None and self.written >= self.max_messages

    def _wait_ms(self, last_record_at: float) -> float:
        if self.timeout_ms is None:
            return LOOK_MS
        return min(LOOK_MS, self.timeout_ms - (trio.current_time() - last_record_at) * 1000)

    async def _write(self, records: Iterable[ConsumerRecord]) -> None:
        """Write the records of a poll."""
        out: list[bytes] = []
        given_back: dict[TopicPartition, Offset] = {}
        failure: CommandError | None = None
        for record in records:
            if self._is_enough:
                given_back.setdefault(record.topic_partition, record.offset)
            elif all(holds(record) for holds in self.filters):
                try:
                    out.append(self.format(record))
                except NotDeserialisableError as error:
                    where = f"{record.topic_partition} at offset {record.offset}"
                    failure = CommandError(f"{where}: {error}")
                    break
                self.written += 1
        for partition, offset in given_back.items():
            self.consumer.seek(partition, offset)
        if out:
            await self.sink.write(b"".join(out))
        if failure is not None:
            raise failure

    async def _is_at_end(self) -> bool:
        assigned = self.consumer.assignment()
        unseen = assigned - self._ends.keys()
        if unseen:
            self._ends |= await self.consumer.end_offsets(unseen)
        return bool(assigned) and all(
            [await self.consumer.position(each) >= self._ends[each] for each in assigned]
        )


@click.command(name="consume")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=completion.topics)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=completion.topics,
    help="A topic, as the argument TOPIC; may be repeated.",
)
@click.option(
    "--include",
    callback=pattern,
    metavar="PATTERN",
    help="Read every topic whose whole name matches.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=AT_LEAST_ZERO,
    multiple=True,
    help="Read only this partition; may be repeated.",
)
@click.option(
    "-o",
    "--offset",
    "at",
    callback=place,
    metavar="earliest|latest|stored|N|-N|s@MS",
    help="The offset to begin at.  [default: latest]",
)
@click.option(
    "--from-beginning", is_flag=True, help="Begin at the earliest offset, as --offset earliest."
)
@click.option(
    "-G",
    "--group",
    shell_complete=completion.groups,
    help="Read as a member of this consumer group, from its committed offsets.",
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    help="How the group assigns partitions: a member does (classic), or the brokers (consumer).",
)
@click.option("-c", "--max-messages", type=AT_LEAST_ONE, help="End after this many records.")
@click.option(
    "--timeout-ms", type=AT_LEAST_ONE, help="End after this many milliseconds without a record."
)
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="End at the offsets where the partitions end now."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether to show records of open and aborted transactions.",
)
@click.option(
    "--filter",
    "wanted",
    multiple=True,
    callback=filters,
    metavar="TEXT|key=TEXT|value~REGEX|header.NAME=TEXT",
    help="Show only records that match; repeated filters must all match.",
)
@key_values_option(
    *("--property", "--formatter-property", "properties"),
    callback=exact_key_values,
    about="How to show records, as in Kafka's console consumer: print.key=true, key.separator=:.",
)
@click.option(
    "--key-deserializer",
    metavar="NAME",
    help="How to read keys: Long, or the full name of a class of Kafka.",
)
@click.option(
    "--value-deserializer", metavar="NAME", help="How to read values, as --key-deserializer."
)
@click.option(
    "-f",
    "--format",
    "form",
    metavar="FORMAT",
    help=r"The form of a record, as in kcat -f: '%t %p %o %k %s\n'.",
)
@connected(
    "--consumer-config",
    "--consumer.config",
    property_names=["--consumer-property", "--command-property"],
)
def command(
    *,
    names: Sequence[str],
    topics: Sequence[str],
    include: str | None,
    partitions: Sequence[int],
    at: Place | None,
    from_beginning: bool,
    group: str | None,
    group_protocol: str | None,
    isolation_level: str | None,
    properties: Mapping[str, str],
    key_deserializer: str | None,
    value_deserializer: str | None,
    form: str | None,
    connection: ClusterConnection,
    output: str,
    **until: Any,
) -> None:
    """Write records of topics to standard output, as unchanged bytes.

    It joins no group unless --group names one. It ends when it is interrupted, or as
    --max-messages, --timeout-ms or --exit-at-end say.
    """
    chosen = WantedPartitions(
        topics=(*names, *topics), include=include, partitions=tuple(partitions)
    )
    if not chosen.topics and include is None:
        raise click.UsageError("give the TOPIC, or --include")
    if at is not None and from_beginning:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    group = group or connection.properties.get("group.id")
    if group_protocol is not None and group is None:
        raise click.UsageError("--group-protocol needs --group")
    if at is not None and group is not None and not partitions:
        raise click.UsageError(
            "--offset with --group needs --partition, because a group has other members"
        )
    if at is not None and at.where is Where.STORED and group is None:
        raise click.UsageError("--offset stored needs --group")
    consumption = Consumption(
        connection=connection,
        wanted=chosen,
        group=group,
        group_protocol=group_protocol,
        place=Place(Where.BEGINNING) if from_beginning and group is None else at,
        from_beginning=from_beginning,
        isolation_level=isolation_level,
        format=_format(
            output,
            {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
            | {**properties},
            form,
        ),
        until=until,
    )
    connection.run(trio.run, consumption.run)


def _format(output: str, properties: Mapping[str, str | None], form: str | None) -> Format:
    given = {name: value for name, value in properties.items() if value is not None}
    kinds = {name: given.pop(name) for name in DESERIALISERS if name in given}
    if (output == JSON) + bool(given) + (form is not None) > 1:
        raise click.UsageError("--output json, --property and --format exclude each other")
    if kinds and form is not None:
        raise click.UsageError("--format writes unchanged bytes and excludes deserializers")
    try:
        found = Deserialisers(
            **{name.partition(".")[0]: KafkaDeserialiser(kind) for name, kind in kinds.items()}
        )
        if form is not None:
            return by_pattern(form)
        return as_json(found) if output == JSON else by_properties(given, found)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@frozen(kw_only=True)
class Consumption:
    """One run of the command."""

    connection: ClusterConnection
    wanted: WantedPartitions
    group: str | None
    group_protocol: str | None
    place: Place | None
    from_beginning: bool
    isolation_level: str | None
    format: Format
    until: Mapping[str, Any]

    async def run(self) -> None:
        sink = StandardOutput.standard()
        form = for_a_terminal(self.format) if sink.is_terminal else self.format
        partitions = await self._partitions()
        async with interruptible() as interruption, Consumer(**self._config()) as consumer:
            filters: tuple[Filter, ...] = self.until["wanted"]
            limits = {key: value for key, value in self.until.items() if key != "wanted"}
            reading = Reading(consumer=consumer, sink=sink, format=form, filters=filters, **limits)
            with interruption.scope:
                await self._begin(consumer, partitions)
                await reading.run()
        tell(f"Processed a total of {reading.written} messages")
        interruption.end_if_interrupted()

    async def _partitions(self) -> list[TopicPartition]:
        """Return the partitions to read; an unknown topic is reported before anything is read."""
        return await self.connection.for_admin().ask_retrying_within(self.wanted.found)

    def _config(self) -> dict[str, Any]:
        given = self.connection.config(
            client_id="understudy-consume",
            allow_auto_create_topics=False,
            auto_offset_reset="earliest" if self.from_beginning else "latest",
        )
        options = {
            "group_id": self.group,
            "group_protocol": self.group_protocol,
            "isolation_level": self.isolation_level,
        }
        return given | {key: value for key, value in options.items() if value is not None}

    async def _begin(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if self.group is not None and not self.wanted.partitions:
            if self.wanted.include is not None:
                consumer.subscribe(pattern=self.wanted.include)
            else:
                consumer.subscribe(self.wanted.topics)
            return
        consumer.assign(partitions)
        default = Place(Where.END if self.group is None else Where.STORED)
        timeout_ms = self.connection.timeout_ms
        await go_to(consumer, partitions, self.place or default, timeout_ms=timeout_ms)
