"""How far a copy is, partition by partition."""

import attrs

from storage.types import LeaderEpoch, Offset, TopicPartition


@attrs.frozen(kw_only=True)
class PartitionProgress:
    topic_partition: TopicPartition
    leader: int | None
    """The source's; None where it has none that we know of, or the topic is gone."""
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    log_end_offset: Offset
    lag: int | None
    """Records that the source has committed and the copy lacks; None before it has answered."""
    trouble: str | None = None
    """Why it is not followed just now."""

    @property
    def source_end(self) -> Offset | None:
        """The source's high watermark when it last answered."""
        return None if self.lag is None else self.log_end_offset + self.lag
