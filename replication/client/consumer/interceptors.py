"""What a program hangs into a consumer: sees records before it does, and commits after.

    class Counting(ConsumerInterceptor):
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords: ...
        def on_commit(self, offsets) -> None: ...

Rule: an interceptor that raises is written to the log and otherwise ignored: positions have
moved by then, and its mistake must not cost records. (Kafka: ConsumerInterceptors.)
"""

from collections.abc import Iterable, Mapping

from replication.client.consumer.records import ConsumerRecords, OffsetAndMetadata
from replication.client.log import warn
from storage.types import TopicPartition


class ConsumerInterceptor:
    """Override what is of interest."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """What the program is handed instead; of several, each is given the last one's."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These have been committed."""

    def close(self) -> None:
        """The consumer is closed."""


class Interceptors:
    """All of them, in the order given."""

    def __init__(self, interceptors: Iterable[ConsumerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        for each in self._interceptors:
            try:
                records = each.on_consume(records)
            except Exception as error:  # noqa: BLE001 - the rule of this module
                warn("interceptor_failed", method="on_consume", error=repr(error))
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception as error:  # noqa: BLE001 - the rule of this module
                warn("interceptor_failed", method="on_commit", error=repr(error))

    def close(self) -> None:
        for each in self._interceptors:
            try:
                each.close()
            except Exception as error:  # noqa: BLE001 - the rule of this module
                warn("interceptor_failed", method="close", error=repr(error))
