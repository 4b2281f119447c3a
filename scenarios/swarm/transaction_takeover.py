"""The last lines of a run with copy loops: one is replaced while a transaction of it is about to end.

    w8   has copied, and says how far         TXN_OFFSET_COMMIT is held up, or END_TXN; it stops
    w9   is given its partitions              it begins at what is committed, and copies the same
    w8   wakes up                             what it had said arrives

Were the first believed, whose generation is over, each record would be copied twice. Were w9 told
what is committed while the second may still move it, so would they (KIP-447).

They come last, so that a run that has them is until then what it was without them. What is drawn
for them has a stream of its own; two new loops make sure that there is somebody to take over, and
are patient enough to see it.
"""

import random
from collections.abc import Iterable, Iterator

import attrs

from scenarios.story.expected_records import OFFSETS, TRANSACTIONS
from scenarios.story.stage import Stage
from scenarios.world.clients.copying import Copier
from storage.types import TopicPartition

HAPPENS = 0.8
"""In how many runs with copy loops."""
HELD = (("TXN_OFFSET_COMMIT", OFFSETS), ("END_TXN", TRANSACTIONS))
LOOPS = ("w8", "w9")
PATIENT = (
    "session.timeout.ms=6000 max.poll.interval.ms=10000 metadata.max.age.ms=5000"
    " transaction.timeout.ms=60000 max.block.ms=30000 linger.ms=0"
)
UNTIL_ALL_HAVE_JOINED = "run 12s"
UNTIL_IT_IS_REPLACED = "run 12s"


@attrs.define(eq=False)
class TransactionTakeover:
    chance: random.Random
    stage: Stage
    happens: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.happens = self.chance.random() < HAPPENS

    def beginning(self, group: str, source: str, target: TopicPartition) -> Iterator[str]:
        for name in LOOPS:
            yield f"copier {name} {group} {source} {target} {PATIENT}"

    def lines(self, produced: Iterable[str]) -> Iterator[str]:
        """`produced`: lines that give each partition something to be copied."""
        yield UNTIL_ALL_HAVE_JOINED
        api, coordinated_by = self.chance.choice(HELD)
        coordinator = self.stage.cluster.leader(TopicPartition(coordinated_by, 0))
        loops = self._loops()
        if coordinator is None:
            return
        for each in loops:
            yield f"hold {each.name} {coordinator} {api}"
        yield from produced
        yield f"run {self.chance.choice(('300ms', '1s'))}"
        at_work = [each.name for each in self._loops() if each.copying]
        replaced = self.chance.choice(at_work) if at_work else None
        if replaced is not None:
            yield f"pause {replaced}"
        for each in self._loops():
            if each.name != replaced:
                yield f"heal {each.name} {coordinator}"
        yield UNTIL_IT_IS_REPLACED
        if replaced in self.stage.programs.running:
            yield f"heal {replaced} {coordinator}"
            yield f"resume {replaced}"
        yield "run 3s"

    def _loops(self) -> list[Copier]:
        running = self.stage.programs.running.values()
        return [each for each in running if isinstance(each, Copier)]
