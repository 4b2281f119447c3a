"""One fetch session, as its leader keeps it (KIP-227): what is wanted, and what was answered.

Rule 1: a partition is answered again when it has records, an error, a diverging epoch or a
preferred replica, or when its high watermark or log start is not what was answered last. It is
answered again too where the follower names a log start before that: it did not take that answer,
because it was in another leader epoch by then.
One that was answered with records moves to the end, so that the next ones get their turn.

Rule 2: only partitions that are not settled (replication/leader/rules/settled.py) are looked at. A session
begins with none of them settled; a read for the session settles them, and `changed` removes
those that are settled and have been answered from the unsettled ones.

    partitions   p0 p1 p2 p3 ... p99999
    unsettled          p2              what the next request reads

Rule 3: what is settled was settled on the session's terms: the replica, its broker epoch, and
how far it may read. On other terms everything is looked at again.

Rule 4: what looks at many partitions works in steps. In a pause partitions may be added,
forgotten or unsettled, so every step goes by a list of its own.

A session keeps the (partition, wanted) pair that a read needs, built when the request
that named it came.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter, itemgetter
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
from replication.steps import STEP, Steps, each_of
from storage.attributes import define
from storage.types import NO_OFFSET, NO_TOPIC_ID, Offset, TopicId

PartitionKey: TypeAlias = tuple[TopicId | str | None, int]


def partition_key(partition: TopicIdPartition) -> PartitionKey:
    """Return the topic id, or the name where there is no id, and the partition."""
    if partition.topic_id != NO_TOPIC_ID:
        return (partition.topic_id, partition.partition)
    return (partition.topic, partition.partition)


@define(eq=False)
class CachedPartition:
    """One partition of a session: what is wanted of it, and what was answered last."""

    wanted: tuple[TopicIdPartition, FetchInfo]
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    place: int = 0
    """Its place in the session's order; partitions with smaller numbers come first."""
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
        """End the settling of the partition, so that it is read anew."""
        if self.settled_at is not None:
            self.settled_at.release(self)
            self.settled_at = None

    def resolve_name(self, topic_names: Mapping[TopicId, str]) -> None:
        """Fill in a name that was unknown; a known one is never replaced."""
        partition, info = self.wanted
        if partition.topic is None and (name := topic_names.get(partition.topic_id)) is not None:
            self.wanted = (partition._replace(topic=name), info)

    def is_news(self, answer: FetchPartitionData) -> bool:
        """Return whether `answer` says something new (Rule 1), and remember it if so."""
        changed = (
            answer.records is not None
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
        """Keep what was answered, to compare the next answer with it."""
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        if answer.error is not ErrorCode.NONE or answer.diverging_epoch is not None:
            # Beside these the client does not take it: the next answer is sent, whatever it says.
            self.high_watermark = NO_OFFSET


@define(eq=False, kw_only=True)
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
    """The number of its partitions that have no name yet."""
    unsettled: dict[PartitionKey, CachedPartition] = attrs.field(factory=dict, init=False)
    pulse: Pulse = attrs.field(factory=Pulse, init=False)
    terms: Hashable = attrs.field(default=None, init=False)
    listeners: list[Callable[[CachedPartition], None]] = attrs.field(factory=list, init=False)
    """Called with each partition that is not settled any more, while a fetch waits."""
    has_ended: bool = attrs.field(default=False, init=False)
    """Whether nothing may be settled in it any more."""
    _next_place: int = attrs.field(default=0, init=False)
    _most_unsettled: int = attrs.field(default=0, init=False)

    @property
    def behind(self) -> int:
        """The number of partitions that it last requested below their last answered high watermark."""
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

    def update(self, wanted: Wanted, forgotten: Sequence[TopicIdPartition]) -> Steps[None]:
        """Apply the partitions that a request adds, changes and forgets."""
        for number, pair in enumerate(wanted, start=1):
            self._want(pair)
            if number % STEP == 0:
                yield STEP
        for number, partition in enumerate(forgotten, start=1):
            self._forget(partition)
            if number % STEP == 0:
                yield STEP

    def _want(self, pair: tuple[TopicIdPartition, FetchInfo]) -> None:
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
        if NO_OFFSET < pair[1].log_start_offset < known.log_start_offset:
            known.log_start_offset = NO_OFFSET
        known.release()
        self.unsettled[key] = known

    def _forget(self, partition: TopicIdPartition) -> None:
        key = partition_key(partition)
        gone = self.partitions.pop(key, None)
        if gone is not None:
            gone.release()
            self.unsettled.pop(key, None)

    def agree_on(self, terms: Hashable) -> Steps[None]:
        """Read every partition again if the terms have changed (Rule 3)."""
        if terms != self.terms:
            self.terms = terms
            yield from each_of(self._release, list(self.partitions.values()))

    def may_settle(self, terms: Hashable) -> bool:
        """Return whether a request on `terms` may still settle partitions here (Rule 3)."""
        return not self.has_ended and self.terms == terms

    def look_again_at(self, cached: CachedPartition) -> None:
        """Read a partition that has moved again: for the request that waits, or with the next one."""
        self.unsettled[partition_key(cached.wanted[0])] = cached
        for listener in self.listeners:
            listener(cached)

    @property
    def any_settled(self) -> bool:
        return len(self.unsettled) < len(self.partitions)

    def wanted(self, topic_names: Mapping[TopicId, str]) -> Steps[Wanted]:
        """Return the partitions that are not settled, in the session's order, with names found by now."""
        if not self.unsettled:
            return []
        self.unsettled, self._most_unsettled = without_holes(self.unsettled, self._most_unsettled)
        unsettled = sorted(self.unsettled.values(), key=_PLACE)
        if self.unnamed:
            yield from each_of(lambda cached: cached.resolve_name(topic_names), unsettled)
            self.unnamed = sum((yield from each_of(_is_unnamed, unsettled)))
        if len(unsettled) <= STEP:
            return [cached.wanted for cached in unsettled]
        return (yield from each_of(_WANTED, unsettled))

    def everything(self) -> Wanted:
        """Return all partitions of the session whose names are known, in its order."""
        in_order = sorted(self.partitions.values(), key=_PLACE)
        return [cached.wanted for cached in in_order if cached.wanted[0].topic is not None]

    def in_order(self, wanted: Wanted) -> Steps[Wanted]:
        """Return `wanted` in the session's order; partitions that it has forgotten come first."""
        places = yield from each_of(self._place_of, wanted)
        return [pair for _, pair in sorted(zip(places, wanted, strict=True), key=itemgetter(0))]

    def _place_of(self, pair: tuple[TopicIdPartition, FetchInfo]) -> int:
        cached = self.partitions.get(partition_key(pair[0]))
        return -1 if cached is None else cached.place

    def changed(self, answers: Answers) -> Steps[Answers]:
        """Return the answers that say something new."""
        changed = []
        for number, pair in enumerate(answers, start=1):
            if self._is_news(pair):
                changed.append(pair)
            if number % STEP == 0:
                yield STEP
        return changed

    def _is_news(self, pair: tuple[TopicIdPartition, FetchPartitionData]) -> bool:
        key, answer = partition_key(pair[0]), pair[1]
        cached = self.partitions.get(key)
        if cached is None:
            return False  # another request has forgotten it in a pause
        is_news = cached.is_news(answer)
        if is_news and answer.records is not None:
            cached.place = self._last_place()
        if cached.settled_at is not None:
            self.unsettled.pop(key, None)
        return is_news

    def close(self) -> None:
        """End the session; a request that still reads or waits in it is answered."""
        self.has_ended = True
        for cached in list(self.partitions.values()):
            self._release(cached)

    def _release(self, cached: CachedPartition) -> None:
        cached.release()
        if partition_key(cached.wanted[0]) not in self.unsettled:
            self.look_again_at(cached)

    def _last_place(self) -> int:
        self._next_place += 1
        return self._next_place - 1


_PLACE: Callable[[CachedPartition], int] = attrgetter("place")
_WANTED: Callable[[CachedPartition], tuple[TopicIdPartition, FetchInfo]] = attrgetter("wanted")


def _is_unnamed(cached: CachedPartition) -> bool:
    return cached.wanted[0].topic is None
