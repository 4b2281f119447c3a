"""Disks that are not to be trusted, and what is near them: a few lines that belong together.

    uncut    the power fails between a cut, a checkpoint and the next sync: the cut is undone
    lie      a disk says that it has synced, its broker shuts down in good order, the power fails
    rot      a byte of one replica is another one than was written
    tail     records are to be deleted while some of the log is not committed
    shrink   the ISR becomes too small after an append, and before its answer
    remake   the topic is deleted, and another one made under its name

Drawn from a stream of its own, as `harm` is: the rest of a run does not depend on whether it
has any of this. In a `LeadershipContest` leaders are known and short-lived, so most of these are found
there; other runs have those that ask for nobody in particular.

What is expected of each is in `scenarios.checkers.contract`. One disk of a run lies,
and one replica of it rots: of two, both may have been all that there was.
"""

import random
from collections.abc import Iterator, Sequence

import attrs

from scenarios.story.log_drawing import batches_of
from scenarios.swarm.faults import FaultGenerator
from scenarios.swarm.sequences import FaultSequences
from scenarios.swarm.settings import Chance
from scenarios.world.cluster import CONTROLLER, node_name, partition_directory
from storage.types import TopicPartition

IN_CONTESTS, ELSEWHERE = 0.5, 0.3
HAPPENS = 0.2
OF_CONTESTS = ("uncut", "lie", "rot", "tail", "shrink", "remake")
OF_ANY_RUN = ("lie", "rot", "remake")
# What our own clients make of either is not judged.
NOT_IN_COMPANY = ("rot", "remake")
SETTINGS: dict[str, dict[str, object]] = {
    "uncut": {"replica.high.watermark.checkpoint.interval.ms": 50},
    "lie": {"min.insync.replicas": 2},
    "tail": {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300},
    "shrink": {"min.insync.replicas": 2, "replica.lag.time.max.ms": 500},
    # Fetches that carry no topic id may be taken for those of the topic before (KIP-516).
    "remake": {"understudy.inter.broker.fetch.version": 17},
}


@attrs.define(eq=False, kw_only=True)
class DiskFailures:
    chance: random.Random
    generator: FaultGenerator
    kinds: tuple[str, ...]
    _sequences: FaultSequences = attrs.field(init=False)
    _liar: str | None = attrs.field(default=None, init=False)
    _rots_on: str | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._sequences = FaultSequences(self.chance, self.generator)

    @classmethod
    def drawn(cls, chance: Chance, generator: FaultGenerator, *, contested: bool) -> "DiskFailures":
        frail = chance("frailty")
        share, kinds = (IN_CONTESTS, OF_CONTESTS) if contested else (ELSEWHERE, OF_ANY_RUN)
        has_any = frail.random() < share
        drawn = frail.sample(kinds, frail.randint(1, 2)) if has_any else []
        if generator.our_clients.kinds:
            drawn = [each for each in drawn if each not in NOT_IN_COMPANY]
        return cls(chance=frail, generator=generator, kinds=tuple(drawn))

    @property
    def settings(self) -> dict[str, object]:
        """What some of them take to come about."""
        return {key: value for kind in self.kinds for key, value in SETTINGS.get(kind, {}).items()}

    def lines(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        """Some of them, or none where it is not time, or nobody is in the state for it."""
        if not self.kinds or self.chance.random() >= HAPPENS:
            return
        partition = self.chance.choice(partitions)
        kind = self.chance.choice(self.kinds)
        if kind == "rot":
            yield from self._rot(partition)
            return
        leader = self.generator.stage.cluster.leader(partition)
        others = [each for each in self._replicas(partition) if each != leader]
        if leader is None or not others or not self._all_well(CONTROLLER, leader):
            return
        match kind:
            case "uncut":
                yield from self._uncut(partition, leader)
            case "lie":
                yield from self._lie(partition, leader, others)
            case "tail":
                yield from self._tail(partition, leader)
            case "shrink":
                yield from self._shrink(partition, leader)
            case _:
                yield from self.remade(partition, partitions)

    # Who is there, and how.

    def _replicas(self, partition: TopicPartition) -> list[str]:
        registration = self.generator.stage.cluster.partition(partition)
        return [] if registration is None else list(map(node_name, registration.replicas))

    def _all_well(self, *names: str) -> bool:
        return all(map(self._sequences.is_well, names))

    def _is_running(self, name: str) -> bool:
        return self.generator.stage.cluster.is_running(name)

    def _run(self, *durations: str) -> str:
        return f"run {self.chance.choice(durations)}"

    def _cut_off(self, name: str) -> str:
        """From the other brokers; the controller hears it."""
        return f"cut {name} {' '.join(each for each in self._sequences.brokers if each != name)}"

    # Cuts that are undone.

    def _uncut(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        """What nobody fetched is cut by its writer, what came instead is known to be committed,
        and that is written down: then the cut is lost with the power.
        """
        yield self._cut_off(leader)
        yield self._sequences.produce(partition)
        yield self._run("3ms", "10ms", "30ms")
        yield from self._sequences.lead(partition, last=leader)
        for _ in range(self.chance.randint(2, 3)):
            yield self._sequences.produce(partition)
        yield "heal"
        yield self._run("60ms", "100ms", "200ms", "400ms")
        if self._all_well(leader):
            yield f"power-cut {leader}{'' if leader == self._liar else ' leaving=uncut'}"
        yield from self._sequences.back(leader)
        yield self._run("10ms", "100ms", "1s")

    # Syncs that did nothing.

    def _lie(self, partition: TopicPartition, leader: str, others: list[str]) -> Iterator[str]:
        """One who is eligible, and whose marker of a good order outlives what it speaks for."""
        if self._liar is None:
            self._liar = self.chance.choice([leader, *others])
            yield f"lie {self._liar} names=*.log"
        if self._liar not in (leader, *others):
            return
        idle = [each for each in (leader, *others) if each != self._liar][1:]
        for name in idle:
            if self._all_well(name, CONTROLLER):
                yield f"stop {name}"
        for _ in range(self.chance.randint(1, 3)):
            yield self._sequences.produce(partition)
        yield self._run("30ms", "100ms", "300ms")
        if self._all_well(self._liar, CONTROLLER):
            yield f"stop {self._liar}"
        if not self._is_running(self._liar):
            yield f"power-cut {self._liar}"
            yield from self._sequences.back(self._liar)
        yield self._run("10ms", "100ms", "1s")
        for name in idle:
            yield from self._sequences.back(name)

    # Bytes that nobody wrote.

    def _rot(self, partition: TopicPartition) -> Iterator[str]:
        """One replica of the run, whether its broker is up or not."""
        name = self._rots_on or self.chance.choice(self._replicas(partition) or [""])
        disk = self.generator.stage.cluster
        directory = partition_directory(name, partition)
        offsets = [
            offset
            for batch in (batches_of(disk.disk(name), directory) if name else ())
            for offset in range(batch.base_offset, batch.last_offset + 1)
        ]
        if not offsets:
            return
        self._rots_on = name
        yield f"rot {name} {partition} {self.chance.choice(offsets)}"
        yield f"poll {partition} &"

    # What is not committed.

    def _tail(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        yield f"alter {partition.topic} segment.bytes={self.chance.choice((100, 200, 1 << 30))}"
        yield self._cut_off(leader)
        for _ in range(self.chance.randint(2, 4)):
            yield self._sequences.produce(partition)
        yield self._run("3ms", "10ms")
        end = self._sequences.log_end(partition, leader)
        asked = (
            f"delete-records {partition} {end} &",
            f"delete-records {partition} all &",
            f"alter {partition.topic} retention.bytes=1",
        )
        yield from self.chance.sample(asked, 2)
        yield self._run("300ms", "1s")
        if self.chance.random() < 0.5 and self._all_well(CONTROLLER):
            yield from self._sequences.lead(partition, last=leader)
        yield "heal"
        yield self._run("30ms", "300ms")
        yield f"alter {partition.topic} retention.bytes=-1"

    def _shrink(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        """While the leader's disk syncs what all have fetched, all followers leave the ISR: they
        lack what comes after it.
        """
        yield f"alter {partition.topic} flush.messages=1"
        yield f"slow {leader} disk=500ms"
        yield self.generator.workload.once(partition, acks="all")
        yield self._run("20ms", "50ms")
        yield self._cut_off(leader)
        yield self.generator.workload.once(partition, acks="1")
        yield "run 2s"
        yield f"slow {leader} disk=1ms"
        yield f"alter {partition.topic} flush.messages={(1 << 63) - 1}"
        yield "heal"

    # Another topic of that name.

    def remade(
        self, partition: TopicPartition, partitions: Sequence[TopicPartition]
    ) -> Iterator[str]:
        """Asked for by somebody whom everybody hears, and who stays; some replicas may be down."""
        stage = self.generator.stage
        brokers = [each for each in self._sequences.brokers if self._is_running(each)]
        if partition.topic in stage.compacted or not self._all_well(*brokers):
            return
        if not any(map(stage.stays, brokers)):
            return
        copies = len(self._replicas(partition))
        assigned = []
        for _ in partitions:
            first = self.chance.choice(brokers)
            rest = [each for each in self._sequences.brokers if each != first]
            assigned.append([first, *self.chance.sample(rest, copies - 1)])
        yield "heal"
        yield f"remake {partition.topic} replicas={'/'.join(map(','.join, assigned))}"
