"""Our own clients in a run of the swarm: which there are, and with which settings.

    producer p1 delivery.timeout.ms=3000 ...     idempotent, up to five requests in flight
    producer x1 transactional.id=x1 ...          transactions, some of which are aborted
    reader r1 t-0 ...                            by itself; seeks back now and then
    member m1 g t ...                            in a group of up to three
    copier w1 h t u-0 ...                        t to u, exactly once

What they do, and what happens to them, is in the table of faults (`scenarios.swarm.faults`).
"""

import random
from collections.abc import Iterator, Mapping, Sequence

import attrs

from scenarios.swarm.situation import Situation
from storage.types import TopicPartition

TAKE_PART = 0.2
"""The share of runs with clients of ours."""
TAKES_PART = 0.6
"""The share of those that have a kind of client."""
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
MEMBER = (
    "session.timeout.ms={6000|10000} heartbeat.interval.ms={1000|3000}"
    " max.poll.interval.ms={6000|30000} auto.commit.interval.ms={1000|3000}"
)
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
    """What all members of the group have in common."""
    initial_delay_ms: int

    @classmethod
    def drawn(cls, chance: random.Random, *, compacted: bool) -> "OurClients":
        kinds = [each for each in KINDS if chance.random() < TAKES_PART]
        if chance.random() >= TAKE_PART:
            kinds.clear()
        isolation = chance.choice(("read_uncommitted", "read_committed"))
        strategy = chance.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
        return cls(
            tuple(each for each in kinds if not (compacted and each in TRANSACTIONAL)),
            f"enable.auto.commit={chance.choice(('true', 'false'))} isolation.level={isolation}"
            f" partition.assignment.strategy={strategy}",
            chance.choice((0, 1000)),
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
        }

    def beginning(self, chance: random.Random, replicas: Sequence[str]) -> Iterator[str]:
        """Yield the lines that start them, as templates."""
        if "copier" in self.kinds:
            yield f"topic {COPY.topic} replicas={','.join(replicas)}"
        for kind in self.kinds:
            most, line = KINDS[kind]
            for number in range(1, chance.randint(1, most) + 1):
                yield line.replace("{number}", str(number)).replace("{group}", self.group)

    def draining(self, situation: Situation) -> Iterator[str]:
        """Yield the lines after which everybody has been given everything, and is gone."""
        if not self.kinds:
            return
        for partition in situation.partitions:  # what one replica alone has acked is there to read
            yield f"wait equal {partition}"
        everything = " ".join(map(str, situation.partitions))
        yield f"reader {LATE_READER} {everything} isolation.level=read_committed"
        for name, line in situation.client_lines.items():
            if name not in situation.clients and not situation.was_a_sender(name):
                yield line
        if "copier" in self.kinds:
            yield f"wait whole {COPY}"
        yield "drain"

    def judgement(self) -> Iterator[str]:
        if "copier" in self.kinds:
            for verb in ("wait whole", "wait equal", "verify"):
                yield f"{verb} {COPY}"
        if self.kinds:
            yield "judge-clients"
