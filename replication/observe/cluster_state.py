"""A cluster at one moment, as a value: its brokers, its partitions and their replicas.

    ClusterState ─┬─ ObservedQuorum                 who leads the metadata log, since which epoch
                  │    └─ ObservedQuorumNode        LEO; the controllers vote, the brokers observe
                  ├─ ObservedBroker                 up, frozen, fenced, leaving, starting, down
                  └─ ObservedPartition              leader, epoch, ISR
                       └─ ObservedReplica           LEO, HW, lag, epochs; in or out of the ISR and why

Rule 1: None means "unknown", never zero. Kafka's protocol says less about a cluster than its own
process does (`state_reader.py`); what it does not say stays unknown.

Rule 2: the values of a cluster that does not change compare equal. So how long a follower has been
behind is given as the time when that began, on the clock of `now_ms`.

Rule 3: a log is drawn as everywhere in this project, by the epochs in which its records were
appended: `[e0: 0-4][e2: 5-11]` is `epochs` (0, 0) and (2, 5), and `log_end_offset` 12.
"""

import enum
import json
from collections.abc import Mapping
from typing import Any

import attrs

from storage.attributes import frozen
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

INTERNAL_PREFIX = "__"
"""The prefix of Kafka's own topics."""


class Status(enum.StrEnum):
    """The state of a broker, as far as the source can see it."""

    UP = "up"
    FROZEN = "frozen"
    """Its process is stopped (SIGSTOP): it answers no request, and none of its timeouts expire."""
    FENCED = "fenced"
    """It is registered, and the controller does not let it lead."""
    LEAVING = "leaving"
    STARTING = "starting"
    DOWN = "down"
    UNKNOWN = "unknown"


class Role(enum.StrEnum):
    """The role that a replica believes it has; a broker that is cut off may be wrong about it."""

    LEADER = "leader"
    FOLLOWER = "follower"
    DEPOSED = "deposed"
    """It leads in a leader epoch that is over, and has not heard that yet."""
    DOWN = "down"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class ObservedBroker:
    id: int
    host: str
    port: int
    status: Status
    why: str = ""
    """The status in more words; empty if there is no more to say."""
    fenced: bool | None = None
    """Whether the controller has fenced it; None if unknown. A dead broker is fenced late."""

    @property
    def is_dead(self) -> bool:
        """Whether it answers nobody, whatever the controller knows."""
        return self.status in (Status.DOWN, Status.FROZEN)


@frozen(kw_only=True)
class ObservedReplica:
    broker: int
    role: Role
    in_isr: bool
    why: str = ""
    """Why it is in the ISR or not, in words."""
    is_live: bool = True
    """Whether the figures are current; otherwise they are the last known ones."""
    leader_epoch: LeaderEpoch | None = None
    log_start_offset: Offset | None = None
    log_end_offset: Offset | None = None
    high_watermark: Offset | None = None
    lag: int | None = None
    """The number of records that the leader has and this replica lacks."""
    behind_since_ms: int | None = None
    """When the leader last saw it caught up; None if it is caught up."""
    epochs: tuple[EpochEntry, ...] | None = None
    bytes: int | None = None


@frozen(kw_only=True)
class ObservedPartition:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: LeaderEpoch | None
    isr: tuple[int, ...]
    replicas: tuple[ObservedReplica, ...]
    """The replicas in assignment order, the preferred leader first."""
    why: str = ""
    """Why this leader was elected, or why there is none."""
    partition_epoch: int | None = None
    min_isr: int | None = None
    pending: str = ""
    """The ISR change that the leader has asked for and that is not answered yet; may be empty."""
    is_internal: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_offline(self) -> bool:
        """Whether it has no leader (`--unavailable-partitions`)."""
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

    def replica(self, broker: int | None) -> ObservedReplica | None:
        return next((each for each in self.replicas if each.broker == broker), None)

    @property
    def lag(self) -> int | None:
        """The lag of the follower that is furthest behind; None if no lag is known."""
        known = [each.lag for each in self.replicas if each.lag is not None]
        return max(known, default=None)


@frozen(kw_only=True)
class ObservedQuorumNode:
    """A node that has a copy of the metadata log."""

    id: int
    status: Status
    log_end_offset: Offset | None


@frozen(kw_only=True)
class ObservedQuorum:
    """The controllers, which vote, and the brokers, which only follow the metadata log."""

    leader: int | None
    leader_epoch: LeaderEpoch | None
    high_watermark: Offset | None
    voters: tuple[ObservedQuorumNode, ...]
    observers: tuple[ObservedQuorumNode, ...]

    def lag(self, node_id: int) -> int | None:
        """Return how many records of the leader's log a node lacks; None if that is not known."""
        ends = {each.id: each.log_end_offset for each in (*self.voters, *self.observers)}
        last, own = ends.get(-1 if self.leader is None else self.leader), ends.get(node_id)
        return None if last is None or own is None else max(0, last - own)


@frozen(kw_only=True)
class ClusterState:
    now_ms: int
    """The time of this state, on the clock of `behind_since_ms`."""
    cluster_id: str | None
    controller: int | None
    controller_status: Status
    brokers: tuple[ObservedBroker, ...]
    partitions: tuple[ObservedPartition, ...]
    number_of_partitions: int
    """The number of partitions, including those that are not shown."""
    quorum: ObservedQuorum | None = None
    cut: tuple[tuple[int, int], ...] = ()
    """Pairs (from, to): what the first node sends does not reach the second."""

    @property
    def roles(self) -> dict[int, tuple[str, ...]]:
        """The roles of each known node by its id (`process.roles`): controllers are the voters."""
        voters = [] if self.quorum is None else [each.id for each in self.quorum.voters]
        brokers = [each.id for each in self.brokers]
        return {
            each: ("broker",) * (each in brokers) + ("controller",) * (each in voters)
            for each in sorted({*voters, *brokers})
        }

    @property
    def node_statuses(self) -> dict[int | None, Status]:
        """The status of every node by its id, the controllers' first."""
        statuses: dict[int | None, Status] = {self.controller: self.controller_status}
        if self.quorum is not None:
            statuses = {each.id: each.status for each in self.quorum.voters}
        return statuses | {each.id: each.status for each in self.brokers}


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return `value`, made of values of this module, as JSON.

    An epoch is `[epoch, start_offset]`; a cluster's state has the roles of its nodes too.
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(value, default=_fields, indent=indent, separators=separators)


def _fields(value: Any) -> dict[str, Any]:
    fields = attrs.asdict(value, recurse=False)
    return fields | {"roles": value.roles} if isinstance(value, ClusterState) else fields


def troubled_first(
    partitions: Mapping[TopicPartition, bool], internal: frozenset[str], limit: int
) -> list[TopicPartition]:
    """Return at most `limit` partitions to show, sorted by name.

    Partitions in trouble (True) are chosen before others, and those of internal topics last.
    """

    def urgency(partition: TopicPartition) -> tuple[bool, bool, TopicPartition]:
        return not partitions[partition], partition.topic in internal, partition

    return sorted(sorted(partitions, key=urgency)[:limit])
