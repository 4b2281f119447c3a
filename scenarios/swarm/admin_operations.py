"""What operators ask for in some runs of the swarm, in time or not.

    reassign t-0 b2,b3      elect t-0 preferred      grow t 2 b1,b2 &
    alter t min.insync.replicas=2        retention.bytes=1  segment.bytes=200 ...

Each run has some of these and not others, from a stream of chance of its own.
"""

import random
from collections.abc import Iterator, Sequence

import attrs

from scenarios.story.stage import Stage
from scenarios.swarm.settings import Chance
from storage.types import TopicPartition

OPERATED, OPERATES = 0.6, 0.25
KINDS = ("move", "elect", "grow", "minimum", "retain", "flush")
MOST_PARTITIONS = 4
RETAINED = (
    "retention.bytes=1",
    "retention.bytes=400",
    "retention.bytes=-1",
    "retention.ms=1000",
    "retention.ms=-1",
    "segment.bytes=200",
    "segment.ms=1000",
)
FLUSHED = ("flush.messages=1", "flush.messages=3", "flush.ms=100")
# Kafka looks every five minutes at what is to go; a run has hardly as many.
LOOKED_AT_SOON = {"log.retention.check.interval.ms": 1000, "log.initial.task.delay.ms": 500}


@attrs.define(eq=False)
class AdminOperations:
    chance: random.Random
    stage: Stage
    kinds: tuple[str, ...]

    @classmethod
    def drawn(cls, chance: Chance, stage: Stage) -> "AdminOperations":
        operator = chance("operator")
        operated = operator.random() < OPERATED
        kinds = operator.sample(KINDS, operator.randint(1, 3)) if operated else []
        return cls(operator, stage, tuple(kinds))

    @property
    def settings(self) -> dict[str, object]:
        return dict(LOOKED_AT_SOON) if "retain" in self.kinds else {}

    def lines(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        if self.kinds and self.chance.random() < OPERATES:
            yield self._line(self.chance.choice(partitions), len(partitions))

    def _line(self, partition: TopicPartition, count: int) -> str:
        choice = self.chance.choice
        match choice(self.kinds):
            case "move":
                return f"reassign {partition} {choice((self._replicas(3), 'back'))}"
            case "grow" if count < MOST_PARTITIONS:
                return f"grow {partition.topic} {count + 1} {self._replicas(3)} &"
            case "minimum":
                return f"alter {partition.topic} min.insync.replicas={choice((1, 2, 3))}"
            case "retain":
                return f"alter {partition.topic} {choice(RETAINED)}"
            case "flush":
                return f"alter {partition.topic} {choice(FLUSHED)}"
            case _:
                return f"elect {partition} preferred"

    def _replicas(self, most: int) -> str:
        names = self.stage.cluster.broker_names
        return ",".join(self.chance.sample(names, self.chance.randint(1, min(most, len(names)))))
