"""What befalls the cluster of one run: drawn line by line, in the words of stories.

    cluster ...  topic ...          who there is, and with which settings (`settings`)
    run 500ms    kill b2    ...     chosen by what is up, down, cut or paused by then
    recover  wait isr  ...          all is well again: then everybody catches up

Each run has some kinds of faults and not others, and some more often than others: where
everything may happen at any time, most of it hides the rest (swarm testing, Groce et al.,
2012). A line is drawn when the one before it is done, from a stream of its own, so the lines
of a run are also a story: told from the same seed it is the same run.
"""

import random
from collections.abc import Iterator, Sequence

import attrs

from scenarios.harm import Harm
from scenarios.settings import cast, options
from scenarios.stage import Stage
from storage.types import TopicPartition

# Most of what goes wrong does so within some round trips; sessions and lag take seconds.
WAITS = ("1ms", "5ms", "5ms", "20ms", "20ms", "100ms", "500ms", "1s", "2s", "4s", "10s")
SLOWNESS = ("1ms", "50ms", "500ms")
# How a run may come by it, and how often beside others.
BEFALLS = ("kill", "power-cut", "stop", "pause", "cut", "mute", "isolate", "slow")
CONTROLLER_TOO = 0.4
MAY_BEFALL = 0.5
PRODUCES, ENDS, LEADERS_MORE = 6, 4, 2
OPERATED, OPERATES = 0.3, 0.2
READ, READS = 0.5, 0.4


@attrs.define(eq=False, kw_only=True)
class Misfortune:
    """Draws the lines of one run."""

    chance: random.Random
    operator: random.Random
    """What is drawn of reassignments and elections, in the few runs that have them."""
    harm: Harm
    reader: random.Random
    """What is drawn of consumers."""
    stage: Stage
    partitions: list[TopicPartition] = attrs.field(factory=list, init=False)
    """Those of the run, as they are made."""
    _befalls: dict[str, int] = attrs.field(init=False)
    _acks: tuple[str, ...] = attrs.field(init=False)
    _victims: list[str] = attrs.field(factory=list, init=False)
    _values: int = attrs.field(default=0, init=False)

    def lines(self) -> Iterator[str]:
        """Each is to be carried out before the next is drawn."""
        yield from self._beginning()
        operated = self.operator.random() < OPERATED
        read = self.reader.random() < READ
        for _ in range(self.chance.randint(5, 40)):
            yield self._next()
            if operated and self.operator.random() < OPERATES:
                yield self._operation()
            yield from self.harm.lines(self.partitions)
            if read and self.reader.random() < READS:
                yield f"poll {self.reader.choice(self.partitions)} &"
            yield f"run {self.chance.choice(WAITS)}"
        yield from self.ending()

    def _beginning(self) -> Iterator[str]:
        chance = self.chance
        self._befalls = {
            verb: chance.randint(1, 4) for verb in BEFALLS if chance.random() < MAY_BEFALL
        }
        self._acks = chance.choice((("all",), ("all", "1"), ("all", "all", "1", "0")))
        drawn = cast(self.stage.world.chance)
        yield drawn.cluster(self.harm.settings())
        names = self.stage.cluster.broker_names
        self._victims = names + ["c"] * (chance.random() < CONTROLLER_TOO)
        assigned = [chance.sample(names, drawn.copies) for _ in range(drawn.partitions)]
        self.partitions += [TopicPartition("t", number) for number in range(len(assigned))]
        yield drawn.topic("t", assigned, {})

    def _next(self) -> str:
        """Something that may happen now."""
        weights = {"produce": PRODUCES, "start": ENDS, "resume": ENDS, "heal": ENDS}
        weights |= self._befalls
        victims = {verb: self._victims_of(verb) for verb in weights}
        verbs = [verb for verb in weights if victims[verb]]
        verb = self.chance.choices(verbs, [weights[verb] for verb in verbs])[0]
        victim = self.chance.choice(victims[verb])
        match verb:
            case "produce":
                return self.produce(victim)
            case "heal":
                return verb
            case "start" | "stop":
                return f"{verb} {victim} &"
            case "cut" | "mute":
                other = self.chance.choice(self._others(victim))
                return f"{verb} {victim} {other}"
            case "isolate":
                return f"cut {victim} {' '.join(self._others(victim))}"
            case "slow":
                disk, network = self.chance.choice(SLOWNESS), self.chance.choice(SLOWNESS)
                return f"slow {victim} disk={disk} network={network}"
            case _:
                return f"{verb} {victim}"

    def _victims_of(self, verb: str) -> Sequence[str]:
        cluster, world = self.stage.cluster, self.stage.world
        up = [name for name in self._victims if cluster.is_running(name)]
        match verb:
            case "produce":
                return [str(partition) for partition in self.partitions]
            case "start":
                return [name for name in self._victims if name not in up]
            case "pause":
                return [name for name in up if not world.clock(name).paused]
            case "resume":
                return [name for name in up if world.clock(name).paused]
            case "heal":
                return ["all"] if world.network.is_cut else []
            case "slow":
                return self._victims
            case _:
                leaders = map(cluster.leader, self.partitions)
                return up + [name for name in leaders if name in up] * LEADERS_MORE

    def _others(self, name: str) -> list[str]:
        return [other for other in self.stage.cluster.names if other != name]

    def produce(self, partition: str, *, acks: str | None = None) -> str:
        values = [f"v{self._values + each}" for each in range(self.chance.randint(1, 3))]
        self._values += len(values)
        settings = {
            "acks": acks or self.chance.choice(self._acks),
            "timeout.ms": self.chance.choice((2000, 30_000)),
        }
        return f"produce {partition} {options(settings)} {' '.join(values)} &"

    def _operation(self) -> str:
        """What an operator may ask for, in time or not."""
        partition = self.operator.choice(self.partitions)
        names = self.stage.cluster.broker_names
        match self.operator.choice(("reassign", "reassign", "back", "elect")):
            case "reassign":
                count = self.operator.randint(1, min(3, len(names)))
                return f"reassign {partition} {','.join(self.operator.sample(names, count))}"
            case "back":
                return f"reassign {partition} back"
            case _:
                return f"elect {partition} preferred"

    def ending(self) -> Iterator[str]:
        yield "recover"
        everybody: dict[TopicPartition, str] = {}
        for partition in self.partitions:
            yield f"wait moved {partition}"
        registrations = [self.stage.cluster.partition(each) for each in self.partitions]
        for partition, registration in zip(self.partitions, registrations, strict=True):
            assert registration is not None, "a topic that was created is there"
            everybody[partition] = ",".join(f"b{replica}" for replica in registration.replicas)
            yield f"wait isr {partition} {everybody[partition]}"
            yield self.produce(str(partition), acks="all")
        yield "answers"
        for partition in self.partitions:
            yield f"wait isr {partition} {everybody[partition]}"
            yield f"wait equal {partition}"
            yield f"show {partition}"
            yield f"ledger {partition}"
            yield f"verify {partition}"
            yield f"poll {partition}"
            yield f"judge {partition}"
