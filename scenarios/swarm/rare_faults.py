"""What befalls disks, clocks and records in the few runs of the swarm that have it.

    jump, drift      a wall clock jumps, or goes too fast: nobody may notice
    fail             a write or a sync fails: the broker stops, as its only directory is gone
    wipe             a broker that is down comes back with an empty disk
    image, restore   or with an older copy of its own
    trim             records are deleted on request

A replaced disk counts as a power cut: what it lacks the last known leader may lose, whoever
is elected for being in sync or eligible may not. A failed one excuses nothing.

Drawn from a stream of its own, as what operators do is: the rest of a run does not depend
on whether it has any of this.
"""

import random
from collections.abc import Sequence

import attrs

from scenarios.story.stage import Stage
from storage.types import TopicPartition

HAS_ANY, HAPPENS = 0.5, 0.25
KINDS = ("clock", "fail", "disk", "trim")
DRIFTS = ("0ms", "1ms", "200ms")
JUMPS = ("-600s", "-5s", "1s", "60s", "86400s")


@attrs.define(eq=False, kw_only=True)
class RareFaults:
    chance: random.Random
    stage: Stage
    kinds: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        if self.chance.random() < HAS_ANY:
            self.kinds = self.chance.sample(KINDS, self.chance.randint(1, 2))

    @property
    def settings(self) -> dict[str, object]:
        """A producer is not forgotten for a clock that jumps: then it would write twice."""
        return {"producer.id.expiration.ms": 2**31 - 1} if "clock" in self.kinds else {}

    def lines(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """One, or none where it is not time, or nobody is in the state for it."""
        if not self.kinds or self.chance.random() >= HAPPENS:
            return []
        broker = self.chance.choice(self.stage.cluster.broker_names)
        partition = self.chance.choice(partitions)
        match self.chance.choice(self.kinds):
            case "clock" if self.chance.random() < 0.3:
                return [f"drift {broker} {self.chance.choice(DRIFTS)}"]
            case "clock":
                return [f"jump {broker} {self.chance.choice(JUMPS)}"]
            case "fail":
                return [self._failure(broker)]
            case "disk":
                return self._disk(broker)
            case _:
                before = self.chance.choice(("all", "1", "2", "5"))
                return [f"delete-records {partition} {before} &"]

    def _failure(self, broker: str) -> str:
        operation = self.chance.choice(("write", "sync"))
        error = self.chance.choice(("EIO", "ENOSPC"))
        names = self.chance.choice(("*", "*.log"))
        return f"fail {broker} {operation} names={names} error={error} skip={self.chance.randint(0, 3)}"

    def _disk(self, broker: str) -> list[str]:
        cluster, title = self.stage.cluster, f"of-{broker}"
        copied = title in self.stage.images
        if cluster.is_running(broker):
            return [] if copied else [f"image {broker} {title}"]
        if copied and self.chance.random() < 0.5:
            return [f"restore {broker} {title}"]
        return [f"wipe {broker}"]
