"""What clients do in a run of the swarm: who produces, how, and who reads.

    produce t-0 acks=1 v7 &                                   sent once
    produce t-0 acks=all delivery.timeout.ms=20000 v8 &       again until it is answered
    produce t-0 as=p1 delivery.timeout.ms=20000 v9 v10 &      the same, and never there twice
    produce t-0 acks=all k1:v11 &                             keyed, where the topic is compacted
    poll t-0 &                                                what a consumer is given next

A run has some of these ways and not others. What is drawn of each comes from a stream of its
own, so that a run without consumers is otherwise the same run.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.swarm.settings import Chance, options
from storage.types import TopicPartition

ACKS = (("all",), ("all", "1"), ("all", "all", "1", "0"))
WAYS = (("once",), ("once", "again"), ("once", "numbered"), ("numbered",), ("again", "numbered"))
TIMEOUTS_MS = (500, 2000, 30_000)
DELIVERY_MS = (3000, 20_000)
KEYS = ("k1", "k2", "k3")
COMPACTED = 0.15
READ, READS = 0.5, 0.4
# What a cleaner is to find soon: segments of a few records, of which any may go.
COMPACTION = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
CLEANED_SOON = {"log.cleaner.backoff.ms": 200, "log.segment.bytes": 200}


@attrs.define(eq=False)
class Workload:
    chance: random.Random
    reader: random.Random
    compacted: bool
    _acks: tuple[str, ...]
    _ways: tuple[str, ...]
    _producers: int
    _reads: bool
    racks: tuple[str, ...] = attrs.field(default=(), init=False)
    """Where readers may stand."""
    _values: int = attrs.field(default=0, init=False)

    @classmethod
    def drawn(cls, chance: Chance) -> "Workload":
        workload, reader = chance("workload"), chance("reader")
        return cls(
            chance=workload,
            reader=reader,
            compacted=chance("compaction").random() < COMPACTED,
            acks=workload.choice(ACKS),
            ways=workload.choice(WAYS),
            producers=workload.randint(1, 2),
            reads=reader.random() < READ,
        )

    @property
    def settings(self) -> dict[str, object]:
        return dict(CLEANED_SOON) if self.compacted else {}

    @property
    def topic(self) -> dict[str, object]:
        return dict(COMPACTION) if self.compacted else {}

    def produce(self, partition: TopicPartition) -> str:
        way = self.chance.choice(self._ways)
        settings: dict[str, object] = {"acks": self.chance.choice(self._acks)}
        if way == "numbered":
            settings = {"as": f"p{self.chance.randint(1, self._producers)}"}
        if way != "once":
            settings["delivery.timeout.ms"] = self.chance.choice(DELIVERY_MS)
            if settings.get("acks") == "0":  # there is no answer to wait for
                settings["acks"] = "1"
        return self._line(partition, settings)

    def once(self, partition: TopicPartition, *, acks: str, to: str = "") -> str:
        settings: dict[str, object] = {"acks": acks}
        if to:
            settings["to"] = to
        return self._line(partition, settings)

    def _line(self, partition: TopicPartition, settings: dict[str, object]) -> str:
        settings["timeout.ms"] = self.chance.choice(TIMEOUTS_MS)
        values = [self._value() for _ in range(self.chance.randint(1, 3))]
        return f"produce {partition} {options(settings)} {' '.join(values)} &"

    def _value(self) -> str:
        self._values += 1
        key = f"{self.chance.choice(KEYS)}:" if self.compacted else ""
        return f"{key}v{self._values - 1}"

    def read(self, partitions: list[TopicPartition]) -> Iterator[str]:
        if self._reads and self.reader.random() < READS:
            where = self.reader.choice(partitions)
            rack = f" rack={self.reader.choice(self.racks)}" if self.racks else ""
            yield f"poll {where}{rack} &"
