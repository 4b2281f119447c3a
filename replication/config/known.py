"""Kafka's keys that have no effect in this release, and suggestions for misspelled keys.

A file that sets one of the keys in IGNORED loads, and `BrokerConfig.ignored_keys` names it. The keys
declared here are also checked, kept and described. A key without which a cluster would be less safe
than its file says is refused instead.
"""

import difflib
from collections.abc import Iterable, Mapping

from replication.config.keys import INT_MAX, Spec, flag, long, specs, whole, words
from storage.attributes import frozen
from storage.config import LONG_MAX

IGNORED = frozenset(  # a block of text, because one key a line fills two screens
    """
    advertised.host.name advertised.port alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    auto.include.jmx.reporter broker.heartbeat.max.wait.ms broker.id.generation.enable
    client.quota.callback.class config.providers control.plane.listener.name
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quota.window.num controller.quota.window.size.seconds cordoned.log.dirs
    controller.socket.timeout.ms
    create.topic.policy.class.name default.api.timeout.ms
    delete.records.purgatory.purge.interval.requests
    early.start.listeners follower.fetch.last.tiered.offset.enable
    follower.replication.throttled.replicas
    inter.broker.protocol.version kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.replication.throttled.replicas
    log.message.downconversion.enable log.message.format.version
    log.message.timestamp.difference.max.ms metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.min.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    migration.metadata.min.batch.size num.replica.alter.log.dirs.threads
    offsets.commit.required.acks
    password.encoder.secret principal.builder.class
    queued.max.request.bytes queued.max.requests quota.window.num quota.window.size.seconds
    reserved.broker.max.id server.max.startup.time.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
    telemetry.max.bytes
    transaction.two.phase.commit.enable unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable
    zookeeper.clientCnxnSocket zookeeper.connect zookeeper.connection.timeout.ms
    zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
    zookeeper.session.timeout.ms zookeeper.set.acl
    """.split()  # noqa: SIM905
)
IGNORED_PREFIXES = (
    *("ssl.", "sasl.", "zookeeper.ssl.", "metrics."),
    # The keys of parts of Kafka that do not exist here.
    *("share.", "group.share.", "group.streams.", "group.consumer.", "group.coordinator."),
    *("remote.", "delegation.token.", "errors.deadletterqueue."),
)

# The broker keys that can be set while a broker runs (DynamicBrokerConfig.AllDynamicConfigs),
# besides the keys that a topic can override and the keys without effect.
DYNAMIC = frozenset(
    """
    follower.replication.throttled.rate group.consumer.assignment.interval.ms
    leader.replication.throttled.rate
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor
    log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.threads
    max.connections max.connections.per.ip max.connections.per.ip.overrides
    num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms
    transaction.partition.verification.enable
    """.split()  # noqa: SIM905
)

OF_LISTENER = "listener.name."

_ALL_CIPHERS = "not supported: connections use the cipher suites that OpenSSL considers safe"

REFUSED = {
    "ssl.cipher.suites": _ALL_CIPHERS,
}


def is_of_listener(name: str) -> bool:
    """Return whether the key has the prefix of a listener."""
    return name.startswith(OF_LISTENER)


def of_listener(name: str) -> tuple[str, str]:
    """Return the listener in the key's prefix, in lower case, and the key without the prefix."""
    listener, _, key = name.removeprefix(OF_LISTENER).partition(".")
    return listener, key


def is_ignored(name: str) -> bool:
    return name in IGNORED or name.startswith(IGNORED_PREFIXES)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean x?`, or an empty text if no known key resembles `name`."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


@frozen(kw_only=True)
class _OfBrokers:
    """The keys of brokers that may be set while one runs."""

    background_threads: int = whole(
        10,
        "The number of threads for background work. It is accepted without effect: background"
        " work runs in asynchronous tasks.",
        at_least=1,
    )
    log_local_retention_bytes: int = long(
        -2,
        "The size in bytes of the part of a partition that stays on the broker with tiered"
        " storage. It is accepted without effect: there is no tiered storage here.",
        at_least=-2,
    )
    log_local_retention_ms: int = long(
        -2,
        "The time in milliseconds for which records stay on the broker with tiered storage. It"
        " is accepted without effect: there is no tiered storage here.",
        at_least=-2,
    )
    log_remote_copy_lag_bytes: int = long(
        -1,
        "How many bytes of newer records a segment has when tiered storage copies it. It is"
        " accepted without effect: there is no tiered storage here.",
        at_least=-1,
    )
    log_remote_copy_lag_ms: int = long(
        0,
        "The age in milliseconds from which tiered storage copies a segment. It is accepted"
        " without effect: there is no tiered storage here.",
        at_least=-1,
    )
    max_connection_creation_rate: int = whole(
        INT_MAX,
        "The number of connections per second that a broker accepts. It is accepted without"
        " effect: `max.connections` limits connections here.",
        at_least=0,
    )
    metric_reporters: tuple[str, ...] = words(
        ["org.apache.kafka.common.metrics.JmxReporter"],
        "The Java classes that report metrics. It is accepted without effect: docs/metrics.md"
        " describes how metrics are read here.",
    )
    num_io_threads: int = whole(
        8,
        "The number of threads that handle requests. It is accepted without effect: requests"
        " are handled by asynchronous tasks.",
        at_least=1,
    )
    num_network_threads: int = whole(
        3,
        "The number of threads that read requests and send responses. It is accepted without"
        " effect: connections are served by asynchronous tasks.",
        at_least=1,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        "The number of bytes per second with which replicas move between log directories. It is"
        " accepted without effect: moves are not throttled here.",
        at_least=0,
    )


@frozen(kw_only=True)
class _OfTopics:
    remote_storage_enable: bool = flag(
        False,
        "Whether the topic uses tiered storage. There is no tiered storage here, so only false"
        " is accepted.",
        choices=[False],
    )
    remote_log_copy_disable: bool = flag(
        False,
        "Whether tiered storage stops copying new segments of the topic. It is accepted without"
        " effect: there is no tiered storage here.",
    )
    remote_copy_lag_ms: int = long(
        0,
        "The age in milliseconds from which tiered storage copies a segment. It is accepted"
        " without effect: there is no tiered storage here.",
        at_least=-1,
    )
    remote_copy_lag_bytes: int = long(
        -1,
        "How many bytes of newer records a segment has when tiered storage copies it. It is"
        " accepted without effect: there is no tiered storage here.",
        at_least=-1,
    )
    errors_deadletterqueue_group_enable: bool = flag(
        False,
        "Whether share groups may write records to the topic that they could not deliver. It is"
        " accepted without effect: there are no share groups here.",
    )
    remote_log_delete_on_disable: bool = flag(
        False,
        "Whether the topic's data in tiered storage is deleted when tiered storage is switched"
        " off. It is accepted without effect: there is no tiered storage here.",
    )
    local_retention_ms: int = long(
        -2,
        "The time in milliseconds for which records stay on the broker with tiered storage. It"
        " is accepted without effect: there is no tiered storage here.",
        at_least=-2,
    )
    local_retention_bytes: int = long(
        -2,
        "The size in bytes of the part of a partition that stays on the broker with tiered"
        " storage. It is accepted without effect: there is no tiered storage here.",
        at_least=-2,
    )


OF_BROKERS: Mapping[str, Spec] = specs(_OfBrokers)
OF_TOPICS: Mapping[str, Spec] = specs(_OfTopics)
