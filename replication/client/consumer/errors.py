"""The errors of a consumer, beside those of every client (`replication.client.errors`).

KafkaError
├── NoOffsetForPartitionError        no committed offset and no reset policy: `partitions`
├── OffsetOutOfRangeError            the position is not in the log: `offsets`
├── LogTruncationError               the log was truncated below it (KIP-320): `offsets`,
│                                    `divergent_offsets`
├── RecordDeserializationError       a deserializer raised: `partition`, `offset`, `origin`
├── CorruptRecordsError              the bytes at `offset` of `partition` are no records
├── CommitFailedError                the group has gone on without this member
├── RetriableCommitFailedError       not committed, and worth another try
├── RebalanceInProgressError         join again (poll), then commit
└── FencedInstanceIdError            another member has this group.instance.id
"""

from collections.abc import Iterable, Mapping

from replication.client.consumer.position import FetchPosition
from replication.client.errors import CodedError
from replication.errors import ErrorCode, KafkaError
from storage.types import Offset, OffsetAndEpoch, TopicPartition


class NoOffsetForPartitionError(KafkaError):
    """Partitions without a committed offset, while `auto.offset.reset` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"no offset and no reset policy: {names}")


class OffsetOutOfRangeError(KafkaError):
    """Positions outside the log, while `auto.offset.reset` is none. Seek to go on."""

    def __init__(self, offsets: Mapping[TopicPartition, Offset], message: str = "") -> None:
        self.offsets = dict(offsets)
        named = ", ".join(f"{tp}={offset}" for tp, offset in self.offsets.items())
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message or named)


class LogTruncationError(OffsetOutOfRangeError):
    """A log that no longer holds what was read: it diverges at `divergent_offsets`."""

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
    """A key or a value that its deserializer refuses; seek past `offset` to go on."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, *, origin: str, cause: Exception
    ) -> None:
        self.partition, self.offset, self.origin = partition, offset, origin
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"the {origin} of {partition} at {offset}: {cause!r}; seek past it to go on",
        )


class CorruptRecordsError(KafkaError):
    """Bytes that cannot be read as records; the records before them were handed over."""

    def __init__(self, partition: TopicPartition, offset: Offset, why: str) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE, f"{partition} at {offset}: {why}; seek past it to go on"
        )


class CommitFailedError(KafkaError):
    """A commit by a member whose partitions the group gave to others (CommitFailedException)."""

    def __init__(self, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID, message: str = "") -> None:
        super().__init__(
            code,
            message
            or "the group has rebalanced without this member; poll more often"
            " (max.poll.interval.ms) or ask for fewer records (max.poll.records)",
        )


class RetriableCommitFailedError(KafkaError):
    """A commit that may succeed when it is repeated (RetriableCommitFailedException)."""

    @property
    def retriable(self) -> bool:
        """Always true."""
        return True


class RebalanceInProgressError(CodedError):
    """A commit during a rebalance: poll to join again, and commit after that."""

    code_of_class = ErrorCode.REBALANCE_IN_PROGRESS


class FencedInstanceIdError(CodedError):
    """A member whose `group.instance.id` another member has taken over."""

    code_of_class = ErrorCode.FENCED_INSTANCE_ID
