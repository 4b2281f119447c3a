"""The values of a fetch: what it requests of a broker's replicas, and each partition's answer.

    handler (cluster)             session (fetch_session/cache.py)       replicas
    FetchRequest  ->  FetchParams + [(TopicIdPartition, FetchInfo)]  ->  replica_manager
    FetchResponse <-  only what changed  <-  [(TopicIdPartition, FetchPartitionData)]

These values lie between the wire and the log: from them the session decides what to send, and
the replica manager what to read. An epoch of -1 stands for none, as on the wire.
"""

import enum
from typing import NamedTuple, TypeAlias

import attrs

from replication.errors import ErrorCode
from replication.wire.fetch import CONSUMER_REPLICA_ID, AbortedTransactionData
from storage.attributes import frozen
from storage.log.file_region import FileRegion
from storage.types import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicId,
    TopicPartition,
)

NO_REPLICA = -1

_new = tuple.__new__  # a `TopicPartition` is the two last fields of a `TopicIdPartition`


class TopicIdPartition(NamedTuple):
    """A partition by topic id and, where it is known, by name (KIP-516).

    `topic` is None for an id that this broker cannot name yet; `topic_id` is all zeros
    where the request was too old to carry one.
    """

    topic_id: TopicId
    topic: str | None
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        assert self.topic is not None, "only a partition with a name is hosted here"
        return _new(TopicPartition, self[1:])


class Isolation(enum.Enum):
    """The end of the records that a reader may see (FetchIsolation)."""

    LOG_END = enum.auto()  # followers
    HIGH_WATERMARK = enum.auto()  # read_uncommitted
    LAST_STABLE = enum.auto()  # read_committed


@frozen
class ClientMetadata:
    """The description of a consumer in Fetch v11 and later (KIP-392)."""

    rack_id: str
    client_id: str = ""


@frozen(kw_only=True)
class FetchParams:
    """The parameters of a fetch that hold for all its partitions."""

    replica_id: int = CONSUMER_REPLICA_ID
    replica_epoch: int = NO_BROKER_EPOCH
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    hard_max_bytes: bool = False
    """Whether not even a first batch may exceed the limit (Fetch v2 and older)."""
    client_metadata: ClientMetadata | None = None
    # Computed once: they are read for every partition.
    from_follower: bool = attrs.field(init=False)
    leader_only: bool = attrs.field(init=False)
    """Whether only a leader may answer: a follower, or a consumer from before KIP-392."""

    @from_follower.default
    def _is_from_follower(self) -> bool:
        return self.replica_id >= 0

    @leader_only.default
    def _asks_the_leader_only(self) -> bool:
        return self.from_follower or (
            self.replica_id == CONSUMER_REPLICA_ID and self.client_metadata is None
        )


class FetchInfo(NamedTuple):
    """The part of a fetch about one partition (FetchRequest.PartitionData)."""

    fetch_offset: Offset
    log_start_offset: Offset = NO_OFFSET
    max_bytes: int = 1048576
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH


@frozen(kw_only=True)
class FetchPartitionData:
    """One partition's answer; one with an error has the defaults in its other fields."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    records: FileRegion | None = None
    diverging_epoch: OffsetAndEpoch | None = None
    aborted_transactions: tuple[AbortedTransactionData, ...] | None = None
    preferred_read_replica: int = NO_REPLICA

    @property
    def records_size(self) -> int:
        return self.records.size if self.records is not None else 0


Wanted: TypeAlias = list[tuple[TopicIdPartition, FetchInfo]]
Answers: TypeAlias = list[tuple[TopicIdPartition, FetchPartitionData]]
