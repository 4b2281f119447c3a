"""A leader's fetch sessions (KIP-227): which of them keep a slot.

Rule 1: slots are scarce and followers matter more than consumers. A full shard gives up
a session that is idle; else one that a follower (privileged) or a larger and older
demand may displace; else the newcomer goes without and keeps sending full requests.

Rule 2: ids are split over the shards by range, so that an id alone tells its shard.
"""

from typing import Protocol

import attrs

from replication.events import (
    EventSink,
    FetchSessionClosed,
    FetchSessionEvicted,
    FetchSessionOpened,
    ignore,
)
from replication.leader.rules.fetch_session.session import (
    CachedPartition,
    FetchSession,
    PartitionKey,
)
from replication.metrics import Gauge, MetricName, MetricsRegistry
from storage.attributes import define

SHARDS = 8
EVICTION_MS = 120_000
_MAX_ID = 2**31 - 1


class SessionIdRandom(Protocol):
    """The part of `random.Random` that a cache uses."""

    def randrange(self, start: int, stop: int) -> int: ...


@define(eq=False, kw_only=True)
class CacheShard:
    """The sessions of one range of ids, and which of them may be displaced."""

    max_sessions: int
    first_id: int
    end_id: int
    chance: SessionIdRandom
    eviction_ms: int = EVICTION_MS
    sink: EventSink = ignore
    partitions: int = 0
    evictions: int = 0
    _sessions: dict[int, FetchSession] = attrs.Factory(dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> FetchSession | None:
        session = self._drop(session_id)
        if session is not None:
            self.sink(FetchSessionClosed(session_id=session_id))
        return session

    def _drop(self, session_id: int) -> FetchSession | None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.cached_size
            session.close()
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that the session was used now: its size, and whether it may be evicted, are as of now."""
        session.last_used_ms = session.pulse.last_fetch_ms = now_ms
        size = len(session.partitions)
        self.partitions += size - session.cached_size
        session.cached_size = size
        session.evictable_by_all = now_ms - session.created_ms > self.eviction_ms
        session.evictable_by_privileged = session.evictable_by_all or not session.privileged

    def maybe_create(
        self,
        partitions: dict[PartitionKey, CachedPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Return a session for `partitions`, if there is a slot or one can be freed."""
        if len(self._sessions) >= self.max_sessions and not self._evict(
            (privileged, len(partitions), 0), privileged=privileged, now_ms=now_ms
        ):
            return None
        session = FetchSession(
            session_id=self._new_id(),
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            partitions=partitions,
            created_ms=now_ms,
            last_used_ms=now_ms,
            unnamed=sum(cached.wanted[0].topic is None for cached in partitions.values()),
        )
        self._sessions[session.session_id] = session
        self.touch(session, now_ms)
        self.sink(
            FetchSessionOpened(
                session_id=session.session_id,
                partitions=len(partitions),
                privileged=privileged,
            )
        )
        return session

    def _new_id(self) -> int:
        while True:
            session_id = self.chance.randrange(self.first_id, self.end_id)
            if session_id not in self._sessions:
                return session_id

    def _evict(self, newcomer: tuple[bool, int, int], *, privileged: bool, now_ms: int) -> bool:
        """Free a slot for `newcomer` (Rule 1). A shard is small; scanning it is fine."""
        sessions = self._sessions.values()
        idlest = min(sessions, key=lambda each: (each.last_used_ms, each.session_id), default=None)
        if idlest is None:
            return False
        cause = "idle"
        if now_ms - idlest.last_used_ms <= self.eviction_ms:
            cause = "displaced"
            candidates = [
                each
                for each in sessions
                if (each.evictable_by_privileged if privileged else each.evictable_by_all)
            ]
            idlest = min(candidates, key=lambda each: each.eviction_key, default=None)
            if idlest is None or newcomer < idlest.eviction_key:
                return False
        self._drop(idlest.session_id)
        self.evictions += 1
        self.sink(
            FetchSessionEvicted(
                session_id=idlest.session_id,
                cause=cause,
                partitions=idlest.cached_size,
                privileged=idlest.privileged,
                behind=idlest.behind,
            )
        )
        return True


class FetchSessionCache:
    """Every session of a broker, in shards."""

    def __init__(
        self,
        *,
        chance: SessionIdRandom,
        slots: int = 1000,
        shards: int = SHARDS,
        eviction_ms: int = EVICTION_MS,
        sink: EventSink = ignore,
    ) -> None:
        self._range = _MAX_ID // shards
        self._shards = [
            CacheShard(
                max_sessions=slots // shards,
                first_id=max(1, index * self._range),
                end_id=(index + 1) * self._range,
                chance=chance,
                eviction_ms=eviction_ms,
                sink=sink,
            )
            for index in range(shards)
        ]
        self._created = 0

    def shard_of(self, session_id: int) -> CacheShard | None:
        """Return the shard of an id; None for one that no shard gives out, as a peer may send."""
        shard = session_id // self._range
        return self._shards[shard] if 0 <= shard < len(self._shards) else None

    def next_shard(self) -> CacheShard:
        """Return the shard for the next session: round robin."""
        shard = self._shards[self._created % len(self._shards)]
        self._created += 1
        return shard

    def get(self, session_id: int) -> FetchSession | None:
        shard = self.shard_of(session_id)
        return None if shard is None else shard.get(session_id)

    def remove(self, session_id: int) -> FetchSession | None:
        shard = self.shard_of(session_id)
        return None if shard is None else shard.remove(session_id)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        shard = self.shard_of(session.session_id)
        assert shard is not None, "a shard gave the session its id"
        shard.touch(session, now_ms)

    @property
    def sessions(self) -> int:
        return sum(map(len, self._shards))

    @property
    def partitions(self) -> int:
        return sum(shard.partitions for shard in self._shards)

    @property
    def evictions(self) -> int:
        return sum(shard.evictions for shard in self._shards)

    def register(self, metrics: MetricsRegistry) -> None:
        """Show these numbers under Kafka's names."""
        gauges: dict[str, Gauge] = {
            "NumIncrementalFetchSessions": lambda: self.sessions,
            "NumIncrementalFetchPartitionsCached": lambda: self.partitions,
            "IncrementalFetchSessionEvictionsPerSec": lambda: self.evictions,
        }
        for name, read in gauges.items():
            metrics.gauge(MetricName("kafka.server", "FetchSessionCache", name), read)
