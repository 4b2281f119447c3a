"""The advances of high watermarks, reported once a tick (rule 5)."""

import attrs

from replication.events.event import EventSink, ignore
from replication.events.following import HighWatermarkAdvanced
from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.define
class HighWatermarkReporter:
    """Collects advances, and reports the last one of each partition at each tick of its owner.

    Between ticks an advance costs one dictionary store; without a listening sink one comparison.
    """

    _sink: EventSink
    _latest: dict[TopicPartition, tuple[Offset, Offset, LeaderEpoch]] = attrs.field(
        init=False, factory=dict
    )

    def advanced(
        self,
        partition: TopicPartition,
        *,
        high_watermark: Offset,
        log_end_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> None:
        if self._sink is not ignore:
            self._latest[partition] = (high_watermark, log_end_offset, leader_epoch)

    @property
    def has_news(self) -> bool:
        return bool(self._latest)

    def tick(self) -> frozenset[TopicPartition]:
        """Report what has moved since the last tick, and return the partitions."""
        latest, self._latest = self._latest, {}
        for partition, (high_watermark, log_end_offset, leader_epoch) in latest.items():
            self._sink(
                HighWatermarkAdvanced(
                    partition=partition,
                    high_watermark=high_watermark,
                    log_end_offset=log_end_offset,
                    leader_epoch=leader_epoch,
                )
            )
        return frozenset(latest)
