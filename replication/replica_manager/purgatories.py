"""Who waits for a broker's partitions: one purgatory for each kind of request that may."""

from collections.abc import Callable, Iterator
from typing import Self

import attrs

from replication.leader.purgatory import Purgatory
from replication.net.seams import NodeClock
from storage.types import TopicPartition


@attrs.frozen(kw_only=True)
class Purgatories:
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
        """Ask everybody who waits for that partition, whatever for."""
        self.produce.check(topic_partition)
        self.fetch.check(topic_partition)
        self.delete_records.check(topic_partition)

    def by_operation(self) -> Iterator[tuple[str, Purgatory[TopicPartition]]]:
        """Each under the name that its metrics have."""
        yield "Produce", self.produce
        yield "Fetch", self.fetch
        yield "DeleteRecords", self.delete_records
