"""Some lines that belong together: situations that chance alone seldom puts in a row.

    fork       whoever leads writes what nobody fetches; then another one leads, and it again
    trim       what is not committed is asked to be deleted
    missed     a leader hears of two reigns at once, the second of which is its own
    ignorant   a broker hears nothing from the controller, while reigns come and go
    handover   a replica misses a little, its leader changes, it is back at once
    replace    a replica is about to join; it comes back with an empty disk first
    orphan     the controller dies while a replica joins
    late       a replica leaves and joins, and its leader's news of it come late, or are lost
    zombie     a replica is asked for by a leader that is none any more

Nothing here is waited for that may never come, and what is drawn in between differs: each is
the beginning of many stories, and most of them go otherwise than their name says.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.swarm.faults import FaultGenerator
from storage.types import Offset, TopicPartition

SOON = ("1ms", "1ms", "3ms", "10ms", "10ms", "30ms", "100ms")
SEQUENCES = (
    *("fork", "fork", "trim", "missed", "ignorant", "handover"),
    *("replace", "orphan", "late", "late", "zombie"),
)
HEALED = 0.7


@attrs.define(eq=False)
class FaultSequences:
    chance: random.Random
    generator: FaultGenerator

    def lines(self, partition: TopicPartition) -> Iterator[str]:
        """One of them, if the partition is led by somebody who may be heard."""
        leader = self.generator.stage.cluster.leader(partition)
        replica = self.chance.choice([each for each in self.brokers if each != leader])
        name = self.chance.choice(SEQUENCES)
        if not self.is_well(replica) or leader is None or not self.is_well(leader):
            return
        match name:
            case "fork":
                yield from self._fork(partition, leader)
            case "trim":
                yield from self._trim(partition, leader)
            case "missed":
                yield from self._missed(partition, leader, replica)
            case "ignorant":
                yield from self._ignorant(partition, replica)
            case "handover":
                yield from self._handover(partition, leader, replica)
            case "replace":
                yield from self._replace(partition, leader, replica)
            case "orphan":
                yield from self._orphan(partition, replica)
            case "late":
                yield from self._late(partition, leader, replica)
            case _:
                yield from self._zombie(partition, leader, replica)

    @property
    def brokers(self) -> list[str]:
        return self.generator.stage.cluster.broker_names

    def lead(
        self, partition: TopicPartition, first: tuple[str, ...] = (), *, last: str = ""
    ) -> Iterator[str]:
        """Another order of the same replicas, whose first one leads if it is in sync."""
        drawn = self.chance.sample(self.brokers, len(self.brokers))
        order = [*first, *(each for each in drawn if each not in first)]
        order.sort(key=lambda name: name == last)
        yield f"reassign {partition} {','.join(order)}"
        yield f"elect {partition} preferred"

    def produce(self, partition: TopicPartition) -> str:
        acks = self.chance.choice(("all", "1"))
        return self.generator.workload.once(partition, acks=acks)

    def is_well(self, name: str) -> bool:
        stage = self.generator.stage
        return stage.cluster.is_running(name) and not stage.world.clock(name).paused

    def log_end(self, partition: TopicPartition, name: str) -> Offset:
        """0 where that broker has no such replica by now."""
        broker = self.generator.stage.cluster.brokers.get(name)
        replica_manager = getattr(broker, "replica_manager", None)  # none before it is up
        replica = None if replica_manager is None else replica_manager.hosted.snapshot(partition)
        return 0 if replica is None else replica.log_end_offset

    def _soon(self) -> str:
        return f"run {self.chance.choice(SOON)}"

    def _heal(self) -> Iterator[str]:
        if self.chance.random() < HEALED:
            yield "heal"

    def _fork(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        yield f"cut {leader} {' '.join(each for each in self.brokers if each != leader)}"
        yield self.produce(partition)
        yield self._soon()
        yield from self.lead(partition, last=leader)
        if self.chance.random() < 0.5:
            yield self.produce(partition)
        if self.chance.random() < 0.5:
            yield from self.lead(partition, (leader,))
        yield from self._heal()
        if self.chance.random() < 0.3:
            yield f"run {self.chance.choice(('30ms', '100ms', '300ms'))}"
            if self.is_well(leader):
                yield f"power-cut {leader}"

    def _trim(self, partition: TopicPartition, leader: str) -> Iterator[str]:
        yield f"cut {leader} {' '.join(each for each in self.brokers if each != leader)}"
        for _ in range(3):
            yield self.produce(partition)
        yield "run 10ms"
        end = self.log_end(partition, leader)
        if end and self.chance.random() < 0.5:
            yield f"delete-records {partition} {end} &"
        else:
            yield f"alter {partition.topic} retention.bytes=1"
        yield "run 1s"
        yield from self._heal()
        yield f"alter {partition.topic} retention.bytes=-1"

    def _missed(self, partition: TopicPartition, leader: str, rival: str) -> Iterator[str]:
        yield f"hold c {leader} FETCH"
        yield f"cut {leader} {rival}"
        yield self.produce(partition)
        yield "run 10ms"
        yield from self.lead(partition, (rival, leader))
        yield self.produce(partition)
        yield f"run {self.chance.choice(('10ms', '100ms'))}"
        if self.is_well(rival):
            yield f"stop {rival}"
        yield f"heal c {leader}"
        yield self._soon()
        yield from self._heal()

    def _ignorant(self, partition: TopicPartition, replica: str) -> Iterator[str]:
        yield f"mute c {replica}"
        for _ in range(self.chance.randint(2, 3)):
            yield self.produce(partition)
            yield self._soon()
            yield from self.lead(partition, last=replica)
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
            yield from self.lead(partition, last=replica)
        elif self.is_well(leader):
            yield f"{self.chance.choice(('kill', 'power-cut', 'pause'))} {leader}"
        yield from self.back(replica)
        yield f"run {self.chance.choice(('3ms', '100ms', '3s'))}"

    def _replace(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield f"stop {replica}"
        yield self.produce(partition)
        yield f"hold {leader} c ALTER_PARTITION"
        yield from self.back(replica)
        yield "run 300ms"
        if self.is_well(replica):
            yield f"stop {replica}"
        if not self.generator.stage.cluster.is_running(replica):
            yield f"wipe {replica}"
            yield from self.back(replica)
            yield self._soon()
        yield from self._heal()

    def _orphan(self, partition: TopicPartition, replica: str) -> Iterator[str]:
        yield f"stop {replica}"
        yield self.produce(partition)
        yield from self.back(replica)
        yield f"run {self.chance.choice(('100ms', '110ms', '120ms', '150ms', '200ms'))}"
        yield "kill c"
        yield self.produce(partition)
        yield self._soon()
        yield "start c &"

    def _late(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        slow = self.chance.random() < 0.5
        yield f"hold c {leader} {self.chance.choice(('FETCH', 'ALTER_PARTITION'))}"
        yield from self._out_and_in(partition, leader, replica)
        if slow:
            yield "slow c network=400ms"
        if self.chance.random() < 0.3:
            yield "kill c"
            yield f"heal c {leader}"
            yield f"hold c {leader} FETCH"
            yield "start c &"
            yield "run 300ms"
        if self.chance.random() < 0.3 and self.is_well(replica):
            yield f"stop {replica}"
        yield f"cut {leader} {replica}"
        yield self.produce(partition)
        yield f"heal c {leader}"
        yield self.produce(partition)
        yield f"run {self.chance.choice(('10ms', '100ms', '500ms'))}"
        yield from self._heal()
        if slow:
            yield "slow c network=1ms"

    def _zombie(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        yield f"hold {leader} c ALTER_PARTITION after=1"
        yield from self._out_and_in(partition, leader, replica)
        yield from self.lead(partition, last=leader)
        others = [each for each in self.brokers if each != replica]
        yield f"cut {replica} {' '.join(others)}"
        yield self.produce(partition)
        yield self._soon()
        yield f"heal {leader} c"
        yield f"run {self.chance.choice(('10ms', '100ms', '500ms'))}"
        yield from self._heal()

    def _out_and_in(self, partition: TopicPartition, leader: str, replica: str) -> Iterator[str]:
        """Where the lag that is allowed is less than two seconds."""
        yield f"cut {leader} {replica}"
        yield self.produce(partition)
        yield "run 2s"
        yield f"heal {leader} {replica}"
        yield f"run {self.chance.choice(('30ms', '100ms', '600ms'))}"

    def back(self, replica: str) -> Iterator[str]:
        if not self.generator.stage.cluster.is_running(replica):
            yield f"start {replica} &"
