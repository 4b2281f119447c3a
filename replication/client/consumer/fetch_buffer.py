"""The fetched responses that have not been read to their end: a queue, and its head.

    next_in_line ── being read          queue ── [P1 0-3][P2 0-3][P0 4-7]

Rule 1: a partition in the buffer is not fetched again until it is drained or dropped. A response
without records does not count: a full response names every partition, and those without new
records would stand still until the others are read.

(Kafka: FetchBuffer.)
"""

from collections import deque
from collections.abc import Container, Iterable

import attrs

from replication.client.consumer.completed_fetch import CompletedFetch
from storage.types import TopicPartition


@attrs.define(eq=False)
class FetchBuffer:
    """Completed fetches, in the order in which they came."""

    next_in_line: CompletedFetch | None = None
    _queue: deque[CompletedFetch] = attrs.field(init=False, factory=deque)

    def is_reading(self) -> bool:
        """Return whether the head has records left."""
        return self.next_in_line is not None and not self.next_in_line.consumed

    def add(self, fetch: CompletedFetch) -> None:
        self._queue.append(fetch)

    def add_all(self, fetches: Iterable[CompletedFetch]) -> None:
        self._queue.extend(fetches)

    def peek(self) -> CompletedFetch | None:
        return self._queue[0] if self._queue else None

    def pop(self) -> None:
        self._queue.popleft()

    def buffered_partitions(self) -> set[TopicPartition]:
        """Return the partitions with records to read, or with an error to raise."""
        return {fetch.partition for fetch in self.held() if fetch.size or fetch.data.error_code}

    def retain_all(self, partitions: Container[TopicPartition]) -> None:
        """Drop the responses about other partitions."""
        kept = []
        for fetch in self._queue:
            if fetch.partition in partitions:
                kept.append(fetch)
            else:
                fetch.drain()
        self._queue = deque(kept)
        if self.next_in_line is not None and self.next_in_line.partition not in partitions:
            self.next_in_line.drain()
            self.next_in_line = None

    def held(self) -> Iterable[CompletedFetch]:
        """Yield the responses that are not read to their end."""
        if self.next_in_line is not None and self.is_reading():
            yield self.next_in_line
        yield from self._queue
