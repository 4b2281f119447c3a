"""Our own clients in a run of the swarm: which there are, what they do, what befalls them.

    producer p1 delivery.timeout.ms=3000 ...     idempotent, up to five requests in flight
    producer x1 transactional.id=x1 ...          transactions, some of which are aborted
    reader r1 t-0 ...                            by itself; seeks back now and then
    member m1 g t ...                            in a group of up to three
    copier w1 h t u-0 ...                        t to u, exactly once
    kill m1   pause w1   cut p1 b2   hold x1 b1 END_TXN     and who coordinates them is killed

One run in five has some of them (`TAKE_PART`). All is drawn from streams of its own: the other
runs are what they would be without.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from scenarios.story.expected_records import OFFSETS, TRANSACTIONS
from scenarios.story.stage import Stage
from scenarios.swarm.settings import Chance, options
from scenarios.swarm.transaction_takeover import TransactionTakeover
from scenarios.swarm.workload import KEYS
from scenarios.world.clients.copying import Copier
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.sending import Sender
from scenarios.world.clients.witness import Given
from storage.types import TopicPartition

TAKE_PART = 0.2
MOST_STEPS = 14
"""Of a run with our clients: they cost as much again."""
COPY = "u"
KINDS = ("producer", "transactional", "reader", "member", "copier")
TAKES_PART = 0.6
ACTS, SENDS, HAS_FAULT = 0.7, 0.7, 0.25
BEGINS_ANEW = 0.7
ANEW = "p9 linger.ms=0 delivery.timeout.ms=3000 request.timeout.ms=500 max.block.ms=15000"
FAULT_VERBS = (
    "kill",
    "leave",
    "pause",
    "cut",
    "hold",
    "tear",
    "seek",
    "coordinator",
    "zombie",
    "unheard",
    "unheard",
)
HELD = (
    "PRODUCE",
    "FETCH",
    "METADATA",
    "JOIN_GROUP",
    "SYNC_GROUP",
    "HEARTBEAT",
    "OFFSET_COMMIT",
    "INIT_PRODUCER_ID",
    "ADD_PARTITIONS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    "END_TXN",
)
OF_PRODUCERS: Mapping[str, Sequence[object]] = {
    "linger.ms": (0, 5, 100),
    "batch.size": (16_384, 120),
    "delivery.timeout.ms": (3000, 20_000),
    "request.timeout.ms": (500, 2000),
    "max.block.ms": (5000, 15_000),
    "compression.type": ("none", "none", "gzip", "zstd"),
}
OF_TRANSACTIONS: Mapping[str, Sequence[object]] = {"transaction.timeout.ms": (4000, 20_000)}
OF_READERS: Mapping[str, Sequence[object]] = {
    "max.poll.records": (1, 3, 500),
    "max.partition.fetch.bytes": (300, 1 << 20),
    "request.timeout.ms": (1000, 30_000),
    "metadata.max.age.ms": (5000,),  # new partitions are to be heard of
    "fetch.max.wait.ms": (500, 2000),
}
OF_MEMBERS: Mapping[str, Sequence[object]] = {
    "session.timeout.ms": (6000, 10_000),
    "heartbeat.interval.ms": (1000, 3000),
    "max.poll.interval.ms": (6000, 30_000),
    "auto.commit.interval.ms": (1000, 3000),
}
# Who has asked to join a broker that then lost its power waits for as long as a member may take
# between two polls, as Kafka's consumer does.
COPIERS = "session.timeout.ms=6000 max.poll.interval.ms=10000 metadata.max.age.ms=5000"
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
ISOLATION = ("read_uncommitted", "read_committed")


@attrs.define(eq=False, kw_only=True)
class OurClients:
    stage: Stage
    chance: random.Random
    kinds: tuple[str, ...]
    compacted: bool
    transaction_takeover: TransactionTakeover
    _places: random.Random
    _numbers: random.Random
    _strategy: str
    _isolation: str
    _auto_commit: str
    racks: tuple[str, ...] = attrs.field(default=(), init=False)
    """Where consumers may stand."""
    _values: int = attrs.field(default=0, init=False)
    _lines: dict[str, str] = attrs.field(factory=dict, init=False)
    """How each was started."""

    @classmethod
    def drawn(cls, chance: Chance, stage: Stage, *, compacted: bool) -> "OurClients":
        """Nobody, in most runs."""
        clients = chance("clients")
        kinds: tuple[str, ...] = ()
        if clients.random() < TAKE_PART:
            kinds = tuple(each for each in KINDS if clients.random() < TAKES_PART)
        if compacted:
            kinds = tuple(each for each in kinds if each not in ("transactional", "copier"))
        return cls(
            stage=stage,
            chance=clients,
            kinds=kinds,
            compacted=compacted,
            places=chance("racks of clients"),
            numbers=chance("numbers of producers"),
            transaction_takeover=TransactionTakeover(chance("takeover"), stage),
            strategy=clients.choice(STRATEGIES),
            isolation=clients.choice(ISOLATION),
            auto_commit=clients.choice(("true", "false")),
        )

    def steps(self, drawn: int) -> int:
        return min(drawn, MOST_STEPS) if self.kinds else drawn

    def settings(self, brokers: int, min_insync_replicas: int) -> dict[str, object]:
        """Of the topics in which brokers keep what clients have committed."""
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
            "group.initial.rebalance.delay.ms": self.chance.choice((0, 1000)),
        }

    def beginning(self, assigned: Sequence[Sequence[str]]) -> Iterator[str]:
        if "copier" in self.kinds:
            yield f"topic {COPY} replicas={','.join(assigned[0])}"
        numbers = {"producer": (1, 2), "member": (1, 2, 3), "copier": (1, 2)}
        for kind in self.kinds:
            for number in range(self.chance.choice(numbers.get(kind, (1,)))):
                yield from self._start(kind, number + 1)

    def _start(self, kind: str, number: int) -> Iterator[str]:
        name = {"producer": "p", "transactional": "x", "reader": "r", "member": "m", "copier": "w"}
        who = f"{name[kind]}{number}"
        match kind:
            case "producer":
                line = f"producer {who} {self._drawn(OF_PRODUCERS)}"
            case "transactional":
                drawn = self._drawn({**OF_PRODUCERS, **OF_TRANSACTIONS})
                line = f"producer {who} transactional.id={who} {drawn}"
            case "reader":
                isolation = self.chance.choice(ISOLATION)
                drawn = self._drawn(OF_READERS) + self._rack()
                line = f"reader {who} t-0 isolation.level={isolation} {drawn}"
            case "member":
                line = f"member {who} g t {self._member()}{self._rack()}"
            case _:
                drawn = self._drawn({**OF_PRODUCERS, **OF_TRANSACTIONS})
                line = f"copier {who} h t {COPY}-0 {COPIERS} {drawn}"
        self._lines[who] = line
        yield line

    def _member(self) -> str:
        drawn = self._drawn({**OF_READERS, **OF_MEMBERS})
        return (
            f"enable.auto.commit={self._auto_commit} isolation.level={self._isolation}"
            f" partition.assignment.strategy={self._strategy} {drawn}"
        )

    def _rack(self) -> str:
        return f" client.rack={self._places.choice(self.racks)}" if self.racks else ""

    def _drawn(self, choices: Mapping[str, Sequence[object]]) -> str:
        return options({key: self.chance.choice(values) for key, values in choices.items()})

    # What they do, and what befalls them.

    def lines(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        if not self.kinds or self.chance.random() >= ACTS:
            return
        if self.chance.random() < SENDS:
            yield from self._send(partitions)
        if self.chance.random() < HAS_FAULT:
            yield from self._fault(partitions)

    def _send(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        senders = self.stage.programs.senders
        if not senders:
            return
        sender = self.chance.choice(senders)
        where = self.chance.choice(partitions)
        if "transactional.id" not in sender.config:
            yield f"send {sender.name} {where} {self._some()} &"
            return
        also = self.chance.choice(partitions)
        rest = "" if also == where else f" {also} {self._some()}"
        end = self.chance.choice(("commit", "commit", "commit", "abort", "abort", "drop"))
        yield f"transact {sender.name} {where} {self._some()}{rest} end={end} &"

    def _some(self) -> str:
        return " ".join(self._one() for _ in range(self.chance.randint(1, 4)))

    def _one(self) -> str:
        self._values += 1
        key = f"{self.chance.choice(KEYS)}:" if self.compacted else ""
        return f"{key}o{self._values}"

    def _fault(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        programs, chance = self.stage.programs, self.chance
        away = [name for name in self._lines if name not in programs.running]
        paused = [name for name in programs.running if self.stage.world.clock(name).paused]
        verb = chance.choice(FAULT_VERBS)
        if away and chance.random() < 0.5:
            yield self._lines[chance.choice(away)]
        elif paused and chance.random() < 0.7:
            yield f"resume {chance.choice(paused)}"
        elif verb == "coordinator":
            yield from self._kill_a_coordinator()
        elif verb == "zombie":
            yield from self._zombie(partitions)
        elif verb == "unheard":
            yield from self._unheard(partitions)
        elif running := list(programs.running.values()):
            program = chance.choice(running)
            other = chance.choice(self.stage.cluster.broker_names)
            pair = [program.name, other]
            chance.shuffle(pair)
            match verb:
                case "cut" | "tear":
                    yield f"{verb} {' '.join(pair)}"
                case "hold":
                    api, after = chance.choice(HELD), chance.choice((0, 0, 1, 2))
                    yield f"hold {' '.join(pair)} {api} after={after}"
                case "seek":
                    yield from self._seek()
                case "leave":
                    yield f"leave {program.name} &"
                case _:
                    yield from [f"{verb} {program.name}"] if program.name not in paused else []

    def _zombie(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        """A copier stops with a transaction open, its group goes on, and it wakes up."""
        running = self.stage.programs.running.values()
        copiers = [each.name for each in running if isinstance(each, Copier)]
        coordinator = self.stage.cluster.leader(TopicPartition(OFFSETS, 0))
        if copiers and coordinator is not None:
            name = self.chance.choice(copiers)
            yield f"hold {name} {coordinator} TXN_OFFSET_COMMIT"
            yield from self._send(partitions)
            yield f"run {self.chance.choice(('20ms', '150ms', '1s'))}"
            yield from self._while_it_runs(name, f"pause {name}")
            yield "run 8s"
            yield from self._while_it_runs(name, f"heal {name} {coordinator}", f"resume {name}")

    def _unheard(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        """A producer gives up what is there, because it hears nothing of it."""
        where = self.chance.choice(partitions)
        leader = self.stage.cluster.leader(where)
        plain = [
            each.name
            for each in self.stage.programs.senders
            if "transactional.id" not in each.config
        ]
        if plain and leader is not None:
            name = self.chance.choice(plain)
            pair = [leader, name]
            self.chance.shuffle(pair)
            yield f"hold {' '.join(pair)} PRODUCE after={self.chance.choice((0, 0, 1))}"
            for wait in ("5ms", "5ms", "4s"):
                yield from self._while_it_runs(name, f"send {name} {where} {self._some()} &")
                yield f"run {wait}"
            again = f"send {name} {where} {self._some()} &"
            yield from self._while_it_runs(name, f"heal {leader} {name}", again)

    def _while_it_runs(self, name: str, *lines: str) -> Iterator[str]:
        """It may have ended meanwhile, as it was asked to."""
        for line in lines:
            if name in self.stage.programs.running:
                yield line

    def _seek(self) -> Iterator[str]:
        """Back, to somewhere that it has been."""
        happened = self.stage.programs.witness.happened
        for reader in self.stage.programs.readers:
            if reader.group is None and reader.name in self.stage.programs.running:
                where = self.chance.choice(list(reader.partitions))
                given = [
                    each.offset
                    for each in happened[where]
                    if isinstance(each, Given) and each.reader == reader.name
                ]
                if given:
                    yield f"seek {reader.name} {where} {self.chance.choice(given)}"

    def _kill_a_coordinator(self) -> Iterator[str]:
        topic = self.chance.choice((OFFSETS, TRANSACTIONS))
        leader = self.stage.cluster.leader(TopicPartition(topic, 0))
        if leader is not None and self.stage.cluster.is_running(leader):
            yield f"kill {leader}"

    # How it ends.

    def beginning_anew(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        """A producer that has written before gives up what is there, and numbers from the
        beginning (KIP-360): under the same epoch that would be taken for what it wrote first, which
        is known by its numbers, so all batches have one record.
        """
        if "producer" not in self.kinds or self._numbers.random() >= BEGINS_ANEW:
            return
        where = self._numbers.choice(partitions)
        yield f"producer {ANEW}"
        name = ANEW.split(maxsplit=1)[0]
        yield f"send {name} {where} {self._one()}"
        leader = self.stage.cluster.leader(where)
        if leader is not None:
            yield f"hold {leader} {name} PRODUCE"
            yield f"send {name} {where} {self._one()} &"
            yield "run 4s"
            yield f"heal {leader} {name}"
            yield f"send {name} {where} {self._one()} &"
            yield "run 2s"

    def taking_over(self, produced: Iterable[str]) -> Iterator[str]:
        """Everything is whole, and some of the lines `produced` make something to be copied."""
        if "copier" in self.kinds and self.transaction_takeover.happens:
            for line in self.transaction_takeover.beginning("h", "t", TopicPartition(COPY, 0)):
                self._lines[line.split()[1]] = line
                yield line
            yield from self.transaction_takeover.lines(produced)

    def ending(self) -> Iterator[str]:
        """Nobody sends any more: what there is to read and to copy is there."""
        for sender in self.stage.programs.senders:
            yield from self._while_it_runs(sender.name, f"leave {sender.name}")

    def draining(self, partitions: Sequence[TopicPartition]) -> Iterator[str]:
        """Everybody has been told everything, and is gone."""
        if not self.kinds:
            return
        for partition in partitions:  # what one alone has acked is there to be read
            yield f"wait equal {partition}"
        for name, line in self._lines.items():
            if name not in self.stage.programs.running and not isinstance(self._last(name), Sender):
                yield line
        if "copier" in self.kinds:
            yield f"wait whole {COPY}-0"
        yield "drain"

    def _last(self, name: str) -> Sender | Reader | Copier | None:
        lives = [each for each in self.stage.programs.all if each.name == name]
        last = lives[-1] if lives else None
        assert last is None or isinstance(last, Sender | Reader | Copier), "there are these"
        return last

    def judgement(self) -> Iterator[str]:
        if not self.kinds:
            return
        if "copier" in self.kinds:
            for verb in ("wait whole", "wait equal", "verify"):
                yield f"{verb} {COPY}-0"
        yield "judge-clients"
