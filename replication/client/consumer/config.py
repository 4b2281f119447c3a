"""The configuration of a consumer, with Kafka's keys (ConsumerConfig).

A consumer without `group.id` reads the partitions it is assigned and commits nothing; together
with `enable.auto.commit=true` the configuration is refused, as Kafka refuses it.
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.client.config import ClientConfig
from replication.client.consumer.position import OffsetResetStrategy, parse_strategy
from replication.config.keys import ConfigType, Spec, flag, key, text, whole, words
from replication.errors import ConfigError
from storage.attributes import frozen

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
# The names in Kafka's configuration, so that a stock consumer.properties loads.
_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

CLASSIC, CONSUMER = "classic", "consumer"
# The keys that are refused with each protocol (ConsumerConfig's *_PROTOCOL_UNSUPPORTED_CONFIGS).
_OF_ONE_PROTOCOL = {
    CLASSIC: ("group.remote.assignor",),
    CONSUMER: ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"),
}


def _refuse_other_protocol(given: dict[str, Any]) -> None:
    """Raise ConfigError for keys that the protocol of the group does not know, as Kafka does."""
    protocol = str(given.get("group.protocol") or CLASSIC).lower()
    if "group.protocol" in given:
        given["group.protocol"] = protocol
    wrong = [
        name
        for name in _OF_ONE_PROTOCOL.get(protocol, ())
        if given.get(name) is not None and str(given[name]).strip()
    ]
    if wrong:
        raise ConfigError(f"{', '.join(wrong)} cannot be set when group.protocol={protocol}")


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
    doc="Where the consumer begins when it has no committed offset, or when the offset no longer"
    " exists: at the beginning of the log (`earliest`), at its end (`latest`), or the given time ago"
    " (`by_duration:` and a duration such as P1DT6H). `none` raises an error instead.",
)


@frozen(kw_only=True)
class ConsumerConfig(ClientConfig):
    """The keys of a consumer, with Kafka's defaults."""

    # Fetching.
    fetch_min_bytes: int = whole(
        1,
        "The number of bytes for which a broker holds a fetch, for at most `fetch.max.wait.ms`."
        " The default, 1, returns new records at once; a higher value means fewer and larger"
        " responses.",
        at_least=0,
    )
    fetch_max_wait_ms: int = whole(
        500,
        "The longest time in milliseconds that a broker holds a fetch while it has less than"
        " `fetch.min.bytes` to return.",
        at_least=0,
    )
    fetch_max_bytes: int = whole(
        50 << 20,
        "The number of bytes that the consumer asks for in one fetch response. It is not a hard"
        " limit: a larger first batch is returned whole.",
        at_least=0,
    )
    max_partition_fetch_bytes: int = whole(
        1 << 20,
        "The number of bytes that the consumer asks for from one partition in one fetch. It is"
        " not a hard limit: a larger first batch is returned whole.",
        at_least=0,
    )
    max_poll_records: int = whole(
        500,
        "The largest number of records that one poll returns. Lower it when the records of one"
        " poll take longer to process than `max.poll.interval.ms`.",
        at_least=1,
    )
    check_crcs: bool = flag(
        True,
        "Whether the consumer verifies the checksum of each batch it reads. Setting it to false"
        " saves processor time and leaves corruption unnoticed.",
    )
    isolation_level: str = text(
        "read_uncommitted",
        "Which records of transactions the consumer returns: `read_committed` returns those of"
        " committed transactions only, `read_uncommitted` also those of open and aborted ones.",
        choices=["read_uncommitted", "read_committed"],
    )
    auto_offset_reset: str = key(_AUTO_OFFSET_RESET)
    allow_auto_create_topics: bool = flag(
        True,
        "Whether brokers may create a topic that does not exist when the consumer asks for it."
        " Brokers must allow it too, with `auto.create.topics.enable`.",
    )
    exclude_internal_topics: bool = flag(
        True,
        "Whether a subscription by pattern leaves out Kafka's internal topics, such as"
        " `__consumer_offsets`.",
    )

    # The group.
    group_id: str | None = text(
        None,
        "The consumer group that the consumer belongs to. Without it, the consumer cannot"
        " subscribe or commit and reads only the partitions it is assigned by hand.",
    )
    group_protocol: str = text(
        CLASSIC,
        "The protocol by which the consumer takes part in its group: `classic`, in which a member"
        " of the group assigns partitions, or `consumer`, in which the coordinator does, one"
        " partition after the other (KIP-848). All consumers of a group may change to `consumer`"
        " one by one.",
        choices=[CLASSIC, CONSUMER],
    )
    group_remote_assignor: str | None = text(
        None,
        "The name of the assignor that the coordinator uses, such as `uniform` or `range`. Without"
        " it, the coordinator uses the first of its `group.consumer.assignors`. It is allowed only"
        " with `group.protocol=consumer`.",
    )
    group_instance_id: str | None = text(
        None,
        "A name that makes the consumer a static member of its group (KIP-345): it keeps its"
        " partitions when it restarts within the session timeout. Each consumer of a group needs"
        " a different name.",
    )
    session_timeout_ms: int = whole(
        45_000,
        "The time in milliseconds without a heartbeat after which the coordinator removes the"
        " consumer from its group. A lower value finds failures sooner; a higher one tolerates"
        " longer pauses.",
        at_least=0,
    )
    heartbeat_interval_ms: int = whole(
        3_000,
        "The time in milliseconds between two heartbeats that the consumer sends to its"
        " coordinator. It must be less than `session.timeout.ms`; a third of that is usual.",
        at_least=0,
    )
    max_poll_interval_ms: int = whole(
        300_000,
        "The longest time in milliseconds between two polls. A consumer that exceeds it leaves"
        " its group, and others take over its partitions. Raise it when processing takes long.",
        at_least=1,
    )
    partition_assignment_strategy: tuple[str, ...] = words(
        ["range", "cooperative-sticky"],
        "The strategies by which partitions are assigned to the members of the group, the"
        " preferred one first. The group uses one that all its members name.",
        choices=ASSIGNORS,
    )
    enable_auto_commit: bool = flag(
        True,
        "Whether the consumer commits its positions by itself, every `auto.commit.interval.ms`."
        " Set it to false to commit only what has been processed. Without a `group.id` it is"
        " false.",
    )
    auto_commit_interval_ms: int = whole(
        5_000,
        "The time in milliseconds between two automatic commits. It has an effect only with"
        " `enable.auto.commit`.",
        at_least=0,
    )

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
        _refuse_other_protocol(known)
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
        """Return the configuration with a `client.id`, by which brokers tell members apart."""
        if self.client_id:
            return self
        name = "consumer" if self.group_id is None else f"consumer-{self.group_id}"
        return attrs.evolve(self, client_id=name)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the coordinator assigns the partitions (KIP-848)."""
        return self.group_protocol == CONSUMER

    @property
    def reset_strategy(self) -> OffsetResetStrategy | None:
        """The strategy of `auto.offset.reset`; None if an offset that does not exist is an error."""
        return parse_strategy(self.auto_offset_reset)

    @property
    def read_committed(self) -> bool:
        """Whether the consumer skips records of aborted and open transactions."""
        return self.isolation_level == "read_committed"
