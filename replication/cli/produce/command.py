r"""The command `understudy produce`.

seq 3 | understudy produce orders
understudy produce orders --property parse.key=true --property key.separator=: --acks 1 < file
understudy produce orders --transactional-id T --abort < file       an aborted transaction
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import attrs
import click
import trio

from replication.cli import completion
from replication.cli.connection import ClusterConnection, connected, exact_key_values
from replication.cli.interruptions import interruptible
from replication.cli.output import JSON, OUTPUT, CommandError, tell
from replication.cli.patience import NotFoundError
from replication.cli.produce.lines import Lines
from replication.cli.produce.sending import LineSending
from replication.cli.streams import StandardInput, StandardOutput
from replication.client.admin import Admin
from replication.client.producer import Producer
from replication.errors import UnderstudyError
from storage.batch.records import Header

HEAR_SECONDS = 2.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


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
    type=click.IntRange(min=0),
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
@click.option(
    "--property",
    "--reader-property",
    "properties",
    multiple=True,
    callback=exact_key_values,
    metavar="KEY=VALUE",
    help="How to read lines, as in Kafka's console producer: parse.key=true, key.separator=:.",
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
    help="The replicas that must have a record: all in sync, the leader, or none.  [default: all]",
)
@click.option(
    "--compression-type",
    "--compression-codec",
    type=click.Choice(CODECS),
    help="How to compress batches.",
)
@click.option("--batch-size", type=click.IntRange(min=0), help="The size of a batch in bytes.")
@click.option(
    "--sync", is_flag=True, help="Wait for each record's acknowledgement before sending the next."
)
@click.option("--transactional-id", help="Send the whole input as one transaction of this id.")
@click.option("--abort", is_flag=True, help="Abort the transaction at the end of the input.")
@connected("--producer-config", "--producer.config", property_names=["--producer-property"])
@OUTPUT
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


@attrs.frozen(kw_only=True)
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
        with trio.move_on_after(min(HEAR_SECONDS, self.connection.timeout_ms / 1000)):
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
