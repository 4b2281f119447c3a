"""Lines after which those who ask and those who answer live in different leader epochs.

    deposed-leader-returns   who led is deposed, cuts its log, and leads again; a follower has heard of neither
    follower-misses-an-epoch    it is asked in its next reign before it has heard of the one between, in which it
               has yet to cut its log
    late-epoch-answer       an answer about where an epoch ends is on its way for two elections
    partition-changes-fetcher    an answer is on its way while its partition goes to another fetcher, and back

    b1  [e0: 0-1]           deposed   [e0: 0-0][e1: 1-1]   leads again, in epoch 2
    b2  [e0: 0-0]           leads     [e0: 0-0][e1: 1-1]
    b3  [e0: 0-1]           deaf      [e0: 0-1]            fetches at 2: has it what b1 has?

In each of the first three the offsets of two logs agree and their records do not, so that only
the epochs by which everybody asks tell that something is wrong (KIP-320). Fetches of version 11
have these, and have no other means; from 12 on a fetch also names the epoch of its last record
(KIP-595), and most of this is found twice. The last is about offsets, in any version.

As in `scenarios.swarm.sequences` each is the beginning of many stories. What is drawn for them has a
stream of its own: a contest that has none of them is what it was without them.
"""

import random
from collections.abc import Iterable, Iterator

import attrs

from scenarios.swarm.faults import FaultGenerator
from scenarios.swarm.sequences import FaultSequences
from storage.types import TopicPartition

FETCH_VERSION = "understudy.inter.broker.fetch.version"
HAPPENS = 0.7
"""How many contests have any."""
REPEATED = 0.4
KINDS = {
    11: ("deposed-leader-returns", "follower-misses-an-epoch", "late-epoch-answer"),
    17: (
        "partition-changes-fetcher",
        "partition-changes-fetcher",
        "deposed-leader-returns",
        "follower-misses-an-epoch",
    ),
}
"""By the version of fetches between brokers."""
VERSIONS = (11, 11, 17)
BACKOFFS_MS = (50, 200)
SHORT = ("10ms", "30ms", "30ms", "100ms")
LONG = ("100ms", "300ms", "600ms")
AT_PEACE, HEALED = 0.7, 0.7


@attrs.define(eq=False)
class EpochMismatch:
    chance: random.Random
    generator: FaultGenerator
    happens: bool
    _version: int = attrs.field(init=False)
    _backoff_ms: int = attrs.field(init=False)
    _sequences: FaultSequences = attrs.field(init=False)

    @classmethod
    def drawn(
        cls, chance: random.Random, generator: FaultGenerator, *, unless_hidden_by: bool
    ) -> "EpochMismatch":
        """Nor where fetches have to be of another version."""
        free = not unless_hidden_by and FETCH_VERSION not in generator.further_settings
        return cls(chance, generator, chance.random() < HAPPENS and free)

    def __attrs_post_init__(self) -> None:
        self._version = self.chance.choice(VERSIONS)
        self._backoff_ms = self.chance.choice(BACKOFFS_MS)
        self._sequences = FaultSequences(self.chance, self.generator)

    @property
    def settings(self) -> dict[str, object]:
        if not self.happens:
            return {}
        return {
            FETCH_VERSION: self._version,
            "replica.fetch.backoff.ms": self._backoff_ms,
        }

    @property
    def least_partitions(self) -> int:
        """So that a fetcher has several, and outlives the change of one."""
        return 2 if self.happens else 1

    def lines(self) -> Iterator[str]:
        """One of them, if it is time."""
        if self.happens and self.chance.random() < REPEATED:
            yield from self._any(self.chance.choice(self.generator.partitions))

    def _any(self, partition: TopicPartition) -> Iterator[str]:
        """If everybody may be heard."""
        kind = self.chance.choice(KINDS[self._version])
        if self.chance.random() < AT_PEACE:
            yield from self._make_peace()
        cluster = self.generator.stage.cluster
        leader = cluster.leader(partition)
        if leader is None or not all(map(self._sequences.is_well, cluster.names)):
            return
        others = [each for each in cluster.broker_names if each != leader]
        rival, deaf = self.chance.sample(others, 2)
        match kind:
            case "deposed-leader-returns":
                yield from self._deposed_leader_returns(partition, leader, rival, deaf)
            case "follower-misses-an-epoch":
                yield from self._follower_misses_an_epoch(partition, leader, rival, deaf)
            case "late-epoch-answer":
                yield from self._late_epoch_answer(partition, leader, rival, deaf)
            case _:
                yield from self._partition_changes_fetcher(leader, deaf)
        yield self._after_a_while()
        if self.chance.random() < HEALED:
            yield "heal"

    def _make_peace(self) -> Iterator[str]:
        stage = self.generator.stage
        unwell = [each for each in stage.cluster.names if not self._sequences.is_well(each)]
        for name in unwell:
            yield f"resume {name}" if stage.cluster.is_running(name) else f"start {name} &"
        yield "heal"
        yield "run 2s" if unwell else self._after_a_while()

    def _deposed_leader_returns(
        self, partition: TopicPartition, leader: str, rival: str, deaf: str
    ) -> Iterator[str]:
        yield f"hold c {deaf} FETCH"
        yield from self._tail_without(rival, partition, leader)
        yield from self._sequences.lead(partition, (rival, leader))
        yield f"heal {leader} {rival}"
        yield self._produce_to(rival, partition)
        yield self._soon()
        yield from self._sequences.lead(partition, (leader, rival))
        yield self._soon()
        yield self._sequences.produce(partition)

    def _follower_misses_an_epoch(
        self, partition: TopicPartition, leader: str, rival: str, deaf: str
    ) -> Iterator[str]:
        yield f"hold c {deaf} FETCH"
        yield from self._tail_without(rival, partition, leader)
        yield f"reassign {partition} {rival},{leader},{deaf}"
        yield "run 10ms"
        yield f"hold c {leader} FETCH"
        yield f"elect {partition} preferred"
        yield "run 3ms"
        yield f"heal {leader} {rival}"
        yield self._produce_to(rival, partition)
        yield "run 10ms"
        yield f"hold c {rival} FETCH"
        yield from self._sequences.lead(partition, (leader, rival))
        yield f"heal c {deaf}"
        yield "run 5ms"
        # Whoever fetches there has an answer, and asks again.
        yield self._produce_to(leader, partition)
        yield self._soon()
        # Of the two elections the news of one only.
        yield f"heal c {leader}"
        yield "run 2ms"
        yield f"hold c {leader} FETCH"
        yield self._soon()
        yield f"heal c {leader}"
        yield f"heal c {rival}"

    def _tail_without(self, rival: str, partition: TopicPartition, leader: str) -> Iterator[str]:
        """The leader and the others have something that `rival` has not."""
        yield f"cut {leader} {rival}"
        yield self._produce_to(leader, partition)
        yield self._soon()

    def _late_epoch_answer(
        self, partition: TopicPartition, rival: str, leader: str, deaf: str
    ) -> Iterator[str]:
        yield from self._gather(leader, self._others(partition))
        yield f"hold {leader} {deaf} OFFSET_FOR_LEADER_EPOCH"
        yield from self._sequences.lead(partition, (leader, rival))
        yield "run 10ms"
        yield from map(self._sequences.produce, self._others(partition))
        yield self._soon()
        yield from self._sequences.lead(partition, (rival, leader))
        yield "run 10ms"
        yield self._produce_to(rival, partition)
        yield self._soon()
        yield from self._sequences.lead(partition, (leader, rival))
        yield "run 10ms"
        yield f"heal {leader} {deaf}"

    def _partition_changes_fetcher(self, leader: str, deaf: str) -> Iterator[str]:
        yield from self._gather(leader, self.generator.partitions)
        yield f"late {leader} {deaf} 400ms"
        # Of two the second is the one that another fetcher is given.
        yield self._sequences.produce(self.generator.partitions[-1])
        yield self._soon()
        yield f"late {leader} {deaf} 1ms"
        yield f"alter {deaf} num.replica.fetchers=2"
        yield self._soon()
        yield f"alter {deaf} num.replica.fetchers=1"

    def _gather(self, leader: str, partitions: Iterable[TopicPartition]) -> Iterator[str]:
        """It leads these too."""
        for partition in partitions:
            if self.generator.stage.cluster.leader(partition) != leader:
                yield from self._sequences.lead(partition, (leader,))
        yield self._after_a_while()

    def _others(self, partition: TopicPartition) -> list[TopicPartition]:
        return [each for each in self.generator.partitions if each != partition]

    def _produce_to(self, name: str, partition: TopicPartition) -> str:
        """Whoever leads by now."""
        return self.generator.workload.once(partition, acks="1", to=name)

    def _soon(self) -> str:
        return f"run {self.chance.choice(SHORT)}"

    def _after_a_while(self) -> str:
        return f"run {self.chance.choice(LONG)}"
