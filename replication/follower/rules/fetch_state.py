"""The state of each partition that a fetcher follows (PartitionFetchState, PartitionStates).

    Truncating ── the log is truncated to where it agrees with the leader's ──> Fetching
         ^                                                                         │
         └────────── a new leader epoch, where it must be truncated again ─────────┘

Rule 1: a partition in either phase may be *delayed*: after an error nothing is requested for
it until its deadline has passed. A deadline that has passed stays in place and means nothing.

Rule 2: a state is a value. It is replaced as a whole, at the same leader epoch or a later
one. Code that has awaited something compares the state it read before with the present one.

Rule 3: states stand in the order in which a fetch names them. A partition that brought data,
or an error, goes to the end, so that a leader that fills its response from the front serves
every partition in turn:

    asked         p0 p1 p2      only p0 had data
    asked next    p1 p2 p0

Rule 4: truncation rebuilds the order, the partitions of a topic together and topics in
order of first sight: a request names a topic once for each run of its partitions.

Rule 5: a fetcher builds its next request from what has changed since the last. Every change of
a state is noted here; `touch` notes what else a request contains (where the log starts).
"""

import enum
from collections.abc import ItemsView, Mapping

import attrs

from replication.holes import without_holes
from storage.attributes import define, frozen
from storage.types import NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition

UNKNOWN_INIT_OFFSET: Offset = -1
"""The offset of a partition whose leader has to say first where to begin."""


@frozen
class BrokerEndPoint:
    """A broker and where it listens."""

    id: int
    host: str
    port: int


@frozen(kw_only=True)
class InitialFetchState:
    """The leader and the offset at which a fetcher begins to follow a partition (Kafka's class)."""

    topic_id: TopicId = NO_TOPIC_ID
    leader: BrokerEndPoint
    current_leader_epoch: LeaderEpoch
    init_offset: Offset
    """Negative if the leader has to be asked for its log's ends first."""


class FetchPhase(enum.Enum):
    """The next step of a partition: to truncate its log, or to fetch (ReplicaState in Kafka)."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"


@frozen(kw_only=True)
class PartitionFetchState:
    """The progress of one followed partition."""

    topic_id: TopicId = NO_TOPIC_ID
    fetch_offset: Offset
    lag: int | None = None
    """Records behind the leader's high watermark; None before the first response."""
    current_leader_epoch: LeaderEpoch
    delayed_until: float | None = None
    """Seconds on the node's clock."""
    phase: FetchPhase
    last_fetched_epoch: LeaderEpoch | None = None
    """Epoch of the last record in the log, which lets the leader find a divergence (KIP-595)."""

    def is_delayed(self, now: float) -> bool:
        return self.delayed_until is not None and now < self.delayed_until

    def is_ready_for_fetch(self, now: float) -> bool:
        return self.phase is FetchPhase.FETCHING and (
            self.delayed_until is None or not self.is_delayed(now)
        )

    def is_truncating(self, now: float) -> bool:
        return self.phase is FetchPhase.TRUNCATING and not self.is_delayed(now)

    def advanced(
        self, fetch_offset: Offset, *, lag: int, last_fetched_epoch: LeaderEpoch | None
    ) -> "PartitionFetchState":
        """Return the state behind a response: not delayed any more, at another offset or lag."""
        return PartitionFetchState(
            topic_id=self.topic_id,
            fetch_offset=fetch_offset,
            lag=lag,
            current_leader_epoch=self.current_leader_epoch,
            phase=self.phase,
            last_fetched_epoch=last_fetched_epoch,
        )

    @property
    def needs_offset(self) -> bool:
        """Whether the leader has to be asked first where to begin."""
        return self.fetch_offset < 0

    @property
    def is_replica_in_sync(self) -> bool:
        """Whether nothing is known to be missing; only other replicas are throttled."""
        return self.lag is not None and self.lag <= 0


def initial_state(
    initial: InitialFetchState,
    *,
    existing: PartitionFetchState | None,
    latest_epoch: LeaderEpoch | None,
    truncation_on_fetch: bool,
) -> PartitionFetchState:
    """Return the state of a partition that is added (AbstractFetcherThread.partitionFetchState).

    At the leader epoch that is followed already nothing changes, whatever the offset. If the
    leader finds a divergence in the fetch itself (`truncation_on_fetch`), the partition is
    fetched at once, unless its log has no leader epoch to compare by.
    """
    if existing is not None and existing.current_leader_epoch == initial.current_leader_epoch:
        return existing
    known_offset = initial.init_offset >= 0
    fetches_at_once = truncation_on_fetch and known_offset and latest_epoch is not None
    return PartitionFetchState(
        topic_id=initial.topic_id,
        fetch_offset=initial.init_offset if known_offset else UNKNOWN_INIT_OFFSET,
        current_leader_epoch=initial.current_leader_epoch,
        phase=FetchPhase.FETCHING if fetches_at_once else FetchPhase.TRUNCATING,
        last_fetched_epoch=latest_epoch if truncation_on_fetch else None,
    )


@define(eq=False)
class MarkedPartitions:
    """A set of partitions in the order in which they were marked."""

    partitions: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)
    _most: int = 0

    def set(self, partition: TopicPartition, *, marked: bool) -> None:
        if marked:
            self.partitions[partition] = None
        else:
            self.partitions.pop(partition, None)

    def walk(self) -> dict[TopicPartition, None]:
        self.partitions, self._most = without_holes(self.partitions, self._most)
        return self.partitions


@define
class PartitionStates:
    """The states of one fetcher's partitions, in round-robin order.

    Beside them stands which of them a round has to look at, so that a round costs no more for
    many idle partitions than for few (Rule 5).
    """

    _states: dict[TopicPartition, PartitionFetchState] = attrs.field(factory=dict)
    _changed: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)
    _truncating: MarkedPartitions = attrs.field(factory=MarkedPartitions, init=False)
    _delayed: MarkedPartitions = attrs.field(factory=MarkedPartitions, init=False)
    _behind: MarkedPartitions = attrs.field(factory=MarkedPartitions, init=False)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def get(self, partition: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(partition)

    def items(self) -> ItemsView[TopicPartition, PartitionFetchState]:
        """Return a live view in order; copy it before you change a state."""
        return self._states.items()

    def partitions(self) -> list[TopicPartition]:
        return list(self._states)

    def update(self, partition: TopicPartition, state: PartitionFetchState) -> None:
        """Replace the state of a known partition where it stands."""
        assert partition in self._states, f"{partition} has no place to keep"
        self._states[partition] = state
        self._note(partition, state)

    def update_and_move_to_end(self, partition: TopicPartition, state: PartitionFetchState) -> None:
        self._states.pop(partition, None)
        self._states[partition] = state
        self._note(partition, state)

    def remove(self, partition: TopicPartition) -> PartitionFetchState | None:
        state = self._states.pop(partition, None)
        if state is not None:
            self._changed[partition] = None
            for marks in (self._truncating, self._delayed, self._behind):
                marks.set(partition, marked=False)
        return state

    def delay(self, partition: TopicPartition, *, until: float, now: float) -> bool:
        """Request nothing for `partition` until then; False if it is gone or delayed already."""
        state = self._states.get(partition)
        if state is None or state.is_delayed(now):
            return False
        self.update_and_move_to_end(partition, attrs.evolve(state, delayed_until=until))
        return True

    def regroup(self, changed: Mapping[TopicPartition, PartitionFetchState]) -> None:
        """Replace the states in `changed`, then put each topic's partitions together (Rule 4)."""
        by_topic: dict[str, dict[TopicPartition, PartitionFetchState]] = {}
        for partition, state in self._states.items():
            by_topic.setdefault(partition.topic, {})[partition] = changed.get(partition, state)
        self._states = {
            partition: state for group in by_topic.values() for partition, state in group.items()
        }
        for partition in changed:
            if partition in self._states:
                self._note(partition, self._states[partition])

    # What a round has to look at.

    def touch(self, partition: TopicPartition) -> None:
        """Note that something of `partition` has changed that is not in its state."""
        self._changed[partition] = None

    def _note(self, partition: TopicPartition, state: PartitionFetchState) -> None:
        self._changed[partition] = None
        for marks, marked in (
            (self._truncating, state.phase is FetchPhase.TRUNCATING),
            (self._delayed, state.delayed_until is not None),
            (self._behind, not state.is_replica_in_sync),
        ):
            if marked or marks.partitions:  # nearly always neither
                marks.set(partition, marked=marked)

    def take_changed(self, now: float) -> list[TopicPartition]:
        """Return the partitions whose part of the request may differ since the last call.

        They have changed, were removed, are no longer delayed, or are behind, in which case
        throttling may have begun or ended.
        """
        changed, self._changed = self._changed, {}
        if self._delayed.partitions:
            due = [tp for tp in self._delayed.walk() if not self._states[tp].is_delayed(now)]
            for partition in due:
                self._delayed.set(partition, marked=False)
                changed[partition] = None
        if self._behind.partitions:
            changed.update(self._behind.walk())
        return list(changed)

    @property
    def any_truncating(self) -> bool:
        """Whether a partition must be truncated, perhaps after a delay."""
        return bool(self._truncating.partitions)

    def truncating(self, now: float) -> list[tuple[TopicPartition, PartitionFetchState]]:
        """Return the partitions that must be truncated before they may be fetched."""
        states = ((tp, self._states[tp]) for tp in self._truncating.walk())
        return [(tp, state) for tp, state in states if state.is_truncating(now)]

    def next_deadline(self, now: float) -> float | None:
        """Return when the first delay ends; None while no partition is delayed."""
        deadlines = (self._states[tp].delayed_until for tp in self._delayed.walk())
        return min((each for each in deadlines if each is not None and now < each), default=None)
