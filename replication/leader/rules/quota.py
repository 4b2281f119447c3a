"""Throttled replication (KIP-73; ReplicationQuotaManager).

Replicas that are being moved must not starve the others. An operator names replicas and a rate;
the named replicas share the rate, on each of two sides:

    leader     leaves a throttled partition out of its answer to a follower
    follower   leaves a throttled partition out of its request

Rule 1: only a replica out of sync is throttled. Otherwise a rate set too low would shrink every
ISR, and acks=all would wait for it.

Rule 2: recording never refuses anything. Bytes above the rate count as well; the next requests
wait until the measured rate is no longer *above* the limit.

Rule 3: the bytes of throttled replicas are recorded whether or not they are in sync, and whether
or not the limit is exceeded.

The rate is that of SimpleRate over SampledStat: `num` samples of `size` seconds, each begun by
the first event after the previous one was full. It is their sum, divided by the time since the
oldest of them began, but by no less than one sample. A sample without events for `num` times
`size` begins anew.

        12 kB  |  0 |  6 kB |  2 kB          20 kB in 3.4 s: 5.9 kB/s
    ----+-----------+-------+------> now
        oldest begins
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from replication.config.topic import EVERY_REPLICA
from storage.attributes import define, frozen
from storage.types import TopicPartition

UNLIMITED: Final = 2**63 - 1


@define
class _Sample:
    began_ms: int
    last_ms: int
    total: int = 0

    def restart(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0


@define
class SampledRate:
    """A rate in units per second over the last samples."""

    samples: int = 11
    sample_ms: int = 1000
    _ring: list[_Sample] = attrs.field(factory=list, init=False)
    _current: int = attrs.field(default=0, init=False)

    def record(self, amount: int, *, now_ms: int) -> None:
        sample = self._sample(now_ms)
        if now_ms - sample.began_ms >= self.sample_ms:
            sample = self._next(now_ms)
        sample.total += amount
        sample.last_ms = now_ms

    def per_second(self, *, now_ms: int) -> float:
        self._sample(now_ms)  # the first call begins the first sample
        for each in self._ring:
            if now_ms - each.last_ms >= self.samples * self.sample_ms:
                each.restart(now_ms)
        elapsed_ms = now_ms - min(each.began_ms for each in self._ring)
        total = sum(each.total for each in self._ring)
        return total * 1000 / max(elapsed_ms, self.sample_ms)

    def _sample(self, now_ms: int) -> _Sample:
        if not self._ring:
            self._ring.append(_Sample(now_ms, now_ms))
        return self._ring[self._current]

    def _next(self, now_ms: int) -> _Sample:
        # One sample more than are counted: the oldest may have begun before the window.
        self._current = (self._current + 1) % (self.samples + 1)
        if self._current == len(self._ring):
            self._ring.append(_Sample(now_ms, now_ms))
        else:
            self._ring[self._current].restart(now_ms)
        return self._ring[self._current]


@define(kw_only=True)
class ReplicationQuota:
    """The throttled replicas of one side, and their rate."""

    rate: SampledRate = attrs.field(factory=SampledRate)
    bytes_per_second: int = UNLIMITED
    throttles: bool = attrs.field(default=False, init=False)
    """Whether any replica is named at all."""
    _throttled: dict[str, frozenset[int] | None] = attrs.field(factory=dict)
    """By topic: the partitions, or None for all of them."""

    def throttle(self, topic: str, replicas: Iterable[str], *, broker_id: int) -> None:
        """Throttle these replicas of `topic`, each `partition:broker` or a star for all; no others."""
        replicas = tuple(replicas)
        if replicas == (EVERY_REPLICA,):
            ours = None
        else:
            pairs = (each.split(":") for each in replicas)
            ours = frozenset(int(number) for number, broker in pairs if int(broker) == broker_id)
        self.forget(topic)
        if ours is None or ours:
            self._throttled[topic] = ours
            self.throttles = True

    def forget(self, topic: str) -> None:
        self._throttled.pop(topic, None)
        self.throttles = bool(self._throttled)

    def is_throttled(self, partition: TopicPartition) -> bool:
        numbers = self._throttled.get(partition.topic, frozenset())
        return numbers is None or partition.partition in numbers

    def is_exceeded(self, *, now_ms: int) -> bool:
        """Return whether the rate is above the limit; exactly at the limit it is not."""
        return self.rate.per_second(now_ms=now_ms) > self.bytes_per_second

    def holds_back(self, partition: TopicPartition, *, now_ms: int) -> bool:
        """Return whether `partition` has to wait if it is out of sync."""
        return self.is_throttled(partition) and self.is_exceeded(now_ms=now_ms)

    def record(self, sizes: Mapping[TopicPartition, int], *, now_ms: int) -> None:
        """Count the bytes sent or received; only those of throttled partitions matter."""
        total = sum(size for each, size in sizes.items() if self.is_throttled(each))
        if total:
            self.rate.record(total, now_ms=now_ms)


@frozen(kw_only=True)
class ReplicationQuotas:
    """The quotas of both sides of one broker."""

    leader: ReplicationQuota
    follower: ReplicationQuota

    @classmethod
    def measured_over(cls, *, samples: int, sample_ms: int) -> "ReplicationQuotas":
        return cls(
            leader=ReplicationQuota(rate=SampledRate(samples, sample_ms)),
            follower=ReplicationQuota(rate=SampledRate(samples, sample_ms)),
        )

    def limit(self, *, leader: int, follower: int) -> None:
        """Set the rate of each side, in bytes per second."""
        self.leader.bytes_per_second = leader
        self.follower.bytes_per_second = follower

    def forget(self, topic: str) -> None:
        self.leader.forget(topic)
        self.follower.forget(topic)
