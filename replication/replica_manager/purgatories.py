"""The requests that wait for a broker's partitions: one purgatory for each kind."""

from collections.abc import Callable, Iterator
from typing import Self

from replication.leader.purgatory import Purgatory
from replication.net.seams import NodeClock
from storage.attributes import frozen
from storage.types import TopicPartition


@frozen(kw_only=True)
class Purgatories:
    """The purgatories of one broker."""

    produce: Purgatory[TopicPartition]
    fetch: Purgatory[TopicPartition]
    delete_records: Purgatory[TopicPartition]

    @classmethod
    def empty(cls, *, clock: NodeClock, on_bug: Callable[[BaseException], None]) -> Self:
        return cls(
            produce=Purgatory(clock=clock, on_bug=on_bug),
            fetch=Purgatory(clock=clock, on_bug=on_bug),
            delete_records=Purgatory(clock=clock, on_bug=on_bug),
        )

    def check(self, topic_partition: TopicPartition) -> None:
        """Check all requests that wait for that partition."""
        self.produce.check(topic_partition)
        self.fetch.check(topic_partition)
        self.delete_records.check(topic_partition)

    def by_operation(self) -> Iterator[tuple[str, Purgatory[TopicPartition]]]:
        """Yield each with the name that its metrics have."""
        yield "Produce", self.produce
        yield "Fetch", self.fetch
        yield "DeleteRecords", self.delete_records
