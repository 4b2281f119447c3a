"""The broker's reaction to changes of its partitions (`PartitionObserver`).

    the log end has moved          waiting fetches are checked
    the log start has moved        waiting DeleteRecords are checked
    the high watermark has moved   all waiting requests are checked
    either of the two ends         within a tenth of a second an event reports the high watermark,
                                   and the follower that is furthest behind
    an ISR change is proposed      a task asks the controller until the change is decided
    the ISR has changed            it is counted, and an event reports it

A partition calls synchronously, in the middle of its change, so nothing here changes it.
"""

from typing import Protocol

import attrs
import trio

from replication.errors import ErrorCode
from replication.events import EventSink, HighWatermarkReporter, ignore
from replication.leader.rules.isr import IsrAnswer, IsrProposal, Pending
from replication.leader.rules.leadership import Leadership
from replication.net.seams import NodeClock
from replication.replica_manager.gauges import ReplicaGauges
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.isr_events import behind, changed, proposed, refused
from replication.replica_manager.purgatories import Purgatories
from storage.attributes import define
from storage.types import TopicId, TopicPartition

HIGH_WATERMARK_REPORT_SECONDS = 0.1
ISR_RETRY_SECONDS = 0.05


class AlterPartitionClient(Protocol):
    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        """Return the controller's answer, however long that takes.

        Return OPERATION_NOT_ATTEMPTED at once while an earlier change of the partition is pending.
        """


@define(eq=False, kw_only=True)
class Observer:
    """Wakes requests, reports events, and asks the controller for ISR changes."""

    hosted: HostedPartitions
    purgatories: Purgatories
    gauges: ReplicaGauges
    alter_partition: AlterPartitionClient
    clock: NodeClock
    sink: EventSink
    nursery: trio.Nursery | None = None
    """Where the tasks that ask the controller run; None until the replica manager runs."""
    _reporter: HighWatermarkReporter = attrs.field(init=False)
    _moved: dict[TopicPartition, Leadership] = attrs.field(init=False, factory=dict)
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    @_reporter.default
    def _reports(self) -> HighWatermarkReporter:
        return HighWatermarkReporter(self.sink)

    def log_end_moved(self, leadership: Leadership) -> None:
        self.purgatories.fetch.check(leadership.topic_partition)
        self._note(leadership)

    def _note(self, leadership: Leadership) -> None:
        """Look at the next tick how far the followers are behind, if anything listens."""
        if self.sink is not ignore:
            self._moved[leadership.topic_partition] = leadership
            self._news.set()

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        self.purgatories.delete_records.check(topic_partition)

    def high_watermark_moved(self, leadership: Leadership) -> None:
        self.purgatories.check(leadership.topic_partition)
        self._reporter.advanced(
            leadership.topic_partition,
            high_watermark=leadership.log.high_watermark,
            log_end_offset=leadership.log.log_end_offset,
            leader_epoch=leadership.leader_epoch,
        )
        self._note(leadership)

    async def logs_moved(self) -> None:
        """Wait until some time after the first log has moved; idle brokers sleep."""
        await self._news.wait()
        self._news = trio.Event()
        await self.clock.sleep(HIGH_WATERMARK_REPORT_SECONDS)

    async def report_moves(self) -> None:
        advanced = self._reporter.tick()
        moved, self._moved = self._moved, {}
        for topic_partition, leadership in moved.items():
            partition = self.hosted.find(topic_partition)
            if partition is None or partition.leadership is not leadership:
                continue
            event = behind(leadership, stands=topic_partition not in advanced)
            if event is not None:
                self.sink(event)

    def isr_change_proposed(self, leadership: Leadership, pending: Pending) -> None:
        assert self.nursery is not None, "a replica manager leads only while it runs"
        self.sink(proposed(leadership, pending))
        self.nursery.start_soon(self._ask_controller, leadership, pending)

    def isr_changed(self, leadership: Leadership, previous: frozenset[int]) -> None:
        self.gauges.isr_changed(before=previous, after=leadership.isr)
        self.sink(changed(leadership, previous))

    async def _ask_controller(self, leadership: Leadership, pending: Pending) -> None:
        """Ask until the change is decided, or newer metadata has decided otherwise."""
        topic_partition = leadership.topic_partition
        again = True
        while again and leadership.isr_state is pending:
            partition = self.hosted.find(topic_partition)
            if partition is None or partition.leadership is not leadership:
                return
            answer = await self.alter_partition.submit(
                topic_partition, partition.topic_id, pending.sent
            )
            if answer.error is not ErrorCode.NONE and leadership.isr_state is pending:
                self.gauges.failed_updates.mark()
                self.sink(refused(leadership, pending, answer))
            again = leadership.on_isr_answer(pending, answer)
            if again:
                # Kafka asks again at once: as fast as a controller that is not the leader yet
                # (NOT_CONTROLLER) can refuse.
                await self.clock.sleep(ISR_RETRY_SECONDS)
