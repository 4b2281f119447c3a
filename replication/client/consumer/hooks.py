"""Hooks of a program in a consumer: interceptors and a rebalance listener; and warnings about them.

    class Counting(ConsumerInterceptor):
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords: ...
        def on_commit(self, offsets) -> None: ...

    class Mine(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions): ...    still ours: commit here
        async def on_partitions_assigned(self, partitions): ...   seek here
        async def on_partitions_lost(self, partitions): ...       others may have them already

Rule 1: an interceptor that raises is written to the log and otherwise ignored: positions have
moved by then, and its mistake must not cost records. (Kafka: ConsumerInterceptors.)

Rule 2: listeners run inside the program's own call (poll, leaving the block), never beside it.

Rule 3: a listener that is cancelled is called again by the next poll. One that raises is not:
its error comes out of the poll, and the group goes on.
"""

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from replication.client.consumer.records import ConsumerRecords, OffsetAndMetadata
from replication.visible import visible_line
from storage.types import TopicPartition

Partitions: TypeAlias = Collection[TopicPartition]
ListenerMethod: TypeAlias = Callable[[Partitions], Awaitable[None] | None]


def warn(event: str, **fields: object) -> None:
    """Write one line about a failure after which the consumer goes on, for the human log.

    It goes to structlog if the program has configured it. Otherwise it goes to standard error:
    structlog would print to standard output, which belongs to the program. structlog is imported
    here: it costs a fifth of a start and is rarely used.
    """
    import structlog  # noqa: PLC0415

    if structlog.is_configured():
        logger = structlog.get_logger(__name__)
    else:
        logger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    shown = {name: visible_line(v) if isinstance(v, str) else v for name, v in fields.items()}
    logger.warning(event, **shown)


class ConsumerInterceptor:
    """Hooks that see records before the program does; override those of interest."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Return the records that the program, or the next interceptor, is given instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these offsets have been committed."""

    def close(self) -> None:
        """Note that the consumer is closed."""


class Interceptors:
    """The interceptors of one consumer, in the order given."""

    def __init__(self, interceptors: Iterable[ConsumerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        for each in self._interceptors:
            with self._warning("on_consume"):
                records = each.on_consume(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            with self._warning("on_commit"):
                each.on_commit(offsets)

    def close(self) -> None:
        for each in self._interceptors:
            with self._warning("close"):
                each.close()

    @contextmanager
    def _warning(self, method: str) -> Iterator[None]:
        """Log an error of the block, and go on (rule 1)."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            warn("interceptor_failed", method=method, error=repr(error))


class ConsumerRebalanceListener:
    """Hooks for partitions that come and go; override those of interest, plain or async."""

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Prepare for giving partitions back; they are still ours."""
        del partitions
        return None

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Prepare for partitions that are ours from now on; nothing of them has been fetched."""
        del partitions
        return None

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Clean up after partitions that have not been ours for a while."""
        return self.on_partitions_revoked(partitions)


async def call_listener(method: ListenerMethod, partitions: Partitions) -> None:
    """Call a method of a listener, and wait if it is async."""
    waits_for = method(partitions)
    if waits_for is not None:
        await waits_for
