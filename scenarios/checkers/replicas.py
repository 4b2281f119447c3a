"""The replicas that are online, and those that have changed.

A change is noticed as a fetch session notices it (`replication.leader.rules.settled`). A replica is
settled here when it is looked at; whatever changes it unsettles it.

A replica comes online or goes offline with an event, so the search is made after events.

The log start of a replica is remembered beyond its process: it is checkpointed only now and then,
and a process that is killed before may begin earlier in its next life (KIP-107).
"""

from collections.abc import Collection, Iterator

import attrs

from replication.leader.partition import Partition
from replication.leader.rules.isr import Pulse
from replication.leader.rules.settled import Settled
from replication.replica_manager import ReplicaManager
from scenarios.checkers import offsets, platter
from scenarios.checkers.observed import HeldLog, OnlineReplica, Wrong
from scenarios.checkers.offsets import FailedLog
from scenarios.checkers.producers import ProducersOfLog
from scenarios.world.cluster import SimulatedCluster
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX
from storage.testing.disk import Node
from storage.types import Offset, TopicPartition


@attrs.define(eq=False, kw_only=True, repr=False)
class Watched:
    """A replica that is online; for `Settled` it is one more fetch session."""

    node: str
    life: int
    manager: ReplicaManager
    replica: Partition
    held: HeldLog
    moved: "dict[Watched, None]"
    last: OnlineReplica | None = None
    """The state at the last look."""
    pulse: Pulse = attrs.field(factory=Pulse)
    producers: ProducersOfLog = attrs.field(factory=ProducersOfLog, init=False)
    _dropped: int = attrs.field(default=-1, init=False)
    _synced: tuple[int, ...] = attrs.field(default=(), init=False)

    def settle(self, settled: Settled) -> None:
        """Do nothing: `look` has set `last`."""

    def unsettle(self) -> None:
        self.moved[self] = None

    @property
    def fetchers(self) -> int:
        """The number of fetchers of this broker that fetch it."""
        return self.manager.roles.fetchers.followed_by(self.replica.topic_partition)

    def look_at_producers(
        self, *, latest_log_start: Offset, is_trusted: bool = True
    ) -> Iterator[Wrong]:
        """Check what the last look has found of producers.

        A disk that is not trusted may have kept what a log knew, and lost the log, or both in part.
        """
        log, where = self.replica.log, self._where
        if self._dropped != self.held.dropped:
            self._dropped = self.held.dropped
            self.producers.forget(log.log_end_offset)
        yield from self.producers.follow(where, self.held.batches, log_start=latest_log_start)
        if log.failure is None and is_trusted:
            yield from self.producers.known(
                where,
                log.producers,
                log_start=log.log_start_offset,
                high_watermark=log.high_watermark,
                now_ms=self.manager.clock.wall_ms(),
            )

    def look_at_platter(self, rotten: Collection[Node]) -> Iterator[Wrong]:
        """Check what is on the platter, if anything was synced, rolled or cut since the last look."""
        log = self.replica.log
        now = (log.recovery_point, log.local.flushes, len(log.segments), self.held.dropped)
        if now != self._synced and not log.failed:
            self._synced = now
            yield from platter.is_on_platter(self._where, self.held.disk, log, rotten=rotten)

    def look_at_cut(self, to_offset: Offset) -> Iterator[Wrong]:
        """Check what is left on the platter of a log that was just cut."""
        if not self.replica.log.failed:
            yield from platter.is_gone(self._where, self.held.disk, self.replica.log, to_offset)

    def look_without_power(self, rotten: Collection[Node]) -> Iterator[Wrong]:
        """Check what a power cut may leave of the log now, in the middle of a cut perhaps."""
        if not self.replica.log.failed:
            yield from platter.is_ready_for_a_power_cut(
                self._where, self.held.disk, self.replica.log, rotten=rotten
            )

    @property
    def _where(self) -> str:
        return f"{self.replica.topic_partition} on {self.node}"

    def look(self) -> OnlineReplica:
        replica, log = self.replica, self.replica.log
        leads = replica.leadership
        self.held.read_on()
        self.last = OnlineReplica(
            node=self.node,
            life=self.life,
            partition=replica.topic_partition,
            topic_id=replica.topic_id,
            is_leader=leads is not None,
            leader_epoch=replica.leader_epoch,
            partition_epoch=replica.partition_epoch,
            log_start=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end=log.log_end_offset,
            first_segment=log.segments[0].base_offset,
            isr=replica.isr,
            maximal_isr=frozenset() if leads is None else leads.maximal_isr,
            min_isr=min(replica.min_insync_replicas, len(replica.replicas)),
            epochs=tuple(log.leader_epoch_cache.entries),
            emptied=self.held.emptied(),
        )
        replica.settled.settle(self, None)
        return self.last


@attrs.define(eq=False, repr=False)
class Replicas:
    """The replicas that are online, by node and partition."""

    moved: dict[Watched, None] = attrs.field(factory=dict, init=False)
    """The replicas that have changed since the last look."""
    rotten: list[Node] = attrs.field(factory=list, init=False)
    """The indexes and checkpoints of which a bit has flipped; one that is written anew is another."""
    _watched: dict[tuple[str, TopicPartition], Watched] = attrs.field(factory=dict, init=False)
    _lives: dict[str, tuple[object, int]] = attrs.field(factory=dict, init=False)
    _failed: dict[Log, FailedLog] = attrs.field(factory=dict, init=False)
    _just_failed: list[Watched] = attrs.field(factory=list, init=False)
    _began_at: dict[TopicPartition, Offset] = attrs.field(factory=dict, init=False)
    """The latest log start of the replicas that have gone offline."""
    _last_logs: dict[tuple[str, TopicPartition], Log] = attrs.field(factory=dict, init=False)
    """The logs that are online, or were when their process ended."""
    _untrusted: set[str] = attrs.field(factory=set, init=False)
    _gone: list[Wrong] = attrs.field(factory=list, init=False)

    def get(self, node: str, partition: TopicPartition) -> Watched | None:
        return self._watched.get((node, partition))

    def of(self, partition: TopicPartition) -> list[Watched]:
        return [each for (_, where), each in self._watched.items() if where == partition]

    def at(self, node: str) -> list[Watched]:
        return [each for (name, _), each in self._watched.items() if name == node]

    def latest_log_start(self, partition: TopicPartition) -> Offset:
        """Return the latest log start of all replicas that ever were online."""
        now = [each.replica.log.log_start_offset for each in self.of(partition)]
        return max([self._began_at.get(partition, 0), *now])

    def untrusted(self, node: str) -> None:
        """Expect nothing more of a disk that lies, has failed, is damaged or was replaced: it may
        lack what was synced.
        """
        self._untrusted.add(node)

    def deleted(self, node: str, partition: TopicPartition) -> None:
        """Forget a log that was deleted."""
        self._last_logs.pop((node, partition), None)

    def is_trusted(self, node: str) -> bool:
        return node not in self._untrusted

    def recovered(self, node: str, partition: TopicPartition, log_end: Offset) -> Iterator[Wrong]:
        """Check where the next process of a node has found the end of a log.

        A process that ended while it began a log anew has left nothing below the recovery point.
        """
        log = self._last_logs.pop((node, partition), None)
        if log is None or node in self._untrusted:
            return
        if any(each.base_offset < log.recovery_point for each in log.segments):
            yield from offsets.synced_survives(
                f"{partition} on {node}", log.recovery_point, log_end
            )

    def gone(self) -> list[Wrong]:
        """Return the violations of logs that a node's next process has not found at all."""
        wrongs, self._gone = self._gone, []
        return wrongs

    def find(self, cluster: SimulatedCluster) -> None:
        """Watch the replicas that have come online; forget those that have gone offline."""
        found = set()
        for name, manager in cluster.replica_managers.items():
            for partition, replica in manager.hosted.online.items():
                found.add((name, partition))
                watched = self._watched.get((name, partition))
                if watched is None or watched.replica is not replica:
                    if watched is not None:
                        self._let_go(watched)
                    held = HeldLog(cluster.world.disk(name), replica.log)
                    if name in self._untrusted:
                        held.lost = _holes(replica.log)
                    self._watch(name, self._life(name, manager), manager, replica, held)
        for gone in [each for each in self._watched if each not in found]:
            self._let_go(self._watched.pop(gone))

    def _life(self, name: str, manager: ReplicaManager) -> int:
        known = self._lives.get(name)
        if known is None or known[0] is not manager:
            known = self._lives[name] = (manager, 1 + (0 if known is None else known[1]))
            for node, partition in [each for each in self._last_logs if each[0] == name]:
                self._gone += self.recovered(node, partition, 0)
        return known[1]

    def _watch(
        self, name: str, life: int, manager: ReplicaManager, replica: Partition, held: HeldLog
    ) -> None:
        watched = self._watched[name, replica.topic_partition] = Watched(
            node=name, life=life, manager=manager, replica=replica, held=held, moved=self.moved
        )
        watched.unsettle()
        self._last_logs[name, replica.topic_partition] = replica.log

    def _let_go(self, watched: Watched) -> None:
        partition = watched.replica.topic_partition
        self._began_at[partition] = max(
            self._began_at.get(partition, 0), watched.replica.log.log_start_offset
        )
        watched.replica.settled.release(watched)
        self.moved.pop(watched, None)
        log = watched.replica.log
        if log.failure is not None:
            where = f"{partition} on {watched.node}"
            self._failed[log] = _failed(where, log)
            self._just_failed.append(watched)

    def take_just_failed(self) -> list[Watched]:
        """Return the replicas whose log has failed since this was asked last."""
        just_failed, self._just_failed = self._just_failed, []
        return just_failed

    def failed(self) -> Iterator[tuple[FailedLog, FailedLog]]:
        """Yield each failed log: its state at the failure, and its state now."""
        for log, before in self._failed.items():
            yield before, _failed(before.where, log)


def _holes(log: Log) -> list[range]:
    """Return the offsets before a segment that no segment has, as the opening of the log reported."""
    bases = {each.path(LOG_SUFFIX): each.base_offset for each in log.segments}
    found = [each for each in log.recovery.repairs if each.path in bases]
    return [range(each.offset, bases[each.path]) for each in found]


def _failed(where: str, log: Log) -> FailedLog:
    return FailedLog(where, log.log_end_offset, log.size)
