"""Some lines that belong together: what a leader and the controller know of each other.

    lost       somebody joins, and the answer that says so is lost; asked again, the controller
               knows of it already
    overtaken  two join, one after the other, and the news of the first come after both answers
    reborn     somebody is about to join; the question comes after its process, and its disk,
               have been replaced
    blackout   power fails everywhere, and they come back one by one

As in `scenarios.swarm.sequences` each is the beginning of many stories. What is drawn for them has a
stream of its own: a contest that has none of them is what it was without them.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.swarm.faults import FaultGenerator
from scenarios.swarm.sequences import FaultSequences
from storage.types import TopicPartition

HAPPENS = 0.5
"""How many contests have any."""
AGAIN = 0.2
KINDS = ("lost", "lost", "overtaken", "reborn", "reborn", "blackout")
SOON = ("30ms", "100ms", "300ms")
UP = ("1s", "2s", "2s", "3s")
"""For who has been stopped to be up again, and not fenced."""
BACK = ("1ms", "100ms", "3s", "10s")


@attrs.define(eq=False)
class LostControllerAnswers:
    chance: random.Random
    generator: FaultGenerator
    _sequences: FaultSequences = attrs.field(init=False)
    _begun: bool = attrs.field(default=False, init=False)
    happens: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sequences = FaultSequences(self.chance, self.generator)
        self.happens = self.chance.random() < HAPPENS

    def lines(self) -> Iterator[str]:
        """One of them, if it is time: first when nothing else has happened yet."""
        if self.happens and (not self._begun or self.chance.random() < AGAIN):
            self._begun = True
            yield from self._any()

    def _any(self) -> Iterator[str]:
        partition = self.chance.choice(self.generator.partitions)
        cluster = self.generator.stage.cluster
        leader = cluster.leader(partition)
        others = [name for name in cluster.broker_names if name != leader]
        self.chance.shuffle(others)
        kind = self.chance.choice(KINDS)
        if leader is None or not all(map(self._sequences.is_well, cluster.names)):
            return
        match kind:
            case "lost":
                yield from self._lost(partition, leader, others[0])
            case "overtaken":
                yield from self._overtaken(partition, leader, others[:2])
            case "reborn":
                yield from self._reborn(partition, leader, others[0])
            case _:
                yield from self._blackout(partition)

    def _lost(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield from self._aside(partition, leader, [replica])
        yield f"hold c {leader} FETCH"
        yield f"tear c {leader} ALTER_PARTITION"
        yield f"heal {leader} {replica}"
        yield self._soon()
        yield f"cut {leader} {replica}"
        yield self._sequences.produce(partition)
        yield self._soon()
        yield from self._heal()

    def _overtaken(
        self, partition: TopicPartition, leader: str, replicas: list[str]
    ) -> Iterator[str]:
        yield from self._aside(partition, leader, replicas)
        yield f"hold c {leader} FETCH"
        for replica in replicas:
            yield f"heal {leader} {replica}"
            yield self._soon()
        if self.chance.random() < 0.5:
            yield f"cut {leader} {replicas[-1]}"
            yield self._sequences.produce(partition)
        yield f"heal c {leader}"
        yield self._soon()
        yield from self._heal()

    def _reborn(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield from self._aside(partition, leader, [replica])
        yield f"hold {leader} c ALTER_PARTITION"
        yield f"heal {leader} {replica}"
        yield self._soon()
        yield f"cut {leader} {replica}"
        if self._sequences.is_well(replica):
            yield f"stop {replica}"
        if self.chance.random() < 0.7:
            yield f"wipe {replica}"
        yield f"start {replica} &"
        yield f"run {self.chance.choice(UP)}"
        yield f"heal {leader} c"
        yield self._soon()
        yield from self._heal()

    def _blackout(self, partition: TopicPartition) -> Iterator[str]:
        names = list(self._sequences.brokers)
        yield self._sequences.produce(partition)
        self.chance.shuffle(names)
        for name in names:
            yield f"power-cut {name}"
            yield self._soon()
        self.chance.shuffle(names)
        for name in names:
            if not self.generator.stage.cluster.is_running(name):
                yield f"start {name} &"
            yield f"run {self.chance.choice(BACK)}"

    def _aside(self, partition: TopicPartition, leader: str, replicas: list[str]) -> Iterator[str]:
        """They lack a record, are up, and cannot ask for it."""
        for replica in replicas:
            yield f"stop {replica}"
        yield self._sequences.produce(partition)
        yield f"cut {leader} {' '.join(replicas)}"
        for replica in replicas:
            yield f"start {replica} &"
        yield f"run {self.chance.choice(UP)}"

    def _soon(self) -> str:
        return f"run {self.chance.choice(SOON)}"

    def _heal(self) -> Iterator[str]:
        if self.chance.random() < 0.5:
            yield "heal"
