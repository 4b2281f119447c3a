"""Who there is in a run of the swarm, and with which settings: its first two lines.

    cluster brokers=3 b1.broker.rack=r1 broker.session.timeout.ms=3000 ...
    topic t replicas=b2,b1,b3/b1,b3,b2 cleanup.policy=compact ...

A timeout of seconds makes a run of minutes, and sizes as in production are never reached by
the few records of a run: so most are drawn small, and each now and then as Kafka has it.

Rule: each setting has a stream of chance of its own. One that is added, or has another
choice, leaves the others what they are.
"""

import random
from collections.abc import Callable, Mapping, Sequence

import attrs

Chance = Callable[[str], random.Random]

AS_IN_KAFKA = None  # Not named: the default

SETTINGS: Mapping[str, Sequence[object]] = {
    "broker.session.timeout.ms": (3000, 3000, AS_IN_KAFKA),
    "broker.heartbeat.interval.ms": (1000, 2000),
    "replica.lag.time.max.ms": (500, 1000, 1000, 5000, AS_IN_KAFKA),
    "replica.fetch.backoff.ms": (50, 200, AS_IN_KAFKA),
    "replica.fetch.wait.max.ms": (100,) + (AS_IN_KAFKA,) * 5,
    "replica.fetch.max.bytes": (100, AS_IN_KAFKA),
    "replica.fetch.response.max.bytes": (300, AS_IN_KAFKA, AS_IN_KAFKA),
    "replica.high.watermark.checkpoint.interval.ms": (100, 1000, AS_IN_KAFKA),
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
}
BROKERS = (1, 2, 3, 3, 3, 3, 3, 4, 5)
COPIES = (1, 2, 3, 3, 3, 3, 4, 5)
PARTITIONS = (1, 1, 1, 2, 3)
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SIDES = ("leader", "follower")
RACKS, THROTTLED = 0.2, 0.1
RATES = (300, 1000)


@attrs.frozen(kw_only=True)
class ClusterPlan:
    """The brokers, how many of them hold each partition, and what all of them are told."""

    brokers: int
    copies: int
    partitions: int
    min_insync_replicas: int
    racks: tuple[str, ...]
    """Of each broker; none where no reader cares."""
    throttled: bool
    settings: Mapping[str, object]

    def cluster(self, more: Mapping[str, object]) -> str:
        racks = {f"b{number}.broker.rack": rack for number, rack in enumerate(self.racks, 1)}
        return f"cluster brokers={self.brokers} {options({**racks, **self.settings, **more})}"

    def topic(
        self, name: str, assigned: Sequence[Sequence[str]], more: Mapping[str, object]
    ) -> str:
        listed = "/".join(map(",".join, assigned))
        return f"topic {name} {options({'replicas': listed, **self._throttles(), **more})}"

    def _throttles(self) -> dict[str, str]:
        sides = SIDES if self.throttled else ()
        return {f"{side}.replication.throttled.replicas": "*" for side in sides}


def cast(chance: Chance) -> ClusterPlan:
    topology = chance("topology")
    brokers = topology.choice(BROKERS)
    copies = min(topology.choice(COPIES), brokers)
    racks = topology.random() < RACKS
    throttled, rate = topology.random() < THROTTLED, topology.choice(RATES)
    minimum = topology.choice((1, 2, 2, 3))
    settings = {key: chance(f"setting {key}").choice(SETTINGS[key]) for key in SETTINGS}
    settings = {key: value for key, value in settings.items() if value is not AS_IN_KAFKA}
    settings["min.insync.replicas"] = min(minimum, copies)
    if racks:
        settings["replica.selector.class"] = RACK_AWARE
    if throttled:
        settings |= {f"{side}.replication.throttled.rate": rate for side in SIDES}
    return ClusterPlan(
        brokers=brokers,
        copies=copies,
        partitions=topology.choice(PARTITIONS),
        min_insync_replicas=min(minimum, copies),
        racks=tuple(f"r{number % 2 + 1}" for number in range(brokers)) if racks else (),
        throttled=throttled,
        settings=settings,
    )


def options(values: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
