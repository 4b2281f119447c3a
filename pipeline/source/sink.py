"""The sink, which writes tables and streams to topics: `df.write.format("understudy")`.

    key, value      binary or string; `value` is required
    topic           or the option of that name, which overrides the column
    partition       int; if it is null, the key chooses
    headers         array<struct<key:string,value:binary>>

Rule 1: a task sends its rows in their order and succeeds when all of them are acknowledged. The
producer is idempotent (KIP-98): an attempt at a task writes each row once, even if connections or
leaders fail. A task that Spark runs again writes its rows again, as with Spark's own sink.

Rule 2: with `transactionalIdPrefix` each task is a transaction, which commits with its rows that
the task is done: the number of the micro-batch, as the offset of a group of its own.

    task 3 of batch 17     id and group: prefix-query-3      group's offset 17: not done yet
      begin  rows...  offset 18  commit                      group's offset 18: done, skipped

An attempt that died leaves nothing for read_committed consumers, an attempt that still runs
elsewhere is fenced, and a repetition after the commit writes nothing. That is exactly once as
long as Spark cuts a repeated batch into the same tasks: it does unless the query or its number
of partitions changes.

(KafkaWriteTask, KafkaStreamingWrite in Spark; KIP-447 for offsets in a transaction.)
"""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import trio
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pipeline.source.errors import OptionError, SourceError
from pipeline.source.given import KAFKA, lowered
from pipeline.source.options import OURS_TO_DECIDE, check_known
from replication.client.admin import Admin
from replication.client.config import ClientConfig, keys_of
from replication.client.producer import Producer
from replication.client.producer.batch import Deliveries, Delivery
from replication.client.producer.config import ProducerConfig
from replication.errors import ConfigError
from replication.net import production_seams
from storage.batch.records import Header
from storage.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = (
    *("topic", "includeHeaders", "transactionalIdPrefix"),
    # Options that Spark itself adds to a writer's.
    *("path", "checkpointLocation", "queryName", "outputMode"),
)
_KINDS: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@attrs.frozen(kw_only=True)
class SinkOptions:
    """The options of a writer."""

    topic: str | None
    properties: Mapping[str, str]
    """Kafka's properties, for the producer."""
    transactional_id_prefix: str | None

    @property
    def clients(self) -> dict[str, Any]:
        """The properties that an admin client has, too."""
        known = keys_of(ClientConfig)
        return {
            name.replace(".", "_"): value
            for name, value in self.properties.items()
            if name in known
        }


def parse_sink_options(given: Mapping[str, str], kinds: Mapping[str, str]) -> SinkOptions:
    """Parse the options; raise OptionError for an invalid option or column."""
    options = lowered(given)
    check_known(options, KNOWN)
    properties = {
        name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)
    }
    for name in (*OURS_TO_DECIDE, "transactional.id", "enable.idempotence"):
        if name in properties:
            raise OptionError(f"option {KAFKA}{name} cannot be set: the sink decides that")
    properties.setdefault("client.id", "understudy-spark")
    try:
        ProducerConfig.from_properties({**properties, "enable.idempotence": "true"})
    except ConfigError as error:
        raise OptionError(f"an option {KAFKA}*: {error}") from error
    topic = options.get("topic")
    if "value" not in kinds:
        raise OptionError("a table to be written needs a column `value`")
    if topic is None and "topic" not in kinds:
        raise OptionError("give the option `topic`, or a column of that name")
    for name, choices in _KINDS.items():
        if name in kinds and kinds[name] not in choices:
            raise OptionError(f"column {name} is {kinds[name]}, not {' or '.join(choices)}")
    return SinkOptions(
        topic=topic,
        properties=properties,
        transactional_id_prefix=options.get("transactionalidprefix"),
    )


class Row(NamedTuple):
    """A row that becomes one record."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def rows_of(batch: "pa.RecordBatch", topic: str | None) -> Iterator[Row]:
    """Yield the rows of a batch; raise SourceError if one names no topic."""
    names = batch.schema.names

    def column(name: str) -> Iterable[Any]:
        return batch.column(name).to_pylist() if name in names else [None] * batch.num_rows

    topics = [topic] * batch.num_rows if topic is not None else column("topic")
    columns = (topics, *map(column, ("partition", "key", "value", "headers")))
    for where, partition, key, value, headers in zip(*columns, strict=True):
        if where is None:
            raise SourceError("a row whose topic is null: set the option `topic`, or the column")
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield Row(where, partition, _bytes(key), _bytes(value), pairs)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@attrs.frozen
class TaskResult(WriterCommitMessage):
    """The result of one task."""

    rows: int
    skipped: bool = False


@attrs.frozen(kw_only=True)
class Turn:
    """A task of a batch; it is the same for each attempt."""

    job: str
    partition: int
    batch: int

    def name(self, prefix: str) -> str:
        """Return the task's transactional id, which is also the group of its finished batches."""
        return f"{prefix}-{self.job}-{self.partition}"


@attrs.frozen
class Sending:
    """The sending of one task's rows."""

    options: SinkOptions
    turn: Turn

    def run(self, batches: Iterator["pa.RecordBatch"]) -> TaskResult:
        return trio.run(self._run, batches)

    async def _run(self, batches: Iterator["pa.RecordBatch"]) -> TaskResult:
        prefix = self.options.transactional_id_prefix
        if prefix is None:
            async with self._producer() as producer:
                return TaskResult(await self._send(producer, batches, set()))
        name = self.turn.name(prefix)
        async with self._producer(transactional_id=name) as producer:
            # Earlier producers of this name are fenced now: nothing more will be committed.
            if await self._batches_done(name) > self.turn.batch:
                return TaskResult(0, skipped=True)
            topics: set[str] = set()
            async with producer.transaction():
                rows = await self._send(producer, batches, topics)
                if topics:
                    done = {TopicPartition(min(topics), 0): self.turn.batch + 1}
                    await producer.send_offsets_to_transaction(done, name)
            return TaskResult(rows)

    @contextlib.asynccontextmanager
    async def _producer(self, **more: Any) -> AsyncIterator["Producer[bytes, bytes]"]:
        words: dict[str, Any] = {
            name.replace(".", "_"): text for name, text in self.options.properties.items()
        }
        made: Producer[bytes, bytes] = Producer(**words, enable_idempotence="true", **more)
        async with made as producer:
            yield producer

    async def _batches_done(self, group: str) -> int:
        async with Admin(**self.options.clients) as admin:
            offsets = await admin.list_group_offsets(group, require_stable=True)
        return max((each.offset for each in offsets.values()), default=0)

    async def _send(
        self,
        producer: "Producer[bytes, bytes]",
        batches: Iterator["pa.RecordBatch"],
        topics: set[str],
    ) -> int:
        """Send the rows, and return their number once all are acknowledged; raise the first error."""
        offload, count = production_seams().offload, 0
        before: list[Delivery | Deliveries] = []
        # Spark may be slow to deliver; acknowledgements arrive meanwhile.
        while (batch := await offload(lambda: next(batches, None))) is not None:
            sent: list[Delivery | Deliveries] = []
            rows = rows_of(batch, self.options.topic)
            for (topic, partition, is_plain), run in groupby(rows, _destination):
                topics.add(topic)
                sent += await _send_run(producer, topic, partition, list(run), is_plain=is_plain)
            # At most two batches are in memory.
            await _settle(before)
            before = sent
            count += batch.num_rows
        await producer.flush()
        await _settle(before)
        return count


async def _send_run(
    producer: "Producer[bytes, bytes]",
    topic: str,
    partition: int | None,
    rows: list[Row],
    *,
    is_plain: bool,
) -> list[Delivery | Deliveries]:
    """Send rows of one topic and partition; rows without headers go as one call."""
    if is_plain:
        values, keys = [row.value for row in rows], [row.key for row in rows]
        return [await producer.send_many(topic, values, keys=keys, partition=partition)]
    return [
        await producer.send_soon(
            topic, row.value, row.key, partition=partition, headers=row.headers
        )
        for row in rows
    ]


async def _settle(deliveries: Iterable[Delivery | Deliveries]) -> None:
    for each in deliveries:
        await each.wait()


def _destination(row: Row) -> tuple[str, int | None, bool]:
    return row.topic, row.partition, not row.headers


class RecordsWriter(DataSourceArrowWriter):
    """The writer of a table; its tasks do all the work."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        # Made once, when the write is planned: every attempt at a task has the same id.
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a task writes"
        turn = Turn(job=self.job, partition=context.partitionId(), batch=0)
        return Sending(self.options, turn).run(iterator)


class RecordsStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream; Spark numbers its batches, and keeps the numbers in its checkpoint."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a task writes"
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "a query writes"
        assert batch is not None, "its batches are numbered"
        turn = Turn(job=query, partition=context.partitionId(), batch=int(batch))
        return Sending(self.options, turn).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the tasks have committed."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: acknowledged rows stay, and transactions without a commit are aborted."""
