"""One fetch session, as its leader keeps it (KIP-227): what is wanted, and what was told.

Rule 1: a partition is told again when it has records, an error, a diverging epoch or a
preferred replica, or when its high watermark or log start is not what was told last.
One that was told with records moves to the end, so that the next ones get their turn.

Rule 2: only partitions that are not settled (replication/leader/rules/settled.py) are looked at. A session
begins with none of them settled; whoever reads for it settles them, and `changed` lets go of
those that are settled and have been told.

    partitions   p0 p1 p2 p3 ... p99999
    unsettled          p2              what the next request reads

Rule 3: what is settled was settled on the session's terms: who asks, with which epoch of his,
and how far he may see. On other terms everything is looked at again.

A session keeps the (partition, wanted) pair that a read needs, built when the request
that named it came.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias

import attrs

from replication.errors import ErrorCode
from replication.holes import without_holes
from replication.leader.rules.fetch_data import (
    Answers,
    FetchInfo,
    FetchPartitionData,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session import INITIAL_EPOCH, next_epoch
from replication.leader.rules.isr import Pulse
from replication.leader.rules.settled import Settled
from storage.types import NO_OFFSET, NO_TOPIC_ID, Offset, TopicId

PartitionKey: TypeAlias = tuple[TopicId | str | None, int]


def partition_key(partition: TopicIdPartition) -> PartitionKey:
    """By topic id where there is one, else by name; the two never meet."""
    if partition.topic_id != NO_TOPIC_ID:
        return (partition.topic_id, partition.partition)
    return (partition.topic, partition.partition)


@attrs.define(eq=False)
class CachedPartition:
    """One partition of a session: what is wanted of it, and what was told last."""

    wanted: tuple[TopicIdPartition, FetchInfo]
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    place: int = 0
    """Where in the session's order: those with a smaller one come first."""
    settled_at: Settled | None = None
    _session: "FetchSession | None" = None

    @property
    def pulse(self) -> Pulse:
        assert self._session is not None, "only a session settles partitions"
        return self._session.pulse

    def join(self, session: "FetchSession", place: int) -> None:
        self._session, self.place = session, place

    def settle(self, settled: Settled) -> None:
        self.settled_at = settled

    def unsettle(self) -> None:
        self.settled_at = None
        if self._session is not None:
            self._session.look_again_at(self)

    def release(self) -> None:
        """It is to be read anew, for a reason of the session's own."""
        if self.settled_at is not None:
            self.settled_at.release(self)
            self.settled_at = None

    def resolve_name(self, topic_names: Mapping[TopicId, str]) -> None:
        """Fill in a name that was unknown; a known one is never replaced."""
        partition, info = self.wanted
        if partition.topic is None and (name := topic_names.get(partition.topic_id)) is not None:
            self.wanted = (partition._replace(topic=name), info)

    def tell(self, answer: FetchPartitionData) -> bool:
        """Whether `answer` says something new (Rule 1); remembers it as told."""
        changed = (
            answer.records_size > 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch is not None
            or answer.error is not ErrorCode.NONE
        )
        if changed:
            self.remember(answer)
        return changed

    def remember(self, answer: FetchPartitionData) -> None:
        """As what was told last."""
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        if answer.error is not ErrorCode.NONE or answer.diverging_epoch is not None:
            # Beside these it is not taken: the next answer is told, whatever it says.
            self.high_watermark = NO_OFFSET


@attrs.define(eq=False, kw_only=True)
class FetchSession:
    session_id: int
    privileged: bool
    uses_topic_ids: bool
    partitions: dict[PartitionKey, CachedPartition]
    created_ms: int
    last_used_ms: int
    epoch: int = next_epoch(INITIAL_EPOCH)
    cached_size: int = 0
    evictable_by_privileged: bool = False
    evictable_by_all: bool = False
    unnamed: int = 0
    """How many of its partitions have no name yet."""
    unsettled: dict[PartitionKey, CachedPartition] = attrs.field(factory=dict, init=False)
    pulse: Pulse = attrs.field(factory=Pulse, init=False)
    terms: Hashable = attrs.field(default=None, init=False)
    listeners: list[Callable[[CachedPartition], None]] = attrs.field(factory=list, init=False)
    """Those who wait for any of its partitions."""
    _next_place: int = attrs.field(default=0, init=False)
    _most_unsettled: int = attrs.field(default=0, init=False)

    @property
    def behind(self) -> int:
        """How many of its partitions it has asked for below the high watermark that it was told."""
        return sum(
            each.wanted[1].fetch_offset < each.high_watermark for each in self.partitions.values()
        )

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        return (self.privileged, self.cached_size, self.session_id)

    def __attrs_post_init__(self) -> None:
        for place, (key, cached) in enumerate(self.partitions.items()):
            cached.join(self, place)
            self.unsettled[key] = cached
        self._next_place = len(self.partitions)

    def update(self, wanted: Wanted, forgotten: Iterable[TopicIdPartition]) -> None:
        for pair in wanted:
            key = partition_key(pair[0])
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = CachedPartition(pair)
                known.join(self, self._last_place())
                self.unnamed += pair[0].topic is None
            elif known.wanted[0].topic is None:
                known.wanted = pair
            else:
                known.wanted = (known.wanted[0], pair[1])
            known.release()
            self.unsettled[key] = known
        for partition in forgotten:
            key = partition_key(partition)
            gone = self.partitions.pop(key, None)
            if gone is not None:
                gone.release()
                self.unsettled.pop(key, None)

    def agree_on(self, terms: Hashable) -> None:
        """Rule 3."""
        if terms != self.terms:
            self.terms = terms
            self._release_all()

    def look_again_at(self, cached: CachedPartition) -> None:
        """It has moved; whoever waits in this session is told."""
        self.unsettled[partition_key(cached.wanted[0])] = cached
        for listener in self.listeners:
            listener(cached)

    @property
    def any_settled(self) -> bool:
        return len(self.unsettled) < len(self.partitions)

    def wanted(self, topic_names: Mapping[TopicId, str]) -> Wanted:
        """What is not settled, in the order of the session; unknown names are looked up again."""
        self.unsettled, self._most_unsettled = without_holes(self.unsettled, self._most_unsettled)
        unsettled = sorted(self.unsettled.values(), key=_place)
        if self.unnamed:
            for cached in unsettled:
                cached.resolve_name(topic_names)
            self.unnamed = sum(cached.wanted[0].topic is None for cached in unsettled)
        return [cached.wanted for cached in unsettled]

    def everything(self) -> Wanted:
        """Return all that the session asks for and whose name is known, in its order."""
        in_order = sorted(self.partitions.values(), key=_place)
        return [cached.wanted for cached in in_order if cached.wanted[0].topic is not None]

    def in_order(self, wanted: Wanted) -> Wanted:
        """The same, as they stand in the session; first what another request has forgotten."""

        def place(pair: tuple[TopicIdPartition, FetchInfo]) -> int:
            cached = self.partitions.get(partition_key(pair[0]))
            return -1 if cached is None else cached.place

        return sorted(wanted, key=place)

    def changed(self, answers: Answers) -> Answers:
        """Those of `answers` that say something new."""
        told = []
        for pair in answers:
            key = partition_key(pair[0])
            cached = self.partitions[key]
            if cached.tell(pair[1]):
                told.append(pair)
                if pair[1].records_size > 0:
                    cached.place = self._last_place()
            if cached.settled_at is not None:
                self.unsettled.pop(key, None)
        return told

    def close(self) -> None:
        """It has ended, though somebody may still wait in it."""
        self._release_all()

    def _release_all(self) -> None:
        for key, cached in self.partitions.items():
            cached.release()
            if key not in self.unsettled:
                self.look_again_at(cached)

    def _last_place(self) -> int:
        self._next_place += 1
        return self._next_place - 1


def _place(cached: CachedPartition) -> int:
    return cached.place
