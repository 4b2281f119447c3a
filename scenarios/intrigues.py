"""Some lines that belong together: situations that chance alone seldom puts in a row.

    fork       whoever leads writes what nobody fetches; then another one leads
    ignorant   a broker hears nothing from the controller, while reigns come and go
    handover   a replica misses a little, its leader changes, it is back at once
    replace    a replica is about to join; it comes back with an empty disk first
    orphan     the controller dies while a replica joins

Nothing here is waited for that may never come, and what is drawn in between differs: each is
the beginning of many stories, and most of them go otherwise than their name says.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.misfortune import Misfortune
from storage.types import TopicPartition

SOON = ("1ms", "1ms", "3ms", "10ms", "10ms", "30ms", "100ms")
INTRIGUES = ("fork", "fork", "ignorant", "handover", "replace", "orphan")
HEALED = 0.7


@attrs.define(eq=False)
class Intrigues:
    chance: random.Random
    misfortune: Misfortune

    def lines(self, partition: TopicPartition) -> Iterator[str]:
        """One of them, if the partition is led by somebody who may be heard."""
        leader = self.misfortune.stage.cluster.leader(partition)
        replica = self.chance.choice([each for each in self.brokers if each != leader])
        name = self.chance.choice(INTRIGUES)
        if not self._is_well(replica) or leader is None or not self._is_well(leader):
            return
        match name:
            case "fork":
                yield from self._fork(partition, leader)
            case "ignorant":
                yield from self._ignorant(partition, replica)
            case "handover":
                yield from self._handover(partition, leader, replica)
            case "replace":
                yield from self._replace(partition, leader, replica)
            case _:
                yield from self._orphan(partition, replica)

    @property
    def brokers(self) -> list[str]:
        return self.misfortune.stage.cluster.broker_names

    def lead(self, partition: TopicPartition, *, without: str = "") -> Iterator[str]:
        """Another order of the same replicas, whose first one leads if it is in sync."""
        order = self.chance.sample(self.brokers, len(self.brokers))
        order.sort(key=lambda name: name == without)
        yield f"reassign {partition} {','.join(order)}"
        yield f"elect {partition} preferred"

    def produce(self, partition: TopicPartition) -> str:
        acks = self.chance.choice(("all", "1"))
        return self.misfortune.workload.once(partition, acks=acks)

    def _is_well(self, name: str) -> bool:
        stage = self.misfortune.stage
        return stage.cluster.is_running(name) and not stage.world.clock(name).paused

    def _soon(self) -> str:
        return f"run {self.chance.choice(SOON)}"

    def _heal(self) -> Iterator[str]:
        if self.chance.random() < HEALED:
            yield "heal"

    def _fork(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        yield f"cut {leader} {' '.join(each for each in self.brokers if each != leader)}"
        yield self.produce(partition)
        yield self._soon()
        yield from self.lead(partition, without=leader)
        if self.chance.random() < 0.5:
            yield self.produce(partition)
        yield from self._heal()

    def _ignorant(self, partition: TopicPartition, replica: str) -> Iterator[str]:
        yield f"mute c {replica}"
        for _ in range(self.chance.randint(2, 3)):
            yield self.produce(partition)
            yield self._soon()
            yield from self.lead(partition, without=replica)
        yield self.produce(partition)
        yield self._soon()
        yield from self._heal()

    def _handover(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield f"stop {replica}"
        # Several, for a replica that is to catch up by one batch after the other.
        for _ in range(self.chance.randint(1, 4)):
            yield self.produce(partition)
        yield self._soon()
        if self.chance.random() < 0.5:
            yield from self.lead(partition, without=replica)
        elif self._is_well(leader):
            yield f"{self.chance.choice(('kill', 'power-cut', 'pause'))} {leader}"
        yield from self._back(replica)
        yield f"run {self.chance.choice(('3ms', '100ms', '3s'))}"

    def _replace(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield f"stop {replica}"
        yield self.produce(partition)
        yield f"mute {leader} c"
        yield from self._back(replica)
        yield "run 300ms"
        if self._is_well(replica):
            yield f"stop {replica}"
        if not self.misfortune.stage.cluster.is_running(replica):
            yield f"wipe {replica}"
            yield from self._back(replica)
            yield self._soon()
        yield from self._heal()

    def _orphan(self, partition: TopicPartition, replica: str) -> Iterator[str]:
        yield f"stop {replica}"
        yield self.produce(partition)
        yield from self._back(replica)
        yield f"run {self.chance.choice(('100ms', '110ms', '120ms', '150ms', '200ms'))}"
        yield "kill c"
        yield self.produce(partition)
        yield self._soon()
        yield "start c &"

    def _back(self, replica: str) -> Iterator[str]:
        if not self.misfortune.stage.cluster.is_running(replica):
            yield f"start {replica} &"
