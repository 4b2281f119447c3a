"""A cluster at one moment, as a value: brokers, partitions, and where each replica stands.

    ClusterState ─┬─ BrokerState                 up, frozen, fenced, leaving, starting, down
                  └─ PartitionState              leader, epoch, ISR
                       └─ ReplicaState           LEO, HW, lag, epochs; in or out of the ISR and why

Rule 1: None is "unknown", never zero. Who asks over Kafka's protocol learns less than who shares
the process (`foreign_state.py`, `local_state.py`), and shows what it has not learned as unknown.

Rule 2: a value that stands still compares equal. What only grows with time (how long a follower
has been behind) is told by the moment it began, on the clock of `now_ms`.

Rule 3: a log is drawn as everywhere in this project, by the epochs that its records were
appended in: `[e0: 0-4][e2: 5-11]` is `epochs` (0, 0) and (2, 5), and `log_end_offset` 12.
"""

import enum
import json
from collections.abc import Mapping
from typing import Any

import attrs

from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

INTERNAL_PREFIX = "__"
"""Of topics that are Kafka's own."""


class Status(enum.StrEnum):
    """What a broker is up to, for whoever can see it."""

    UP = "up"
    FROZEN = "frozen"
    """Its process runs no more, for now: it answers nobody and times out nobody."""
    FENCED = "fenced"
    """Registered, and the controller lets it lead nothing."""
    LEAVING = "leaving"
    STARTING = "starting"
    DOWN = "down"
    UNKNOWN = "unknown"


class Role(enum.StrEnum):
    """What a replica takes itself for, which a broker that is cut off has wrong."""

    LEADER = "leader"
    FOLLOWER = "follower"
    DEPOSED = "deposed"
    """It leads in an epoch that is over, and has not heard of that yet."""
    DOWN = "down"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class BrokerState:
    id: int
    host: str
    port: int
    status: Status
    why: str = ""


@attrs.frozen(kw_only=True)
class ReplicaState:
    broker: int
    role: Role
    in_isr: bool
    why: str
    """Why it is in the ISR or out of it, in words."""
    is_live: bool = True
    """Whether the figures are of now; else they are those that were seen last."""
    leader_epoch: LeaderEpoch | None = None
    log_start_offset: Offset | None = None
    log_end_offset: Offset | None = None
    high_watermark: Offset | None = None
    lag: int | None = None
    """Records that the leader has and this replica has not."""
    behind_since_ms: int | None = None
    """Since when the leader has not seen it caught up; None of one that is."""
    epochs: tuple[EpochEntry, ...] | None = None
    bytes: int | None = None


@attrs.frozen(kw_only=True)
class PartitionState:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: LeaderEpoch | None
    isr: tuple[int, ...]
    replicas: tuple[ReplicaState, ...]
    """In assignment order, the preferred leader first."""
    why: str = ""
    """Why this leader leads, or nobody does."""
    partition_epoch: int | None = None
    min_isr: int | None = None
    pending: str = ""
    """What the leader has asked of the controller, and not heard of yet."""
    is_internal: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_offline(self) -> bool:
        """Nobody leads it (`--unavailable-partitions`)."""
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def is_at_min_isr(self) -> bool:
        return self.min_isr is not None and len(self.isr) == self.min_isr

    @property
    def is_under_min_isr(self) -> bool:
        return self.min_isr is not None and len(self.isr) < self.min_isr

    @property
    def is_in_trouble(self) -> bool:
        return self.is_offline or self.is_under_replicated or self.is_under_min_isr

    def replica(self, broker: int | None) -> ReplicaState | None:
        return next((each for each in self.replicas if each.broker == broker), None)

    @property
    def lag(self) -> int | None:
        """Of the follower that is furthest behind; None where nothing is known."""
        known = [each.lag for each in self.replicas if each.lag is not None]
        return max(known, default=None)


@attrs.frozen(kw_only=True)
class ClusterState:
    now_ms: int
    """The moment, on the clock that `behind_since_ms` is told by."""
    cluster_id: str | None
    controller: int | None
    controller_status: Status
    brokers: tuple[BrokerState, ...]
    partitions: tuple[PartitionState, ...]
    number_of_partitions: int
    """Also those that are left out."""
    cut: tuple[tuple[int, int], ...] = ()
    """(from, to): what the first node sends does not reach the second."""


def to_json(value: object, *, indent: int | None = None) -> str:
    """Of a value here, and of lists and dicts of them; an epoch is `[epoch, start_offset]`."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, default=_fields, indent=indent, separators=separators)


def _fields(value: Any) -> dict[str, Any]:
    return attrs.asdict(value, recurse=False)


def troubled_first(
    partitions: Mapping[TopicPartition, bool], internal: frozenset[str], limit: int
) -> list[TopicPartition]:
    """The `limit` of them that are to be shown, by name: those in trouble (True) before others,
    and those of internal topics last.
    """

    def urgency(partition: TopicPartition) -> tuple[bool, bool, TopicPartition]:
        return not partitions[partition], partition.topic in internal, partition

    return sorted(sorted(partitions, key=urgency)[:limit])
