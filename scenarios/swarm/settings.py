"""The first two lines of a run: which brokers and partitions it has, and with which settings.

    cluster brokers=3 b1.broker.rack=r1 broker.session.timeout.ms=3000 ...
    topic t replicas=b2,b1,b3/b1,b3,b2 cleanup.policy=compact ...

A long run has minutes of virtual time and any cluster. A contest is short: three brokers, all of
which have each partition, and leadership that changes hands faster than the news of it travels.
What is drawn over many virtual seconds seldom has two leader epochs within one round trip; in a
contest most faults have.

A timeout of seconds makes a run of minutes, and sizes as in production are never reached by the
few records of a run: so most are drawn small, and each now and then as Kafka has it.

Our own clients take part in some runs, with settings of their own:

    producer p1 delivery.timeout.ms=3000 ...     idempotent, up to five requests in flight
    producer x1 transactional.id=x1 ...          transactions, some of which are aborted
    reader r1 t-0 ...                            by itself; seeks back now and then
    member m1 g t ...                            in a group of up to three: classic, KIP-848, mixed
    copier w1 h t u-0 ...                        t to u, exactly once

Settings are drawn anew for each life of a client. So the members of a mixed group come back with
the one protocol or the other, and their coordinator upgrades and downgrades the group under way.

What they do, and what happens to them, is in the table of faults (`scenarios.swarm.faults`).

The file is long because it has the settings of every kind of cluster, client and run.
"""

import random
from collections.abc import Iterator, Mapping, Sequence

import attrs

from scenarios.swarm.faults import (
    COMBINED_FAULTS,
    FAULTS,
    GROUP_FAULTS,
    HARDWARE_FAULTS,
    PROTOCOL_FAULTS,
    QUORUM_FAULTS,
    FaultKind,
)
from scenarios.swarm.situation import Situation, room
from storage.types import TopicPartition

TAKE_PART = 0.25
"""The share of runs with clients of ours."""
TAKES_PART = 0.6
"""The share of those that have a kind of client."""
GROUPS_TAKE_PART = 0.85
"""The share of those that have a group: its coordinator is what they test beside the clients."""
GROUPS = ("classic", "consumer", "mixed", "mixed", "mixed")
"""The protocols of the members of a group: the classic one, KIP-848, or both."""
LEAST_TO_SHARE = 2
"""The least partitions of a topic that a group of KIP-848 reads: one has nothing to share."""
STATIC = 0.4
"""The share of the groups with KIP-848 whose members have instance ids."""
COPY = TopicPartition("u", 0)
# A member that asked to join a broker which then lost its power waits for as long as it may take
# between two polls, as Kafka's consumer does.
COPIER = "session.timeout.ms=6000 max.poll.interval.ms=10000 metadata.max.age.ms=5000"
PATIENCE = f"{COPIER} transaction.timeout.ms=60000 max.block.ms=30000 linger.ms=0"
PRODUCER = (
    "linger.ms={0|5|100} batch.size={16384|120} delivery.timeout.ms={3000|20000}"
    " request.timeout.ms={500|2000} max.block.ms={5000|15000}"
    " compression.type={none|none|gzip|zstd}"
)
TRANSACTIONS = f"{PRODUCER} transaction.timeout.ms={{4000|20000}}"
# New partitions are to be heard of soon.
READER = (
    "max.poll.records={1|3|500} max.partition.fetch.bytes={300|1048576}"
    " request.timeout.ms={1000|30000} metadata.max.age.ms=5000 fetch.max.wait.ms={500|2000}"
)
# The sessions of the new protocol are set by brokers.
CLASSIC = (
    "partition.assignment.strategy={strategy}"
    " session.timeout.ms={6000|10000} heartbeat.interval.ms={1000|3000}"
)
CONSUMER = "group.protocol=consumer"
MEMBER = "max.poll.interval.ms={6000|30000} auto.commit.interval.ms={1000|3000}"
CONSUMER_GROUPS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.heartbeat.interval.ms": 1000,
}
MIXED_GROUPS = {"group.consumer.migration.policy": "bidirectional"}
ISOLATION = "isolation.level={read_uncommitted|read_committed}"
KINDS: Mapping[str, tuple[int, str]] = {
    "producer": (2, f"producer p{{number}} {PRODUCER}"),
    "transactional": (1, f"producer x{{number}} transactional.id=x{{number}} {TRANSACTIONS}"),
    "reader": (1, f"reader r{{number}} t-0 {ISOLATION} {READER}{{client rack}}"),
    "member": (3, f"member m{{number}} g t {{group}} {READER} {MEMBER}{{client rack}}"),
    "copier": (2, f"copier w{{number}} h t {COPY} {COPIER} {TRANSACTIONS}"),
}
"""How many of a kind there may be, and the line that starts one."""
TRANSACTIONAL = ("transactional", "copier")
LATE_READER = "r9"
"""A reader that finds aborted transactions, and what came after them, in one fetch."""


@attrs.frozen
class OurClients:
    """The clients of ours that take part in a run; most runs have none."""

    kinds: tuple[str, ...]
    group: str
    """The settings that all members of the group have in common."""
    protocols: str
    """The kind of the group: one of `GROUPS`."""
    is_static: bool
    """Whether the members have instance ids, so that they come back to what they had."""
    initial_delay_ms: int

    @property
    def has_consumer_group(self) -> bool:
        """Whether members use the protocol of KIP-848, all or some."""
        return self.protocols != "classic"

    @classmethod
    def drawn(cls, chance: random.Random, *, compacted: bool) -> "OurClients":
        kinds = [
            each
            for each in KINDS
            if chance.random() < (GROUPS_TAKE_PART if each == "member" else TAKES_PART)
        ]
        if chance.random() >= TAKE_PART:
            kinds.clear()
        isolation = chance.choice(("read_uncommitted", "read_committed"))
        strategy = chance.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
        auto_commit, delay = chance.choice(("true", "false")), chance.choice((0, 1000))
        protocols = chance.choice(GROUPS) if "member" in kinds else "classic"
        classic = CLASSIC.replace("{strategy}", strategy)
        how = {"classic": classic, "consumer": CONSUMER, "mixed": f"{{{classic}|{CONSUMER}}}"}
        return cls(
            tuple(each for each in kinds if not (compacted and each in TRANSACTIONAL)),
            f"enable.auto.commit={auto_commit} isolation.level={isolation} {how[protocols]}",
            protocols,
            protocols != "classic" and chance.random() < STATIC,
            delay,
        )

    def settings(self, brokers: int, min_insync_replicas: int) -> dict[str, object]:
        """Return the settings of the topics in which brokers keep what clients have committed."""
        if not self.kinds:
            return {}
        copies = min(3, brokers)
        return {
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(min_insync_replicas, copies),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            "group.initial.rebalance.delay.ms": self.initial_delay_ms,
            **(CONSUMER_GROUPS if self.has_consumer_group else {}),
            **(MIXED_GROUPS if self.protocols == "mixed" else {}),
        }

    def beginning(self, chance: random.Random, replicas: Sequence[str]) -> Iterator[str]:
        """Yield the lines that start them, as templates."""
        if "copier" in self.kinds:
            # All that a copy loop has polled may be one batch, which has to fit into a segment.
            yield f"topic {COPY.topic} replicas={','.join(replicas)} segment.bytes=1048576"
        for kind in self.kinds:
            most, line = KINDS[kind]
            for number in range(1, chance.randint(1, most) + 1):
                instance = f" group.instance.id=m{number}" if self.is_static else ""
                yield (
                    line.replace("{number}", str(number)).replace("{group}", self.group + instance)
                )

    def draining(self, situation: Situation) -> Iterator[str]:
        """Yield the lines, as templates, after which every client has received everything, and has
        ended.
        """
        if not self.kinds:
            return
        for partition in situation.partitions:  # what one replica alone has acked is there to read
            yield f"wait equal {partition}"
        everything = " ".join(map(str, situation.partitions))
        yield f"reader {LATE_READER} {everything} isolation.level=read_committed"
        for name, line in situation.client_lines.items():
            if situation.is_leaving(name):
                yield f"leave {name}"
            if name not in situation.clients and not situation.was_sending(name):
                yield line
        if "copier" in self.kinds:
            yield f"wait whole {COPY}"
        if self.has_consumer_group and (roles := room(situation)):  # nobody joins after this
            yield f"grow t {roles['count']} {roles['some replicas']}"
        yield "drain"

    def judgement(self) -> Iterator[str]:
        if "copier" in self.kinds:
            for verb in ("wait whole", "wait equal", "verify"):
                yield f"{verb} {COPY}"
        if self.kinds:
            yield "judge-clients"


AS_IN_KAFKA = None  # the setting is not named
# A fetch that waits is answered once there is something. While there is nothing, fetches twice a
# second would be most of what a run does.
WAIT = "replica.fetch.wait.max.ms"
METADATA_WAIT = "understudy.metadata.fetch.wait.max.ms"
LAG = "replica.lag.time.max.ms"

LONG_RUN: Mapping[str, Sequence[object]] = {
    "broker.session.timeout.ms": (3000, 3000, AS_IN_KAFKA),
    "broker.heartbeat.interval.ms": (1000, 2000),
    LAG: (500, 1000, 1000, 5000, AS_IN_KAFKA),
    "replica.fetch.backoff.ms": (50, 200, AS_IN_KAFKA),
    WAIT: (100, AS_IN_KAFKA) + (5000,) * 4,
    METADATA_WAIT: (AS_IN_KAFKA,) + (5000,) * 4,
    "replica.fetch.max.bytes": (100, AS_IN_KAFKA),
    "replica.fetch.response.max.bytes": (300, AS_IN_KAFKA, AS_IN_KAFKA),
    "replica.high.watermark.checkpoint.interval.ms": (400, 1000, AS_IN_KAFKA),
    "num.replica.fetchers": (1, 2, 3),
    "log.segment.bytes": (200, 1000, AS_IN_KAFKA),
    "log.flush.interval.messages": (1, AS_IN_KAFKA, AS_IN_KAFKA),
    "log.flush.offset.checkpoint.interval.ms": (1000, AS_IN_KAFKA),
    "log.flush.start.offset.checkpoint.interval.ms": (1000, AS_IN_KAFKA),
    "max.incremental.fetch.session.cache.slots": (0, 8, 8, AS_IN_KAFKA),
    "understudy.incremental.fetch.session.eviction.ms": (100, 2000, AS_IN_KAFKA),
    "understudy.inter.broker.fetch.version": (17, 17, 17, 17, 12, 11, 6),
    "metadata.log.max.record.bytes.between.snapshots": (300, 2000, AS_IN_KAFKA),
    "leader.imbalance.check.interval.seconds": (1, AS_IN_KAFKA, AS_IN_KAFKA),
    "understudy.eligible.leader.replicas.version": (AS_IN_KAFKA,) * 7 + (0,),
    "unclean.leader.election.enable": ("false",) * 7 + ("true",),
    "min.insync.replicas": (1, 2, 2, 3),
    "brokers": (1, 2, 3, 3, 3, 3, 3, 4, 5),
    "copies": (1, 2, 3, 3, 3, 3, 4, 5),
    "partitions": (1, 1, 1, 2, 3),
    "racks": (True,) + (False,) * 4,
    "throttle": (300, 1000) + (AS_IN_KAFKA,) * 18,
    "compacted": (True,) + (False,) * 6,
}
CONTEST: Mapping[str, Sequence[object]] = {
    "broker.session.timeout.ms": (2500, 9000, 9000),
    LAG: (500, 1000, 1000, 30_000),
    "replica.fetch.max.bytes": (100, 100, 1 << 20),
    "max.incremental.fetch.session.cache.slots": (0, 1000),
    # Most contests have a row that needs 17 or 11.
    "understudy.inter.broker.fetch.version": (17, 6, 12, 12, 11, 6),
    "min.insync.replicas": (1, 2),
    WAIT: (AS_IN_KAFKA,) + (5000,) * 4,
    METADATA_WAIT: (AS_IN_KAFKA,) + (5000,) * 4,
    "replica.high.watermark.checkpoint.interval.ms": (200, 1000),
    "log.segment.bytes": (200, 1 << 30),
    "brokers": (3,),
    "copies": (3,),
    "partitions": (1, 2, 2),
}
# What a cleaner is to find soon: segments of a few records, of which any may go.
COMPACTION = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
CLEANED_SOON = {"log.cleaner.backoff.ms": 500, "log.segment.bytes": 200}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SIDES = ("leader", "follower")

CONTROLLERS = (1, 1, 3)
"""The numbers of controllers, of which one is drawn for each run."""
COMBINED = 0.4
"""The share of the runs with several controllers in which brokers have that role too."""
QUORUM: Mapping[str, Sequence[object]] = {
    "controller.quorum.election.timeout.ms": (AS_IN_KAFKA, 300),
    "controller.quorum.fetch.timeout.ms": (AS_IN_KAFKA, 600),
    "controller.quorum.request.timeout.ms": (AS_IN_KAFKA, 500),
}
"""The settings of a run with several controllers."""

HAS_HARDWARE_FAULTS = 0.4
"""The share of runs that have some of the faults of hardware."""
SPARE = 0.4
"""The share of the brokers of such a run that have a second log directory, if no disk is replaced.

The last known leader is not elected after that: the controller knows its old directory at the time
(docs/found.md).
"""

PROBED = 0.4
"""The share of runs with the faults of clients and operators that have a random stream of their own."""
EXAMINED = 0.4
"""The share of runs that end with `EXAMINATIONS`."""
CONTESTS = 0.4
"""The share of runs that are contests."""
HAS_FAULT = 0.4
"""The share of runs that have a fault which not all have."""
CONTROLLER_FAILS = 0.5
A_CONTROLLER_FAILS = 0.85
"""The share of the runs with several controllers in which these fail."""
MOST_STEPS_WITH_CLIENTS = 20
"""Clients of ours cost as much again as all the rest of a run."""
NOT_WITH_CLIENTS = ("bit-rot", "write-misdirected", "topic-made-again")
"""Faults under which the records of our clients are not judged."""
ACKS = ("all", "{all|1}", "{all|all|1|0}")
WAYS = (("once",), ("once", "again"), ("once", "numbered"), ("numbered",), ("again", "numbered"))


@attrs.frozen(kw_only=True)
class RunPlan:
    """The plan of a run before its first line: its cluster, its clients, and how often each fault."""

    is_contest: bool
    steps: int
    brokers: int
    controllers: int
    combined: bool
    """Whether the controllers are the first of the brokers."""
    copies: int
    partitions: int
    racks: tuple[str, ...]
    """The rack of each broker; none where no reader cares."""
    compacted: bool
    controller_fails: bool
    settings: Mapping[str, object]
    topic: Mapping[str, object]
    faults: Mapping[FaultKind, float]
    """The weight of each fault of this run."""
    ways: str
    """How producers produce: a choice among templates."""
    clients: OurClients
    is_examined: bool = False
    """Whether it ends with `EXAMINATIONS`."""

    @property
    def cluster_line(self) -> str:
        key = "combined" if self.combined else "controllers"
        several = f" {key}={self.controllers}" if self.controllers > 1 else ""
        return f"cluster brokers={self.brokers}{several} {options(self.settings)}"

    def topic_line(self, assigned: Sequence[Sequence[str]]) -> str:
        listed = "/".join(map(",".join, assigned))
        return f"topic t {options({'replicas': listed, **self.topic})}"


def options(values: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def with_controllers(plan: RunPlan, choices: Sequence[int], chance: random.Random) -> RunPlan:
    """Return the plan with one controller, as it is, or with several.

    The chance is not that of the plan: a run with one controller is what it was before there were
    several.
    """
    controllers = chance.choice(choices)
    if controllers == 1:
        return plan
    drawn = {key: chance.choice(values) for key, values in QUORUM.items()}
    settings = {key: value for key, value in drawn.items() if value is not AS_IN_KAFKA}
    faults = {
        fault: fault.weight[plan.is_contest] * chance.randint(1, 3)
        for fault in QUORUM_FAULTS
        if fault.always or chance.random() < HAS_FAULT
    }
    fails = chance.random() < A_CONTROLLER_FAILS
    combined = chance.random() < COMBINED and plan.brokers >= controllers
    if combined:
        faults |= {fault: fault.weight[plan.is_contest] for fault in COMBINED_FAULTS}
    return attrs.evolve(
        plan,
        controllers=controllers,
        combined=combined,
        controller_fails=fails,
        settings={**plan.settings, **settings},
        faults={**plan.faults, **faults},
    )


def with_hardware(plan: RunPlan, chance: random.Random) -> RunPlan:
    """Return the plan as it is, or with faults of hardware; the chance is not that of the plan."""
    if chance.random() >= HAS_HARDWARE_FAULTS:
        return plan
    settings = dict(plan.settings)
    a_disk_is_replaced = any("wipe" in fault.lines for fault in plan.faults)
    for number in range(1, plan.brokers + 1):
        if chance.random() < SPARE and not a_disk_is_replaced:
            settings[f"b{number}.log.dirs"] = f"/b{number}/log,/b{number}/spare"
    faults = dict(plan.faults)
    for fault in HARDWARE_FAULTS:
        wanted = {key: chance.choice(values) for key, values in fault.settings.items()}
        left_out = plan.clients.kinds and fault.name in NOT_WITH_CLIENTS
        agreed = all(settings.get(key, value) == value for key, value in wanted.items())
        if chance.random() < HAS_FAULT and agreed and not left_out:
            faults[fault] = fault.weight[plan.is_contest] * chance.randint(1, 3)
            settings |= wanted
    return attrs.evolve(plan, settings=settings, faults=faults)


def with_probes(plan: RunPlan, chance: random.Random) -> RunPlan:
    """Return the plan as it is, or with `PROTOCOL_FAULTS`. The chance is not that of the plan."""
    if chance.random() >= PROBED:
        return plan
    weights = {fault: fault.weight[plan.is_contest] for fault in PROTOCOL_FAULTS}
    drawn = {fault: weight for fault, weight in weights.items() if weight}
    return attrs.evolve(plan, faults={**plan.faults, **drawn})


def with_examinations(plan: RunPlan, chance: random.Random) -> RunPlan:
    """Return the plan as it is, or with `EXAMINATIONS`. The chance is not that of the plan."""
    return attrs.evolve(plan, is_examined=chance.random() < EXAMINED)


def drawn_plan(chance: random.Random) -> RunPlan:
    is_contest = chance.random() < CONTESTS
    choices = CONTEST if is_contest else LONG_RUN
    drawn = {key: chance.choice(values) for key, values in choices.items()}
    compacted, racks, throttle = (
        drawn.pop(key, None) for key in ("compacted", "racks", "throttle")
    )
    clients = OurClients.drawn(chance, compacted=bool(compacted))
    faults, needed = _drawn_faults(chance, is_contest=is_contest, with_clients=bool(clients.kinds))
    drawn |= {
        key: value for key, value in needed.items() if not (key == "partitions" and not is_contest)
    }
    if clients.has_consumer_group:
        faults |= {fault: fault.weight[is_contest] for fault in GROUP_FAULTS}
        drawn["partitions"] = max(LEAST_TO_SHARE, int(str(drawn["partitions"])))
    brokers = int(str(drawn.pop("brokers")))
    copies = min(int(str(drawn.pop("copies"))), brokers)
    partitions = int(str(drawn.pop("partitions")))
    drawn["min.insync.replicas"] = min(int(str(drawn["min.insync.replicas"])), copies)
    if drawn[WAIT] is not None and drawn[LAG] is not None:
        drawn[WAIT] = min(int(str(drawn[WAIT])), int(str(drawn[LAG])))
    names = tuple(f"r{number % 2 + 1}" for number in range(brokers)) if racks else ()
    settings = {f"b{number}.broker.rack": rack for number, rack in enumerate(names, 1)} | drawn
    settings = {key: value for key, value in settings.items() if value is not AS_IN_KAFKA}
    topic: dict[str, object] = {}
    if racks:
        settings["replica.selector.class"] = RACK_AWARE
    if throttle:
        settings |= {f"{side}.replication.throttled.rate": throttle for side in SIDES}
        topic |= {f"{side}.replication.throttled.replicas": "*" for side in SIDES}
    if compacted:
        settings |= CLEANED_SOON
        topic |= COMPACTION
    settings |= clients.settings(brokers, int(str(drawn["min.insync.replicas"])))
    steps = chance.randint(10, 40) if is_contest else chance.randint(8, 50)
    return RunPlan(
        is_contest=is_contest,
        steps=min(steps, MOST_STEPS_WITH_CLIENTS) if clients.kinds else steps,
        brokers=brokers,
        controllers=1,
        combined=False,
        copies=copies,
        partitions=partitions,
        racks=names,
        compacted=bool(compacted),
        controller_fails=not is_contest and chance.random() < CONTROLLER_FAILS,
        settings=settings,
        topic=topic,
        faults=faults,
        ways="{how}" if is_contest else _drawn_ways(chance),
        clients=clients,
    )


def _drawn_faults(
    chance: random.Random, *, is_contest: bool, with_clients: bool
) -> tuple[dict[FaultKind, float], dict[str, object]]:
    """Return the faults of a run with their weights, and the settings that they need.

    A fault whose settings contradict those of another is not in the run.
    """
    weights: dict[FaultKind, float] = {}
    settings: dict[str, object] = {}
    for fault in chance.sample(FAULTS, len(FAULTS)):
        more = {key: chance.choice(values) for key, values in fault.settings.items()}
        agreed = all(settings.get(key, value) in fault.settings[key] for key, value in more.items())
        weight, factor = fault.weight[is_contest], chance.randint(1, 4)
        if with_clients and fault.name in NOT_WITH_CLIENTS:
            continue
        if weight and agreed and (fault.always or chance.random() < HAS_FAULT):
            weights[fault] = weight * (1 if fault.always else factor)
            settings = more | settings
    return weights, settings


def _drawn_ways(chance: random.Random) -> str:
    """Return how producers of a run send: once, again until answered, or in sequence (KIP-98)."""
    acks, producers = chance.choice(ACKS), chance.choice(("p1", "{p1|p2}"))
    ways = {
        "once": f"acks={acks}",
        "again": f"acks={acks.replace('0', '1')} delivery.timeout.ms={{3000|20000}}",
        "numbered": f"as={producers} delivery.timeout.ms={{3000|20000}}",
    }
    drawn = [ways[way] for way in chance.choice(WAYS)]
    any_of_them = "|".join([*drawn, drawn[0]])  # a choice has two alternatives at least
    return f"{{{any_of_them}}} {{timeout}}"
