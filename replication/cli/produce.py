"""`understudy produce`: standard input as records, with the flags of Kafka's producer and kcat.

    seq 3 | understudy produce orders
    understudy produce orders --property parse.key=true --property key.separator=: --acks 1 < file
    understudy produce orders --transactional-id T --abort < file       an aborted transaction

Rule 1: failed records are counted, and the first reason is kept; the other records are sent all the
same. The command then ends with exit code 1.

Rule 2: at most MOST_UNDER_WAY records are under way, however long the input is.

Rule 3: a line that is not a valid record ends the reading. The records before it are sent; a
transaction is aborted.
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import click
import trio

from replication.cli import completion
from replication.cli.connection import ClusterConnection, NotFoundError, connected
from replication.cli.interruptions import interruptible
from replication.cli.options import AT_LEAST_ZERO, exact_key_values, key_values_option
from replication.cli.output import JSON, CommandError, json_line, tell
from replication.cli.produce_lines import InputLine, Lines
from replication.cli.streams import StandardInput, StandardOutput
from replication.client.admin import Admin
from replication.client.errors import RecordTooLargeError
from replication.client.producer import Producer
from replication.client.producer.batch import Delivery, RecordMetadata
from replication.errors import UnderstudyError
from storage.attributes import define, frozen
from storage.batch.records import Header

MOST_UNDER_WAY = 10_000

TOPIC_WAIT_SECONDS = 2.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@define(eq=False, kw_only=True)
class LineSending:
    """The sending of one input."""

    producer: Producer[bytes, bytes]
    topic: str
    lines: Lines
    source: StandardInput
    sink: StandardOutput | None
    """The output for the offset of each record, as JSON; None without it."""
    partition: int | None = None
    key: bytes | None = None
    """The key of records that have none."""
    headers: tuple[Header, ...] = ()
    """The headers of every record."""
    empty_is_null: bool = False
    sync: bool = False
    acked: int = attrs.field(init=False, default=0)
    failed: int = attrs.field(init=False, default=0)
    first_failure: Exception | None = attrs.field(init=False, default=None)
    offsets: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict)
    """The first and the last offset of each partition."""
    _under_way: deque[Delivery] = attrs.field(init=False, factory=deque)

    async def run(self) -> None:
        """Send the whole input; `settle` then waits for the records under way."""
        while data := await self.source.read():
            await self._send(self.lines.feed(data))
        await self._send(self.lines.last())

    async def settle(self, most: int = 0) -> None:
        """Wait until at most `most` records are under way."""
        written: list[bytes] = []
        while len(self._under_way) > most:
            try:
                metadata = await self._under_way[0].wait()
            except UnderstudyError as error:
                self._note(error)
            else:
                self._count(metadata)
                if self.sink is not None:
                    written.append(_line(metadata))
            self._under_way.popleft()
        if self.sink is not None and written:
            await self.sink.write(b"".join(written))

    async def _send(self, lines: Sequence[InputLine]) -> None:
        records = [self._completed(line) for line in lines]
        if not records:
            return
        if self.sync or any(record.headers for record in records):
            await self._one_by_one(records)
        else:
            await self._together(records)
        # With JSON, the offset of a record is printed as soon as it is known.
        await self.settle(0 if self.sink is not None else MOST_UNDER_WAY)

    def _completed(self, line: InputLine) -> InputLine:
        value = None if self.empty_is_null and not line.value else line.value
        key = self.key if line.key is None and not self.lines.parse_key else line.key
        return InputLine(key, value, (*self.headers, *line.headers))

    async def _together(self, records: Sequence[InputLine]) -> None:
        keys = [record.key for record in records]
        try:
            deliveries = await self.producer.send_many(
                self.topic,
                [record.value for record in records],
                keys=keys if any(key is not None for key in keys) else None,
                partition=self.partition,
            )
        except RecordTooLargeError:  # nothing was sent
            await self._one_by_one(records)
        else:
            self._under_way.extend(deliveries)

    async def _one_by_one(self, records: Iterable[InputLine]) -> None:
        for key, value, headers in records:
            try:
                self._under_way.append(
                    await self.producer.send_soon(
                        self.topic, value, key, partition=self.partition, headers=headers
                    )
                )
            except RecordTooLargeError as error:
                self._note(error)
            if self.sync:
                await self.settle()

    def _note(self, error: UnderstudyError) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or error

    def _count(self, metadata: RecordMetadata) -> None:
        self.acked += 1
        first, last = self.offsets.get(metadata.partition, (metadata.offset, metadata.offset))
        self.offsets[metadata.partition] = min(first, metadata.offset), max(last, metadata.offset)

    def summary(self) -> str:
        """Return a line such as `3 records in t: partition 0 at offsets 5 to 7`."""
        where = ", ".join(
            f"partition {partition}" + (f" at offsets {first} to {last}" if first >= 0 else "")
            for partition, (first, last) in sorted(self.offsets.items())
        )
        return f"{self.acked} records in {self.topic}" + (f": {where}" if where else "")


def _line(metadata: RecordMetadata) -> bytes:
    found = {
        "topic": metadata.topic,
        "partition": metadata.partition,
        "offset": metadata.offset if metadata.offset >= 0 else None,
        "timestamp": metadata.timestamp,
    }
    return json_line(found).encode() + b"\n"


def as_bytes(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def header_pairs(
    ctx: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> tuple[Header, ...]:
    """Return the pairs of `NAME=VALUE` options; a name may be repeated."""
    pairs = [each.partition("=") for each in value]
    exact_key_values(ctx, option, value)  # raises BadParameter for an invalid one
    return tuple((name, text.encode()) for name, _, text in pairs)


@click.command(name="produce")
@click.argument("name", required=False, metavar="TOPIC", shell_complete=completion.topics)
@click.option(
    "-t", "--topic", "option_name", metavar="TOPIC", shell_complete=completion.topics,
    help="The topic, as the argument TOPIC.",
)  # fmt: skip
@click.option(
    "-p",
    "--partition",
    type=AT_LEAST_ZERO,
    help="The partition of every record; by default the key decides.",
)
@click.option("-k", "--key", callback=as_bytes, help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=header_pairs,
    metavar="NAME=VALUE",
    help="A header of every record; may be repeated.",
)
@key_values_option(
    *("--property", "--reader-property", "properties"),
    callback=exact_key_values,
    about="How to read lines, as in Kafka's console producer: parse.key=true, key.separator=:.",
)
@click.option(
    "-K", "key_delimiter", metavar="TEXT", help="Split each line at TEXT into a key and a value."
)
@click.option(
    "-D",
    "--delimiter",
    default="\n",
    metavar="TEXT",
    help="The text that ends a record.  [default: newline]",
)
@click.option(
    "-Z", "--empty-is-null", is_flag=True, help="Send an empty value as null, a tombstone."
)
@click.option(
    "--acks",
    "--request-required-acks",
    type=click.Choice(["all", "-1", "0", "1"]),
    help="The replicas that must store a record: all in sync (all, -1), the leader (1), or none (0).  [default: all]",
)
@click.option(
    "--compression-type",
    "--compression-codec",
    type=click.Choice(CODECS),
    help="How to compress batches.",
)
@click.option("--batch-size", type=AT_LEAST_ZERO, help="The size of a batch in bytes.")
@click.option(
    "--sync", is_flag=True, help="Wait for each record's acknowledgement before sending the next."
)
@click.option("--transactional-id", help="Send the whole input as one transaction of this id.")
@click.option("--abort", is_flag=True, help="Abort the transaction at the end of the input.")
@connected(
    "--producer-config",
    "--producer.config",
    property_names=["--producer-property", "--command-property"],
)
def command(
    *,
    name: str | None,
    option_name: str | None,
    properties: Mapping[str, str],
    key_delimiter: str | None,
    delimiter: str,
    abort: bool,
    acks: str | None,
    compression_type: str | None,
    batch_size: int | None,
    transactional_id: str | None,
    connection: ClusterConnection,
    output: str,
    **records: Any,
) -> None:
    """Send each line of standard input as a record, and wait for the acknowledgements.

    Bytes are sent unchanged. With --output json, the offset of each record is printed.
    """
    if (name is None) == (option_name is None):
        raise click.UsageError("give the TOPIC, or --topic")
    if not delimiter:
        raise click.UsageError("--delimiter is empty")
    config = {
        "acks": acks,
        "compression_type": compression_type,
        "batch_size": batch_size,
        "transactional_id": transactional_id,
    }
    if abort and not (transactional_id or connection.properties.get("transactional.id")):
        raise click.UsageError("--abort needs --transactional-id")
    if key_delimiter is not None:
        properties = {"parse.key": "true", "key.separator": key_delimiter, **properties}
    try:
        lines = Lines.of(properties, end=delimiter.encode())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    production = Production(
        connection=connection,
        topic=name or option_name or "",
        lines=lines,
        config={key: value for key, value in config.items() if value is not None},
        as_json=output == JSON,
        abort=abort,
        records=records,
    )
    connection.run(trio.run, production.run)


@frozen(kw_only=True)
class Production:
    """One run of the command."""

    connection: ClusterConnection
    topic: str
    lines: Lines
    config: Mapping[str, Any]
    as_json: bool
    abort: bool
    records: Mapping[str, Any]

    async def run(self) -> None:
        source = StandardInput.standard()
        sink = StandardOutput.standard() if self.as_json else None
        given = self.connection.config(
            client_id="understudy-produce", max_block_ms=self.connection.timeout_ms
        )
        producing: Producer[bytes, bytes] = Producer(**(given | {**self.config}))
        async with interruptible() as interruption, producing as producer:
            await self._wait_for_topic(producer)
            sending = LineSending(
                    producer=producer, topic=self.topic, lines=self.lines, source=source,
                    sink=sink, **self.records,
                )  # fmt: skip
            if producer.config.transactional_id:
                outcome = await self._in_a_transaction(sending, interruption.scope)
            else:
                outcome = await self._send(sending, interruption.scope)
        tell(f"{sending.summary()}{outcome}")
        interruption.end_if_interrupted()
        if sending.failed:
            raise CommandError(f"{sending.failed} records failed: {sending.first_failure}")

    async def _wait_for_topic(self, producer: Producer[bytes, bytes]) -> None:
        """Wait for the topic, which brokers may create; raise NotFoundError if they do not."""
        with trio.move_on_after(min(TOPIC_WAIT_SECONDS, self.connection.timeout_ms / 1000)):
            await producer.partitions_for(self.topic)
            return
        if await self.connection.for_admin().ask_within(self._is_unknown):
            raise NotFoundError(f"Topic '{self.topic}' does not exist as expected")
        await producer.partitions_for(self.topic)

    async def _is_unknown(self, admin: Admin) -> bool:
        return self.topic not in await admin.list_topics()

    async def _send(self, sending: LineSending, scope: trio.CancelScope) -> str:
        try:
            with scope:
                await sending.run()
        finally:
            await sending.settle()
        return ""

    async def _in_a_transaction(self, sending: LineSending, scope: trio.CancelScope) -> str:
        """Send everything in one transaction; return a remark on its result."""
        sending.producer.begin_transaction()
        try:
            await self._send(sending, scope)
        except Exception:
            with contextlib.suppress(UnderstudyError):  # the first error says more
                await sending.producer.abort_transaction()
            raise
        if self.abort or sending.failed or scope.cancelled_caught:
            await sending.producer.abort_transaction()
            return "; the transaction was aborted: read_committed consumers see none of them"
        await sending.producer.commit_transaction()
        return "; the transaction was committed"
