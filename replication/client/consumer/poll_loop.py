"""Polls, one after the other: what each looks at, in which order, and what it waits for.

    woken up?          raised, and nothing is lost
    the group          joined, left, committed for
    positions          validated, reset, or taken from committed offsets
    the buffer         its records are handed over; the next fetches are sent before that
    a long batch?      it is decoded in a thread, and the next pass hands it over
    nothing yet?       fetches are sent, and the next event is waited for

Rule 1: nothing awaits between the moment in which positions move and the one in which the program
has the records. A poll that is cancelled anywhere has lost no record.

Rule 2: everything that may change the outcome of a pass calls `wake`: a response, metadata, the
group, the program. Time alone is looked at every `retry.backoff.ms` while something is missing.

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
from storage.attributes import define
from storage.types import TopicPartition


class PollCoordinator(Protocol):
    """The group, as polls see it; a consumer without a group has `NoGroup`."""

    async def poll(self) -> None:
        """Join, rejoin or commit as far as possible now; call the program's listener."""

    def polled(self) -> None:
        """Note that the program is alive (max.poll.interval.ms)."""

    def fetch_committed(self) -> bool:
        """Fetch the committed offsets of partitions without a position; False without a group."""

    def due_in(self) -> float:
        """Return the seconds until it has something to do by itself."""


@define(eq=False, kw_only=True)
class PollLoop:
    """The polls of one consumer, by one task at a time."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    metadata: Metadata
    fetcher: Fetcher
    offset_fetcher: OffsetFetcher
    collector: FetchCollector
    coordinator: PollCoordinator
    _woken: bool = attrs.field(init=False, default=False)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _has_news: bool = attrs.field(init=False, default=False)
    """Whether something has changed since the last pass began."""
    _raised_version: int = attrs.field(init=False, default=0)

    @property
    def _clock(self) -> NodeClock:
        return self.metadata.network.clock

    def wake(self) -> None:
        """Note that something has changed: a task that waits looks again."""
        self._has_news = True
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def wake_up(self) -> None:
        """End the present call, or else the next one, with a WakeupError."""
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
        """Return what there is within `timeout_ms` (None: however long it takes), or nothing."""
        await trio.lowlevel.checkpoint()
        deadline = None if timeout_ms is None else self._clock.now() + timeout_ms / 1000
        while True:
            changed = self._begin_pass()
            await self.update_positions()
            collected = self.collect_nowait(most=most, only=only, take=take)
            if not collected.is_empty:
                return collected
            if await self.collector.read_long_batch(self.metadata.network.seams.offload):
                continue
            self.fetcher.send()
            if deadline is not None and self._clock.now() >= deadline:
                return collected
            await self._wait(changed, deadline)

    def collect_nowait(
        self,
        *,
        most: int | None = None,
        only: Container[TopicPartition] | None = None,
        take: Take = CompletedFetch.take,
    ) -> Collected:
        """Return what the buffer holds; the next fetches are sent before it is handed over."""
        collected = self.collector.collect(most, only, take)
        if not collected.is_empty:
            self.fetcher.send()
        return collected

    def collect_ready(self, only: Container[TopicPartition] | None = None) -> Collected | None:
        """Return a record if one lies ready and nothing has changed since the last pass."""
        buffer = self.collector.buffer
        self.coordinator.polled()
        if self._has_news or not buffer.is_reading() or self.coordinator.due_in() <= 0:
            return None
        collected = self.collector.collect(1, only)
        if not buffer.is_reading():
            self.fetcher.send()
        return None if collected.is_empty else collected

    async def update_positions(self) -> None:
        """Look after the group and the positions; raise the errors of earlier attempts."""
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
        """Return the event to wait for in the end; a change during the pass sets it, too."""
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
        if (put_off_ms := self.subscriptions.put_off_for_ms(self._clock.now() * 1000)) is not None:
            wait = min(wait, put_off_ms / 1000)
        if deadline is not None:
            wait = min(wait, deadline - self._clock.now())
        with self._clock.move_on_after(wait):
            await changed.wait()

    async def until(self, predicate: Callable[[], bool], *, timeout_ms: float) -> bool:
        """Poll without collecting until `predicate` holds; return whether it does in time."""
        with self._clock.move_on_after(timeout_ms / 1000):
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
    """The coordinator of a consumer without a group."""

    async def poll(self) -> None:
        pass

    def polled(self) -> None:
        pass

    def fetch_committed(self) -> bool:
        return False

    def due_in(self) -> float:
        return 3600.0
