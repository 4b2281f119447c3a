"""What befalls the cluster of one run: drawn line by line, in the words of stories.

    cluster ...  topic ...          who there is, and with which settings (`settings`)
    produce t-0 ... &               what clients do (`workload`)
    kill b2   cut b1 b2   ...       chosen by what is up, down, cut or paused by then
    reassign ...  wipe ...          what operators do (`operations`), and disks (`harm`)
    lie ...  remake ...             a few lines that belong together (`frailty`)
    run 500ms
    recover  wait whole  ...        all is well again: then everybody catches up

Each run has some kinds of faults and not others, and some more often than others: where
everything may happen at any time, most of it hides the rest (swarm testing, Groce et al.,
2012). A line is drawn when the one before it is done, from a stream of its own, so the lines
of a run are also a story: told from the same seed it is the same run.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from replication.leader.rules.isr import CommittedIsr
from scenarios.story.stage import Stage
from scenarios.swarm.admin_operations import AdminOperations
from scenarios.swarm.our_clients import OurClients
from scenarios.swarm.rare_faults import RareFaults
from scenarios.swarm.settings import ClusterPlan, cast
from scenarios.swarm.workload import Workload
from scenarios.world.cluster import CONTROLLER
from storage.types import TopicPartition

# Most of what goes wrong does so within some round trips; sessions and lag take seconds.
WAITS = ("1ms", "5ms", "5ms", "20ms", "20ms", "100ms", "500ms", "1s", "2s", "4s", "10s")
SLOWNESS = ("1ms", "50ms", "500ms")
# How a run may come by it, and how often beside others.
FAULT_VERBS = (
    "kill",
    "power-cut",
    "stop",
    "pause",
    "cut",
    "mute",
    "isolate",
    "slow",
    "hold",
    "tear",
    "swizzle",
)
ENDS = {"start": 4, "resume": 4, "heal": 4}
"""What befalls somebody comes to an end."""
CONTROLLER_TOO = 0.5
HAS_FAULT = 0.45
PRODUCES, LEADERS_MORE, STRIKES = 0.4, 2, 0.5
HELD = ("FETCH", "ALTER_PARTITION", "BROKER_HEARTBEAT", "BROKER_REGISTRATION", "PRODUCE")


class ExtraFaults(Protocol):
    """What else befalls a run, drawn from a stream of its own."""

    @property
    def settings(self) -> Mapping[str, object]: ...

    def lines(self, partitions: Sequence[TopicPartition], /) -> Iterator[str]: ...


@attrs.define(eq=False)
class FaultGenerator:
    """Draws the lines of one run."""

    stage: Stage
    extra_faults: ExtraFaults | None = attrs.field(default=None, init=False)
    chance: random.Random = attrs.field(init=False)
    workload: Workload = attrs.field(init=False)
    admin_operations: AdminOperations = attrs.field(init=False)
    rare_faults: RareFaults = attrs.field(init=False)
    our_clients: OurClients = attrs.field(init=False)
    partitions: list[TopicPartition] = attrs.field(factory=list, init=False)
    """Those of the run, as they are made."""
    _fault_weights: dict[str, int] = attrs.field(init=False)
    _victims: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        chance = self.stage.world.chance
        self.chance = chance("misfortune")
        self.workload = Workload.drawn(chance)
        self.admin_operations = AdminOperations.drawn(chance, self.stage)
        self.rare_faults = RareFaults(chance=chance("harm"), stage=self.stage)
        self.our_clients = OurClients.drawn(chance, self.stage, compacted=self.workload.compacted)
        self._fault_weights = {
            verb: self.chance.randint(1, 4)
            for verb in FAULT_VERBS
            if self.chance.random() < HAS_FAULT
        }

    def lines(self) -> Iterator[str]:
        """Each is to be carried out before the next is drawn."""
        yield from self._beginning()
        for _ in range(self.our_clients.steps(self.chance.randint(5, 35))):
            self._find_new_partitions()
            if self.chance.random() < PRODUCES:
                yield self.workload.produce(self.chance.choice(self.partitions))
            else:
                yield from self._fault()
            yield from self.admin_operations.lines(self.partitions)
            yield from self.rare_faults.lines(self.partitions)
            yield from self.what_else()
            yield from self.workload.read(self.partitions)
            yield from self.our_clients.lines(self.partitions)
            yield f"run {self.chance.choice(WAITS)}"
        yield from self.ending()

    def _beginning(self) -> Iterator[str]:
        drawn: ClusterPlan = cast(self.stage.world.chance)
        own = self.workload.settings | self.admin_operations.settings | self.rare_faults.settings
        own |= self.our_clients.settings(drawn.brokers, drawn.min_insync_replicas)
        yield drawn.cluster({**own, **self.further_settings})
        self.workload.racks = self.our_clients.racks = drawn.racks
        names = self.stage.cluster.broker_names
        self._victims = names + [CONTROLLER] * (self.chance.random() < CONTROLLER_TOO)
        assigned = [self.chance.sample(names, drawn.copies) for _ in range(drawn.partitions)]
        yield drawn.topic("t", assigned, self.workload.topic)
        yield from self.our_clients.beginning(assigned)

    @property
    def further_settings(self) -> Mapping[str, object]:
        return {} if self.extra_faults is None else self.extra_faults.settings

    def what_else(self) -> Iterator[str]:
        if self.extra_faults is not None:
            yield from self.extra_faults.lines(self.partitions)

    def _find_new_partitions(self) -> None:
        """An operator may have added some."""
        while self.stage.cluster.partition(new := TopicPartition("t", len(self.partitions))):
            self.partitions.append(new)

    def _fault(self) -> Iterator[str]:
        """Something that may happen now."""
        if self._is_asked() and self.chance.random() < STRIKES:
            yield f"kill {CONTROLLER}"
            return
        weights = ENDS | self._fault_weights
        victims = {verb: self._victims_of(verb) for verb in weights}
        verbs = [verb for verb in weights if victims[verb]]
        if not verbs:
            return
        verb = self.chance.choices(verbs, [weights[verb] for verb in verbs])[0]
        victim = self.chance.choice(victims[verb])
        match verb:
            case "heal":
                yield verb
            case "start" | "stop":
                yield f"{verb} {victim} &"
            case "cut" | "mute" | "tear":
                yield f"{verb} {victim} {self.chance.choice(self._others(victim))}"
            case "isolate":
                yield f"cut {victim} {' '.join(self._others(victim))}"
            case "hold":
                yield self._hold(victim)
            case "swizzle":
                yield from self._swizzle()
            case "slow":
                disk, network = self.chance.choice(SLOWNESS), self.chance.choice(SLOWNESS)
                yield f"slow {victim} disk={disk} network={network}"
            case _:
                yield f"{verb} {victim}"

    def _is_asked(self) -> bool:
        """Whether the controller may die with a question about an ISR before it."""
        if CONTROLLER not in self._victims or not self.stage.cluster.is_running(CONTROLLER):
            return False
        # A broker has none before it is up.
        managers = [
            getattr(broker, "replica_manager", None)
            for broker in self.stage.cluster.brokers.values()
        ]
        led = [
            partition.leadership
            for manager in managers
            if manager is not None
            for partition in manager.hosted.online.values()
        ]
        return any(each and not isinstance(each.isr_state, CommittedIsr) for each in led)

    def _victims_of(self, verb: str) -> Sequence[str]:
        cluster, world = self.stage.cluster, self.stage.world
        up = [name for name in self._victims if cluster.is_running(name)]
        match verb:
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

    def _hold(self, victim: str) -> str:
        """What it asks for stays on its way, or what it is answered: until the next heal."""
        api = self.chance.choice(HELD)
        asks_controller = api not in ("FETCH", "PRODUCE") and victim != CONTROLLER
        other = CONTROLLER if asks_controller else self.chance.choice(self._others(victim))
        pair = [victim, other]
        self.chance.shuffle(pair)
        return f"hold {' '.join(pair)} {api} after={self.chance.choice((0, 0, 1, 2, 5))}"

    def _swizzle(self) -> Iterator[str]:
        """Some are cut off one by one, and come back in another order (FoundationDB)."""
        names = self.stage.cluster.names
        some = self.chance.sample(names, self.chance.randint(1, len(names) - 1))
        for name in some:
            yield f"cut {name} {' '.join(self._others(name))}"
            yield f"run {self.chance.choice(WAITS)}"
        self.chance.shuffle(some)
        for name in some:
            yield f"heal {name} {' '.join(self._others(name))}"
            yield f"run {self.chance.choice(WAITS)}"

    def ending(self) -> Iterator[str]:
        yield "recover"
        self._find_new_partitions()
        for partition in self.partitions:
            yield f"wait whole {partition}"
            yield self.workload.once(partition, acks="all")
        yield from self.our_clients.beginning_anew(self.partitions)
        yield from self.our_clients.taking_over(
            self.workload.once(partition, acks="all") for partition in self.partitions
        )
        yield from self.our_clients.ending()
        yield "answers"
        yield from self.our_clients.draining(self.partitions)
        for partition in self.partitions:
            yield f"wait whole {partition}"
            yield f"wait equal {partition}"
            yield f"show {partition}"
            yield f"ledger {partition}"
            yield f"verify {partition}"
            yield f"poll {partition}"
            yield f"judge {partition}"
        yield from self.our_clients.judgement()
