"""What partitions tell their broker, and what comes of it (`PartitionObserver`).

    the log end has moved          fetches that wait look
    the log start has moved        deletions of records that wait look
    the high watermark has moved   whoever waits looks; it is reported within a tenth of a second
    an ISR change is proposed      a task asks the controller until that is decided
    the ISR has changed            it is counted and told

A partition tells synchronously, in the middle of its change: here is only taken note.
"""

from typing import Protocol

import attrs
import trio

from replication.errors import ErrorCode
from replication.events import EventSink, HighWatermarkReporter
from replication.isr import IsrAnswer, IsrProposal, Pending
from replication.leadership import Leadership
from replication.net.seams import NodeClock
from replication.replica_manager.gauges import ReplicaGauges
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.isr_events import changed, proposed, refused
from replication.replica_manager.purgatories import Purgatories
from storage.types import TopicId, TopicPartition

HIGH_WATERMARK_REPORT_SECONDS = 0.1
ISR_RETRY_SECONDS = 0.05


class AlterPartitionManager(Protocol):
    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        """What the controller says, however long that takes; at once
        OPERATION_NOT_ATTEMPTED while an earlier change of that partition is out.
        """


@attrs.define(eq=False, kw_only=True)
class Observer:
    hosted: HostedPartitions
    purgatories: Purgatories
    gauges: ReplicaGauges
    alter_partition: AlterPartitionManager
    clock: NodeClock
    sink: EventSink
    nursery: trio.Nursery | None = None
    """Where the controller is asked; None until the broker's replicas are looked after."""
    _reporter: HighWatermarkReporter = attrs.field(init=False)
    _high_watermark_news: trio.Event = attrs.field(init=False, factory=trio.Event)

    @_reporter.default
    def _reports(self) -> HighWatermarkReporter:
        return HighWatermarkReporter(self.sink)

    def log_end_moved(self, topic_partition: TopicPartition) -> None:
        self.purgatories.fetch.check(topic_partition)

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
        if self._reporter.has_news:
            self._high_watermark_news.set()

    async def high_watermarks_moved(self) -> None:
        """A while after the first of them has; idle brokers sleep."""
        await self._high_watermark_news.wait()
        self._high_watermark_news = trio.Event()
        await self.clock.sleep(HIGH_WATERMARK_REPORT_SECONDS)

    async def report_high_watermarks(self) -> None:
        self._reporter.tick()

    def isr_change_proposed(self, leadership: Leadership, pending: Pending) -> None:
        assert self.nursery is not None, "a replica manager leads only while it runs"
        self.sink(proposed(leadership, pending))
        self.nursery.start_soon(self._ask_controller, leadership, pending)

    def isr_changed(self, leadership: Leadership, previous: frozenset[int]) -> None:
        self.gauges.isr_changed(before=previous, after=leadership.isr)
        self.sink(changed(leadership, previous))

    async def _ask_controller(self, leadership: Leadership, pending: Pending) -> None:
        """Until the change is decided, or newer metadata has decided otherwise."""
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
                # Kafka asks again at once, and so as fast as a controller that has yet to
                # catch up with us (NOT_CONTROLLER) can refuse.
                await self.clock.sleep(ISR_RETRY_SECONDS)
