"""What a consumer is told, by Kafka's names (ConsumerConfig).

A consumer without `group.id` reads what is assigned to it and commits nothing; asked to
commit by itself all the same, it is refused, as Kafka refuses it.
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.client.config import ClientConfig
from replication.client.consumer.offset_reset import parse_strategy
from replication.client.consumer.position import OffsetResetStrategy
from replication.config.keys import ConfigType, Spec, flag, key, text, whole, words
from replication.errors import ConfigError

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
# As Kafka's configuration has them, so that a stock consumer.properties loads.
_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _is_strategy(given: object) -> bool:
    try:
        parse_strategy(str(given))
    except ValueError:
        return False
    return True


_AUTO_OFFSET_RESET = Spec(
    type=ConfigType.STRING,
    default="latest",
    parse=str,
    render=str,
    allows=_is_strategy,
    expectation="earliest, latest, none or by_duration:P1DT6H",
    doc="Where to begin where nothing is committed, or what was is gone.",
)


@attrs.frozen(kw_only=True)
class ConsumerConfig(ClientConfig):
    """The keys of a consumer, at Kafka's defaults."""

    # Fetching.
    fetch_min_bytes: int = whole(1, "Bytes for which a broker waits.", at_least=0)
    fetch_max_wait_ms: int = whole(500, "How long it waits for them.", at_least=0)
    fetch_max_bytes: int = whole(50 << 20, "Bytes of one answer.", at_least=0)
    max_partition_fetch_bytes: int = whole(1 << 20, "Of one partition in it.", at_least=0)
    max_poll_records: int = whole(500, "Records that one poll hands over.", at_least=1)
    check_crcs: bool = flag(True, "Whether checksums are looked at.")
    isolation_level: str = text(
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        choices=["read_uncommitted", "read_committed"],
    )
    auto_offset_reset: str = key(_AUTO_OFFSET_RESET)
    allow_auto_create_topics: bool = flag(
        True, "Whether asking about a topic may make it, where brokers do that."
    )
    exclude_internal_topics: bool = flag(True, "Whether a pattern leaves Kafka's own topics out.")

    # The group.
    group_id: str | None = text(None, "The group it reads in; none: by itself.")
    group_instance_id: str | None = text(
        None, "A name that outlives restarts: a static member (KIP-345)."
    )
    session_timeout_ms: int = whole(
        45_000, "How long a member may be silent until it is taken for dead.", at_least=0
    )
    heartbeat_interval_ms: int = whole(3_000, "How often it says that it lives.", at_least=0)
    max_poll_interval_ms: int = whole(
        300_000, "How long it may work between polls until it leaves the group.", at_least=1
    )
    partition_assignment_strategy: tuple[str, ...] = words(
        ["range", "cooperative-sticky"],
        "How a group's leader hands out partitions, the preferred one first.",
        choices=ASSIGNORS,
    )
    enable_auto_commit: bool = flag(True, "Whether positions are committed by themselves.")
    auto_commit_interval_ms: int = whole(5_000, "How often that is.", at_least=0)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.group_id == "":
            raise ConfigError("group.id is empty: name the group, or leave the key out")
        if self.group_instance_id == "":
            raise ConfigError("group.instance.id is empty: name the member, or leave the key out")
        if self.heartbeat_interval_ms >= self.session_timeout_ms and self.group_id is not None:
            raise ConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms}: expected less than"
                f" session.timeout.ms, {self.session_timeout_ms}"
            )

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        known = dict(given)
        strategies = known.get("partition.assignment.strategy")
        if strategies is not None:
            named = strategies.split(",") if isinstance(strategies, str) else strategies
            known["partition.assignment.strategy"] = [
                _CLASSES.get(each.strip(), each) for each in named
            ]
        if known.get("group.id") is None:
            if str(known.get("enable.auto.commit", False)).lower() == "true":
                raise ConfigError("enable.auto.commit=true needs a group.id to commit for")
            known["enable.auto.commit"] = False
        return super()._read(known)

    def named(self) -> Self:
        """With a `client.id`, where it was given none: brokers tell members apart by it."""
        if self.client_id:
            return self
        name = "consumer" if self.group_id is None else f"consumer-{self.group_id}"
        return attrs.evolve(self, client_id=name)

    @property
    def reset_strategy(self) -> OffsetResetStrategy | None:
        """`auto.offset.reset`, as a value; None where an offset that is not there is an error."""
        return parse_strategy(self.auto_offset_reset)

    @property
    def read_committed(self) -> bool:
        """Whether aborted and open transactions are left out."""
        return self.isolation_level == "read_committed"
