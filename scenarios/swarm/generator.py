"""One run of the swarm, drawn line by line from its seed, in the words of stories.

    cluster ...  topic ...          which brokers there are, and with which settings
    produce t-0 ... &
    kill b2   cut b1 b2   ...       rows of the table (`scenarios.swarm.faults`), as they are drawn
    run 500ms
    recover  wait whole  ...        all is well again: then all replicas catch up

A line is drawn when the one before it has been carried out, by what is up, down, cut or paused
then. Everything is drawn from one stream of chance, and the run of a seed is always the same: so
its lines are a story, which is the same run when it is played from the same seed.

Some runs stay within a loss budget: at any time fewer than min.insync.replicas of a partition's
replicas have been killed, have lost their power or their disk, and have not joined the ISR since
(`scenarios.checkers.contract`). Lines that would exceed it are left out; all other faults happen
as in other runs, and nothing that was committed may be lost. Bits rot here too: a replica that is
found rotten counts as one that was killed, and no line can be left out for it.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from scenarios.story.arguments import Options, Words, partition_of, split
from scenarios.story.stage import Stage
from scenarios.swarm.faults import EXAMINATIONS, LAST_FAULTS, FaultKind
from scenarios.swarm.settings import (
    CONTROLLERS,
    PATIENCE,
    RunPlan,
    drawn_plan,
    with_controllers,
    with_examinations,
    with_hardware,
    with_probes,
)
from scenarios.swarm.situation import START_VERBS, Roles, Situation, calm
from scenarios.world.cluster import node_id_of
from scenarios.world.world import World

# Most of what goes wrong does so within some round trips; sessions and lag take seconds.
LONG_WAITS = "1ms|5ms|5ms|20ms|20ms|100ms|500ms|1s|2s|4s|10s"
SHORT_WAITS = "1ms|1ms|3ms|3ms|10ms|10ms|30ms|100ms|300ms|2s"
TIMEOUT = "timeout.ms={500|2000|30000}"
WORDS: Mapping[str, str] = {
    "soon": "{1ms|1ms|3ms|10ms|10ms|30ms|100ms}",
    "brief": "{10ms|30ms|30ms|100ms}",
    "timeout": TIMEOUT,
    "how": f"acks={{all|1}} {TIMEOUT}",
    "patience": PATIENCE,
}
RECOVERS = 0.7
"""How often everything recovers for a fault that needs it."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_SHARE = re.compile(r"(\d+)% (.*)")
_TIMES = re.compile(r"(\d)-(\d)x (.*)")
_PRODUCE = re.compile(r"produce( acks=[^&]+)?")
_NOT = re.compile(r"(brokers )?not (\w+)")
_EACH = re.compile(r"each ([\w ]+): (.*)")


def drawn_run(stage: Stage, *, controllers: Sequence[int] = CONTROLLERS) -> Iterator[str]:
    """Yield the lines of the run; each is to be carried out before the next is drawn.

    `controllers` are the numbers of controllers of which one is drawn.
    """
    chance = stage.world.chance("swarm")
    within_budget, plan = drawn_beginning(stage.world, chance, controllers)
    lines = RunGenerator(stage, chance, plan).lines()
    yield from LossBudget(stage).lines(lines) if within_budget else lines


def drawn_beginning(
    world: World, chance: random.Random, controllers: Sequence[int] = CONTROLLERS
) -> tuple[bool, RunPlan]:
    """Return what is drawn before a run begins: whether it has a loss budget, and its plan."""
    within_budget, plan = chance.random() < WITHIN_BUDGET, drawn_plan(chance)
    plan = with_controllers(plan, controllers, world.chance("controllers"))
    plan = with_hardware(plan, world.chance("hardware"))
    plan = with_probes(plan, world.chance("probes"))
    return within_budget, with_examinations(plan, world.chance("examinations"))


@attrs.define(eq=False, repr=False)
class RunGenerator:
    """Draws the lines of one run."""

    stage: Stage
    chance: random.Random
    plan: RunPlan
    situation: Situation = attrs.field(init=False)
    _values: int = attrs.field(default=0, init=False)
    _requests: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.situation = Situation(
            self.stage, self.chance, controller_fails=self.plan.controller_fails
        )

    def lines(self) -> Iterator[str]:
        yield from self._beginning()
        for _ in range(self.plan.steps):
            yield from self._any_fault()
            yield f"run {self._expanded('{while}', {})}"
        yield from self._ending()
        if self.plan.is_examined:
            for fault in EXAMINATIONS:
                yield from self.lines_of(fault)

    def _beginning(self) -> Iterator[str]:
        yield self.plan.cluster_line
        brokers = self.situation.brokers
        self.situation.untrusted = self.chance.choice(brokers)
        assigned = [
            self.chance.sample(brokers, self.plan.copies) for _ in range(self.plan.partitions)
        ]
        yield self.plan.topic_line(assigned)
        yield from self.clients_begin(assigned[0])

    def clients_begin(self, replicas: Sequence[str]) -> Iterator[str]:
        for line in self.plan.clients.beginning(self.chance, replicas):
            yield from self._drawn(line, {})

    def _ending(self) -> Iterator[str]:
        yield "recover"
        if self.plan.controllers > 1:
            yield "wait controllers"
            yield self._new_request()
        for fault in LAST_FAULTS[:1]:
            if self.chance.random() < fault.weight[self.plan.is_contest]:
                yield "run 3s"
                yield from self.lines_of(fault)
                yield "recover"
        for partition in self.situation.partitions:
            yield f"wait whole {partition}"
            yield from self._drawn(
                "produce {each} acks=all {timeout} {values} &", {"each": str(partition)}
            )
        for fault in LAST_FAULTS[1:]:
            if self.chance.random() < fault.weight[self.plan.is_contest]:
                yield from self.lines_of(fault)
        for sender in self.stage.programs.senders:
            if sender.name in self.situation.clients:
                yield f"leave {sender.name}"
        yield "answers"
        for line in self.plan.clients.draining(self.situation):
            yield from self._drawn(line, {})
        for partition in self.situation.partitions:
            for verb in ("wait whole", "wait equal", "show", "ledger", "verify", "poll", "judge"):
                yield f"{verb} {partition}"
        yield from self.plan.clients.judgement()
        if self.plan.controllers > 1:
            yield "judge-controllers"

    # Faults.

    def _any_fault(self) -> Iterator[str]:
        """Yield the lines of one of the run's faults, whose need is met now."""
        left = dict(self.plan.faults)
        while left:
            [fault] = self.chance.choices(list(left), list(left.values()))
            self.situation.partition = self.chance.choice(self.situation.partitions)
            roles = fault.needs(self.situation)
            if roles is None and fault.needs is calm and self.chance.random() < RECOVERS:
                yield "recover"
                yield "run 1s"
                roles = fault.needs(self.situation)
            if roles is not None:
                yield from self._script(fault, roles)
                return
            del left[fault]

    def lines_of(self, fault: FaultKind) -> Iterator[str]:
        self.situation.partition = self.chance.choice(self.situation.partitions)
        roles = fault.needs(self.situation)
        if roles is not None:
            yield from self._script(fault, roles)

    def _script(self, fault: FaultKind, roles: Roles) -> Iterator[str]:
        roles.setdefault("controller", self.situation.controller)
        for line in fault.lines.strip().splitlines():
            yield from self._drawn(line.strip(), roles)

    # Templates.

    def _drawn(self, template: str, roles: Roles) -> Iterator[str]:
        """Yield the lines of a template, of which each is drawn when its turn comes."""
        if found := _SHARE.fullmatch(template):
            if self.chance.random() < int(found[1]) / 100:
                yield from self._drawn(found[2], roles)
        elif found := _TIMES.fullmatch(template):
            for _ in range(self.chance.randint(int(found[1]), int(found[2]))):
                yield from self._drawn(found[3], roles)
        elif found := _EACH.fullmatch(template):
            names = self._role(found[1], roles).split()
            for name in self.chance.sample(names, len(names)):
                yield from self._drawn(found[2], roles | {"each": name})
        elif "; " in template:
            for part in template.split("; "):
                yield from self._drawn(part, roles)
        else:
            yield from self._line(template, roles)

    def _line(self, template: str, roles: Roles) -> Iterator[str]:
        if found := _PRODUCE.fullmatch(template):
            template = f"produce {{partition}}{found[1] or ' acks={all|1}'} {TIMEOUT} {{values}} &"
        line = self._expanded(template, roles)
        verb, *words = line.split()
        if verb == "lead":
            yield from self._lead(*words)
        elif self.situation.allows(line):
            if verb in START_VERBS:
                self.situation.client_lines.setdefault(words[0], template)
            yield line

    def _expanded(self, template: str, roles: Roles) -> str:
        """Return the template without its braces, of which the innermost are drawn first."""
        while found := _BRACES.search(template):
            inside = found[1]
            drawn = (
                self.chance.choice(inside.split("|"))
                if "|" in inside
                else self._role(inside, roles)
            )
            template = template[: found.start()] + drawn + template[found.end() :]
        return template

    def _role(self, name: str, roles: Roles) -> str:
        if name in roles:
            return roles[name]
        if name in WORDS:
            return WORDS[name]
        if found := _NOT.fullmatch(name):
            names = self.situation.brokers if found[1] else self.situation.names
            return _without(names, roles[found[2]])
        if name in ("copier at work", "other copiers"):
            at_work = self.situation.copiers(at_work=True)
            chosen = roles.setdefault("copier at work", self.chance.choice(at_work or [""]))
            return chosen if name in roles else _without(self.situation.copiers(), chosen)
        return self._ready[name]()

    @property
    def _ready(self) -> Mapping[str, Callable[[], str]]:
        """The roles that every fault has."""
        situation, partition = self.situation, str(self.situation.partition)
        partitions = list(map(str, situation.partitions))
        return {
            "partition": lambda: partition,
            "topic": lambda: situation.partition.topic,
            "partitions": lambda: " ".join(partitions),
            "other partitions": lambda: _without(partitions, partition),
            "last partition": lambda: partitions[-1],
            "brokers": lambda: " ".join(situation.brokers),
            "controllers": lambda: " ".join(situation.controllers),
            "request": self._new_request,
            "copiers": lambda: " ".join(situation.copiers()),
            "log end": lambda: situation.log_end,
            "way": lambda: self.plan.ways,
            "while": lambda: f"{{{SHORT_WAITS if self.plan.is_contest else LONG_WAITS}}}",
            "rack": lambda: self._rack("rack"),
            "client rack": lambda: self._rack("client.rack"),
            "value": lambda: self._new_value("v"),
            "values": lambda: self._new_values("v", 3),
            "records": lambda: self._new_values("o", 4),
            "record": lambda: self._new_values("o", 1),
        }

    def _rack(self, key: str) -> str:
        return f" {key}={self.chance.choice(self.plan.racks)}" if self.plan.racks else ""

    def _new_values(self, letter: str, most: int) -> str:
        return " ".join(self._new_value(letter) for _ in range(self.chance.randint(1, most)))

    def _new_value(self, letter: str) -> str:
        self._values += 1
        key = f"k{self.chance.randint(1, 3)}:" if self.plan.compacted else ""
        return f"{key}{letter}{self._values}"

    def _new_request(self) -> str:
        """Return a request of an administrator that changes nothing but the metadata, and differs
        from all others by its value.
        """
        self._requests += 1
        return f"alter {self.situation.partition.topic} delete.retention.ms={self._requests}"

    def _lead(self, where: str, wanted: str) -> Iterator[str]:
        """Yield another order of the same replicas, of which the first leads if it is in sync; nothing
        while no running broker knows the partition.
        """
        kind, _, names = wanted.partition("=")
        order, first = self.situation.replicas(where), names.split(",")
        self.chance.shuffle(order)
        order.sort(key=lambda name: first.index(name) if name in first else len(first))
        if kind == "last":
            order.sort(key=lambda name: name in first)
        if order and (kind == "last" or self.situation.leader(where) != first[0]):
            yield f"reassign {where} {','.join(order)}"
            yield f"elect {where} preferred"


def _without(names: list[str], *but: str) -> str:
    return " ".join(each for each in names if each not in but)


WITHIN_BUDGET = 0.25
"""The share of runs that have a budget."""
ENDS = ("kill", "power-cut", "wipe", "restore", "swap")


@attrs.frozen(repr=False)
class LossBudget:
    """A filter of lines: the ones that a run within its budget can afford pass."""

    stage: Stage

    def lines(self, drawn: Iterable[str]) -> Iterator[str]:
        for line in drawn:
            if self._is_affordable(*split(line)):
                yield line

    def _is_affordable(self, verb: str, words: Words, options: Options) -> bool:
        match verb:
            case "fail" | "grow":  # a broker ends later; a partition begins with few replicas
                return False
            case "power-cut" if "at" in options:  # its node ends later, too
                return False
            case "alter":
                return "min.insync.replicas" not in options
            case "reassign":
                return self._keeps_its_replicas(*words)
            case _ if verb in ENDS:
                brokers = [each for each in words if each in self.stage.cluster.broker_names]
                return not self.stage.checkers.budget.would_be_spent(brokers)
            case _:
                return True

    def _keeps_its_replicas(self, where: str, brokers: str) -> bool:
        registration = self.stage.cluster.partition(partition_of(where))
        if brokers == "back":
            return False
        ids = set(map(node_id_of, brokers.split(",")))
        return registration is not None and ids == set(registration.replicas)
