"""What a consumer raises beside what every client does (replication/client/errors.py).

KafkaError
├── NoOffsetForPartitionError        nothing committed, and no reset policy: `partitions`
├── OffsetOutOfRangeError            the position is not in the log: `offsets`
├── LogTruncationError               the log was cut below the position (KIP-320): `offsets`,
│                                    `divergent_offsets`
├── RecordDeserializationError       a deserialiser raised: `partition`, `offset`, `origin`
├── CorruptRecordsError              bytes at `offset` of `partition` that are no records
├── CommitFailedError                the group has gone on without this member
├── RetriableCommitFailedError       not committed, and worth another try
├── RebalanceInProgressError         join again (poll), then commit
└── FencedInstanceIdError            another member has this group.instance.id
"""

from collections.abc import Iterable, Mapping

from replication.client.consumer.position import FetchPosition
from replication.errors import ErrorCode, KafkaError
from storage.types import Offset, OffsetAndEpoch, TopicPartition


class NoOffsetForPartitionError(KafkaError):
    """Where to begin is not known, and `auto.offset.reset` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"no offset and no reset policy: {names}")


class OffsetOutOfRangeError(KafkaError):
    """Positions that are not in the log, and `auto.offset.reset` is none. Seek to go on."""

    def __init__(self, offsets: Mapping[TopicPartition, Offset], message: str = "") -> None:
        self.offsets = dict(offsets)
        named = ", ".join(f"{tp}={offset}" for tp, offset in self.offsets.items())
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message or named)


class LogTruncationError(OffsetOutOfRangeError):
    """The log no longer holds what was read: it parts from it at `divergent_offsets`."""

    def __init__(
        self,
        positions: Mapping[TopicPartition, FetchPosition],
        divergent_offsets: Mapping[TopicPartition, OffsetAndEpoch],
    ) -> None:
        self.divergent_offsets = dict(divergent_offsets)
        super().__init__(
            {tp: position.offset for tp, position in positions.items()},
            f"truncated below the position: {', '.join(map(str, positions))}",
        )


class RecordDeserializationError(KafkaError):
    """A key or a value that its deserialiser refuses; seek past `offset` to go on."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, *, origin: str, cause: Exception
    ) -> None:
        self.partition, self.offset, self.origin = partition, offset, origin
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"the {origin} of {partition} at {offset}: {cause!r}; seek past it to go on",
        )


class CorruptRecordsError(KafkaError):
    """Bytes that are no sound records; what was before them has been handed over."""

    def __init__(self, partition: TopicPartition, offset: Offset, why: str) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE, f"{partition} at {offset}: {why}; seek past it to go on"
        )


class CommitFailedError(KafkaError):
    """Not committed: the group has handed these partitions to others (CommitFailedException)."""

    def __init__(self, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID, message: str = "") -> None:
        super().__init__(
            code,
            message
            or "the group has rebalanced without this member; poll more often"
            " (max.poll.interval.ms) or ask for fewer records (max.poll.records)",
        )


class RetriableCommitFailedError(KafkaError):
    """Not committed this time (RetriableCommitFailedException)."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)

    @property
    def retriable(self) -> bool:
        """It may be asked again."""
        return True


class RebalanceInProgressError(KafkaError):
    """The group is being rearranged: poll to join again, and commit after."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, message)


class FencedInstanceIdError(KafkaError):
    """Another member has come with this `group.instance.id`; this one is out."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.FENCED_INSTANCE_ID, message)
