"""One poll after the other: what is looked at, in which order, and what is waited for.

    woken up?          raised, and nothing is lost
    the group          joined, left, committed for
    positions          validated, reset, or taken from what was committed
    the buffer         what is in it is handed over, and the next fetches are sent before that
    nothing yet?       fetches are sent, and whatever happens next is waited for

Rule 1: between the moment in which positions move and the one in which the records are the
program's, nothing awaits. Cancelled anywhere, a poll has lost no record.

Rule 2: whatever may change the outcome of a pass calls `wake`: an answer, metadata, the
group, a program that has had enough. Time alone is looked at every `retry.backoff.ms`
while something is missing.

(Kafka: ClassicKafkaConsumer.poll, updateAssignmentMetadataIfNeeded.)
"""

from collections.abc import Callable, Container
from typing import Protocol

import attrs
import trio

from replication.client.consumer.completed_fetch import CompletedFetch
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.fetch_collector import Collected, FetchCollector, Take
from replication.client.consumer.fetcher import Fetcher
from replication.client.consumer.offset_fetcher import OffsetFetcher
from replication.client.consumer.subscription import SubscriptionState
from replication.client.errors import WakeupError
from replication.client.metadata import Metadata
from replication.net.seams import NodeClock
from storage.types import TopicPartition


class Coordinator(Protocol):
    """What a poll asks of the group; a consumer without one has `NoGroup`."""

    async def poll(self) -> None:
        """Join, rejoin, commit: what can be done now; runs the program's listeners."""

    def polled(self) -> None:
        """The program is alive (max.poll.interval.ms)."""

    def fetch_committed(self) -> bool:
        """Ask what is committed of partitions without a position; False: nobody to ask."""

    def due_in(self) -> float:
        """Seconds until it has something to do of itself."""


@attrs.define(eq=False, kw_only=True)
class PollLoop:
    """One consumer's; used by one task at a time."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    metadata: Metadata
    fetcher: Fetcher
    offset_fetcher: OffsetFetcher
    collector: FetchCollector
    coordinator: Coordinator
    clock: NodeClock
    _woken: bool = attrs.field(init=False, default=False)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _has_news: bool = attrs.field(init=False, default=False)
    """Since the last pass began."""
    _raised_version: int = attrs.field(init=False, default=0)

    def wake(self) -> None:
        """Something has changed: whoever waits shall look again."""
        self._has_news = True
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def wake_up(self) -> None:
        """The program wants the present call, or else the next one, to end (WakeupError)."""
        self._woken = True
        self.wake()

    async def collect(
        self,
        *,
        timeout_ms: float | None,
        most: int | None = None,
        only: Container[TopicPartition] | None = None,
        take: Take = CompletedFetch.take,
    ) -> Collected:
        """What there is within `timeout_ms` (None: for as long as it takes), or nothing."""
        await trio.lowlevel.checkpoint()
        deadline = None if timeout_ms is None else self.clock.now() + timeout_ms / 1000
        while True:
            changed = self._begin_pass()
            await self.update_positions()
            collected = self.collect_nowait(most=most, only=only, take=take)
            if not collected.is_empty:
                return collected
            self.fetcher.send()
            if deadline is not None and self.clock.now() >= deadline:
                return collected
            await self._wait(changed, deadline)

    def collect_nowait(
        self,
        *,
        most: int | None = None,
        only: Container[TopicPartition] | None = None,
        take: Take = CompletedFetch.take,
    ) -> Collected:
        """What the buffer holds; the next fetches are under way before it is handed over."""
        collected = self.collector.collect(most, only, take)
        if not collected.is_empty:
            self.fetcher.send()
        return collected

    def collect_ready(self, only: Container[TopicPartition] | None = None) -> Collected | None:
        """One record, where one lies ready and nothing has happened since the last pass."""
        buffer = self.collector.buffer
        self.coordinator.polled()
        if self._has_news or not buffer.is_reading() or self.coordinator.due_in() <= 0:
            return None
        collected = self.collector.collect(1, only)
        if not buffer.is_reading():
            self.fetcher.send()
        return None if collected.is_empty else collected

    async def update_positions(self) -> None:
        """The group, and where to read; what earlier attempts have met is raised here."""
        self.metadata.raise_if_refused()
        await self.coordinator.poll()
        if self._raised_version != self.metadata.view.version:
            self._raised_version = self.metadata.view.version
            self.metadata.raise_for_topics(sorted(self.subscriptions.metadata_topics))
        self.offset_fetcher.raise_error()
        self.fetcher.raise_error()
        self.fetcher.requests.validate_positions()
        if self.subscriptions.has_all_positions():
            return
        self.offset_fetcher.validate_positions()
        if self.subscriptions.initializing() and not self.coordinator.fetch_committed():
            self.subscriptions.reset_initializing()
        self.offset_fetcher.reset_positions()

    def _begin_pass(self) -> trio.Event:
        """What to wait for in the end: news that come while it runs count."""
        self._has_news = False
        if self._woken:
            self._woken = False
            raise WakeupError
        return self._changed

    async def _wait(self, changed: trio.Event, deadline: float | None) -> None:
        wait = self.coordinator.due_in()
        in_flight = bool(self.fetcher.requests.pending)
        if not in_flight or not self.subscriptions.has_all_positions():
            wait = min(wait, max(self.config.retry_backoff_ms, 1) / 1000)
        if (put_off_ms := self.subscriptions.put_off_for_ms(self.clock.now() * 1000)) is not None:
            wait = min(wait, put_off_ms / 1000)
        if deadline is not None:
            wait = min(wait, deadline - self.clock.now())
        with self.clock.move_on_after(wait):
            await changed.wait()

    async def until(self, predicate: Callable[[], bool], *, timeout_ms: float) -> bool:
        """Poll without collecting until `predicate` holds; whether it does in time."""
        with self.clock.move_on_after(timeout_ms / 1000):
            await self._poll_until(predicate)
        return predicate()

    async def _poll_until(self, predicate: Callable[[], bool]) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            changed = self._begin_pass()
            await self.update_positions()
            if predicate():
                return
            await self._wait(changed, None)


class NoGroup:
    """The coordinator of a consumer that is in no group."""

    async def poll(self) -> None:
        pass

    def polled(self) -> None:
        pass

    def fetch_committed(self) -> bool:
        return False

    def due_in(self) -> float:
        return 3600.0
