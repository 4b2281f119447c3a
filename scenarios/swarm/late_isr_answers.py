"""The last lines of a contest: what the controller said of an ISR comes two reigns too late.

    b1   leads, in epoch 0           isr b1 b2       asked for; the answer is held up
    b2   leads, in epoch 1           isr b1 b2 b3    b3 is back
    b1   leads again, in epoch 2     isr b1 b2 b3    all that it has heard of this
                                     isr b1 b2       the answer

Were it taken for what counts now, b1 would commit without b3, which may be elected (KAFKA-12686).

They come last, so that a contest that has them is until then what it was without them. What is
drawn for them has a stream of its own.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.swarm.faults import FaultGenerator
from scenarios.swarm.sequences import FaultSequences
from storage.types import TopicPartition

HAPPENS = 0.3
"""How many contests end so."""
UNTIL_LAGGING = "run 2s"
UNTIL_DEAF = "run 600ms"
"""What was asked before is answered by then."""
REIGNS = ("100ms", "200ms", "300ms")
SOON = ("10ms", "30ms", "100ms")


@attrs.define(eq=False)
class LateIsrAnswer:
    chance: random.Random
    generator: FaultGenerator
    happens: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.happens = self.chance.random() < HAPPENS

    def lines(self) -> Iterator[str]:
        """If everybody is there and in sync by then."""
        if not self.happens:
            return
        yield "recover"
        yield "run 3s"
        cluster = self.generator.stage.cluster
        partition = self.chance.choice(self.generator.partitions)
        leader, registration = cluster.leader(partition), cluster.partition(partition)
        others = [name for name in cluster.broker_names if name != leader]
        if leader and registration and len(registration.isr) == len(cluster.broker_names):
            rival, absent = self.chance.sample(others, 2)
            yield from self._overruled(partition, leader, rival, absent)

    def _overruled(
        self, partition: TopicPartition, leader: str, rival: str, absent: str
    ) -> Iterator[str]:
        sequences = FaultSequences(self.chance, self.generator)
        yield f"hold c {leader} ALTER_PARTITION"
        yield f"cut {leader} {absent}"
        yield sequences.produce(partition)
        yield UNTIL_LAGGING
        yield f"hold {leader} c FETCH"
        yield UNTIL_DEAF
        yield f"heal {leader} {absent}"
        yield from sequences.lead(partition, (rival, leader))
        yield f"run {self.chance.choice(REIGNS)}"
        yield from sequences.lead(partition, (leader, rival))
        yield f"run {self.chance.choice(SOON)}"
        yield f"cut {leader} {absent}"
        yield f"unmute {leader} c"
        yield "run 100ms"
        yield f"unmute c {leader}"
        yield self.generator.workload.once(partition, acks="1", to=leader)
        yield f"run {self.chance.choice(REIGNS)}"
