"""A short run in which leadership changes hands faster than the news of it travels.

    reassign t-0 b2,b1,b3    the same replicas, another one first
    elect t-0 preferred      and that one leads, though the one before it lives
    slow b3 network=200ms    who hears of it late
    cut b1 b2                who writes what nobody fetches

What is drawn over many virtual seconds (`scenarios.swarm.faults`) seldom has two reigns within
one round trip; here most have. Answers arrive in another reign than they were asked in, tails
differ on every replica, and nobody had to die for it.
"""

import random
from collections.abc import Iterator

import attrs

from scenarios.swarm.epoch_mismatch import EpochMismatch
from scenarios.swarm.faults import FaultGenerator
from scenarios.swarm.late_isr_answers import LateIsrAnswer
from scenarios.swarm.lost_controller_answers import LostControllerAnswers
from scenarios.swarm.sequences import FaultSequences
from scenarios.swarm.settings import options
from scenarios.world.cluster import CONTROLLER
from storage.types import TopicPartition

WAITS = ("1ms", "1ms", "3ms", "3ms", "10ms", "10ms", "30ms", "100ms", "300ms", "2s")
DELAYS = ("1ms", "1ms", "20ms", "100ms", "400ms")
SETTINGS = {
    "broker.session.timeout.ms": (2500, 9000, 9000),
    "replica.lag.time.max.ms": (500, 1000, 1000, 30_000),
    "replica.fetch.max.bytes": (100, 100, 1 << 20),
    "max.incremental.fetch.session.cache.slots": (0, 1000),
    "understudy.inter.broker.fetch.version": (17, 17, 17, 12, 11, 6),
    "min.insync.replicas": (1, 2),
    "replica.high.watermark.checkpoint.interval.ms": (50, 1000),
    "log.segment.bytes": (200, 1 << 30),
    "log.retention.check.interval.ms": (300,),
}
WEIGHTS = {
    "produce": 6,
    "lead": 3,
    "intrigue": 5,
    "slow": 2,
    "cut": 1,
    "mute": 1,
    "heal": 3,
    "kill": 1,
    "power-cut": 1,
    "pause": 2,
    "resume": 4,
    "start": 4,
    "poll": 1,
}
REPLICAS = 3


@attrs.define(eq=False, kw_only=True)
class LeadershipContest:
    """Draws the lines of one run; how it ends is the other's, as is producing."""

    chance: random.Random
    generator: FaultGenerator
    lost_answers: LostControllerAnswers
    epoch_mismatch: EpochMismatch
    late_isr_answer: LateIsrAnswer
    _sequences: FaultSequences = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sequences = FaultSequences(self.chance, self.generator)

    def lines(self) -> Iterator[str]:
        yield from self._beginning()
        for _ in range(self.generator.our_clients.steps(self.chance.randint(8, 30))):
            yield from self.lost_answers.lines()
            yield from self.epoch_mismatch.lines()
            yield from self._next()
            yield from self.generator.what_else()
            yield from self.generator.our_clients.lines(self.generator.partitions)
            yield f"run {self.chance.choice(WAITS)}"
        yield from self.late_isr_answer.lines()
        yield from self.generator.ending()

    def _beginning(self) -> Iterator[str]:
        settings: dict[str, object] = {
            key: self.chance.choice(choices) for key, choices in SETTINGS.items()
        }
        settings |= self.generator.further_settings
        our_clients = self.generator.our_clients
        of_company = our_clients.settings(REPLICAS, int(str(settings["min.insync.replicas"])))
        yield f"cluster brokers={REPLICAS} {options(settings | of_company | self.epoch_mismatch.settings)}"
        # Where there are several, their fetchers outlive a change of one.
        count = max(self.chance.choice((1, 2, 2)), self.epoch_mismatch.least_partitions)
        assigned = [self.chance.sample(self._brokers, REPLICAS) for _ in range(count)]
        self.generator.partitions += [TopicPartition("t", number) for number in range(count)]
        yield f"topic t replicas={'/'.join(map(','.join, assigned))}"
        yield from our_clients.beginning(assigned)

    @property
    def _brokers(self) -> list[str]:
        return self.generator.stage.cluster.broker_names

    def _next(self) -> Iterator[str]:
        victims = {verb: self._victims_of(verb) for verb in WEIGHTS}
        verbs = [verb for verb in WEIGHTS if victims[verb]]
        verb = self.chance.choices(verbs, [WEIGHTS[verb] for verb in verbs])[0]
        victim = self.chance.choice(victims[verb])
        partition = self.chance.choice(self.generator.partitions)
        match verb:
            case "produce":
                yield self._sequences.produce(partition)
            case "lead":
                yield from self._sequences.lead(partition)
            case "intrigue":
                yield from self._sequences.lines(partition)
            case "slow":
                yield f"slow {victim} network={self.chance.choice(DELAYS)}"
            case "cut" | "mute":
                other = self.chance.choice([each for each in self._brokers if each != victim])
                yield f"{verb} {victim} {other}"
            case "heal":
                yield verb
            case "poll":
                yield f"poll {partition} &"
            case "start":
                yield f"start {victim} &"
            case _:
                yield f"{verb} {victim}"

    def _victims_of(self, verb: str) -> list[str]:
        """Who may be in for it; one name where it is nobody in particular."""
        stage = self.generator.stage
        up = [name for name in self._brokers if stage.cluster.is_running(name)]
        match verb:
            case "produce" | "lead" | "poll":
                return ["t"]
            case "intrigue":
                return ["t"] if stage.cluster.is_running(CONTROLLER) else []
            case "start":
                return [name for name in stage.cluster.names if not stage.cluster.is_running(name)]
            case "pause":
                return [name for name in up if not stage.world.clock(name).paused]
            case "resume":
                return [name for name in up if stage.world.clock(name).paused]
            case "heal":
                return ["t"] if stage.world.network.is_cut else []
            case "slow" | "cut" | "mute":
                return stage.cluster.names
            case _:
                return up
