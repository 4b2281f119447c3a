"""The cleaners of compacted topics: `log.cleaner.threads` of them, each at one log at a time.

    cleaner ── the dirtiest log that is due? ──> plan           on the loop
                  │ none: log.cleaner.backoff.ms    │
                  └── rest                          ├─ advance  away from it, a few MiB a turn
                                                    ├─ commit   on the loop, a group at a time
                                                    └─ finish   on the loop: the checkpoint

Rule 1: leader and follower each clean their own log. The bytes differ after that, and the
records read from them are the same.

Rule 2: a turn is short, so that a truncation or deletion of the log is noticed soon, and so that
a rest in between keeps `log.cleaner.io.max.bytes.per.second`, which all cleaners share.

Rule 3: segments are planned and replaced while no roles change. A cleaner that is cancelled
leaves its files; the next start removes them.

(LogCleaner in Kafka; the rules and the files are `storage.cleaner`'s.)
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from replication.config import DynamicBrokerConfig
from replication.events import EventSink, LogCleaned, LogUncleanable
from replication.net.pace import in_steps
from replication.net.seams import NodeClock, Offload
from replication.replica_manager.jobs import flush_log
from replication.steps import Steps
from storage.attributes import define
from storage.batch.record_batch import HEADER_SIZE
from storage.cleaner.cleaner import Cleaning
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.record_walk import CleanerStats
from storage.errors import (
    CleaningAbortedError,
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    ShortageError,
)
from storage.manager.log_manager import LogManager

TURN_BYTES: Final = 4 << 20
# Kafka refuses less for each of its threads.
_LEAST_MAP_BYTES: Final = 1 << 20


@define
class CleanerThread:
    """The figures of a cleaner's last round."""

    alive: bool = True
    clean_seconds: float = 0.0
    stats: CleanerStats = attrs.field(factory=CleanerStats)
    map_utilization: float = 0.0


@define(eq=False, kw_only=True)
class Compaction:
    config: DynamicBrokerConfig
    log_manager: LogManager
    clock: NodeClock
    offload: Offload
    sink: EventSink
    one_change_at_a_time: trio.Lock
    on_storage_failure: Callable[[], None]
    on_bug: Callable[[BaseException], None]
    # By number; a cleaner that has died of a bug stays, and is not replaced.
    threads: dict[int, CleanerThread] = attrs.field(factory=dict, init=False)
    _free_at: float = attrs.field(default=0.0, init=False)

    @property
    def dead_thread_count(self) -> int:
        return sum(not each.alive for each in self.threads.values())

    async def run(self) -> None:
        """Keep as many cleaners as there should be, until cancelled."""
        if not self.config.static.log_cleaner_enable:
            return
        async with trio.open_nursery() as nursery:
            while True:
                for number in range(self.config.current.log_cleaner_threads):
                    if number not in self.threads:
                        self.threads[number] = CleanerThread()
                        nursery.start_soon(self._clean_for_ever, number)
                await self._rest()

    async def _rest(self) -> None:
        await self.clock.sleep(max(self.config.current.log_cleaner_backoff_ms, 1) / 1000)

    async def _clean_for_ever(self, number: int) -> None:
        """Clean logs until there are to be fewer cleaners than this one's number."""
        thread = self.threads[number]
        try:
            await self._rest()  # the broker is still coming up
            while number < self.config.current.log_cleaner_threads:
                if not await self._clean_dirtiest(thread):
                    await self._rest()
            del self.threads[number]
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            thread.alive = False
            self.on_bug(bug)

    async def _clean_dirtiest(self, thread: CleanerThread) -> bool:
        """Clean the dirtiest log; return whether one was due.

        A failing disk is no bug: the partitions on it go offline.
        """
        try:
            async with self.one_change_at_a_time:
                cleaning = await in_steps(self._start())
            if cleaning is None:
                return False
            await self._clean(cleaning, thread)
        except KafkaStorageError:
            self.on_storage_failure()
        except ShortageError:
            return False  # it is begun again after a while
        return True

    def _start(self) -> Steps[Cleaning | None]:
        config = self.config.current
        threads = max(config.log_cleaner_threads, 1)
        memory = max(config.log_cleaner_dedupe_buffer_size // threads, _LEAST_MAP_BYTES)
        return self.log_manager.cleaner.start(
            self.clock.wall_ms(),
            partial(OffsetMap, memory, load_factor=config.log_cleaner_io_buffer_load_factor),
            # Kafka reads into one half of the buffer and writes out of the other.
            read_bytes=max(config.log_cleaner_io_buffer_size // threads // 2, HEADER_SIZE),
        )

    async def _clean(self, cleaning: Cleaning, thread: CleanerThread) -> None:
        began = self.clock.now()
        error: Exception | None = None
        try:
            await self._to_the_end(cleaning)
        except (CleaningAbortedError, CorruptRecordError, InvalidRecordError) as stopped:
            error = stopped
        except (KafkaStorageError, ShortageError) as failed:
            error = failed
        except OSError as failed:
            error = cleaning.log.fail(failed)
        thread.clean_seconds = self.clock.now() - began
        thread.stats = cleaning.stats
        thread.map_utilization = cleaning.offset_map.utilization
        self.log_manager.cleaner.finish(cleaning, error)
        self._tell(cleaning, error)
        if isinstance(error, KafkaStorageError | ShortageError):
            raise error

    async def _to_the_end(self, cleaning: Cleaning) -> None:
        while not cleaning.done:
            moved = await self.offload(partial(cleaning.advance, TURN_BYTES))
            await self._keep_rate(moved)
            if cleaning.ready:
                async with self.one_change_at_a_time:
                    if not cleaning.sources_are_synced:
                        await flush_log(cleaning.log, self.offload)
                    cleaning.commit()

    async def _keep_rate(self, moved: int) -> None:
        """Sleep until the rate allows what all cleaners have moved so far."""
        rate = self.config.current.log_cleaner_io_max_bytes_per_second
        self._free_at = max(self._free_at, self.clock.now()) + moved / rate
        await self.clock.sleep_until(self._free_at)

    def _tell(self, cleaning: Cleaning, error: Exception | None) -> None:
        partition = cleaning.log.topic_partition
        if error is None:
            self.sink(
                LogCleaned(
                    partition=partition,
                    first_dirty_offset=cleaning.plan.dirty.first_dirty_offset,
                    end_offset=cleaning.end_offset,
                    bytes_read=cleaning.stats.bytes_read,
                    bytes_written=cleaning.stats.bytes_written,
                    invalid_records=cleaning.stats.invalid_records,
                )
            )
        elif isinstance(error, CorruptRecordError | InvalidRecordError):
            self.sink(LogUncleanable(partition=partition, cause=str(error)))
