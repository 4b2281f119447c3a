"""Kafka's keys that have no effect in this release, and suggestions for misspelled keys.

A file that sets one of these keys loads, and `BrokerConfig.ignored_keys` names it. A key without
which a cluster would be less safe than its file says is refused instead.
"""

import difflib
from collections.abc import Iterable

IGNORED = frozenset(  # a block of text, because one key a line fills two screens
    """
    advertised.host.name advertised.port alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    auto.include.jmx.reporter broker.heartbeat.max.wait.ms broker.id.generation.enable
    client.quota.callback.class control.plane.listener.name
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quota.window.num
    controller.quota.window.size.seconds controller.socket.timeout.ms
    create.topic.policy.class.name default.api.timeout.ms
    delete.records.purgatory.purge.interval.requests
    early.start.listeners
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
    *("remote.", "delegation.token."),
)

# The broker keys that can be set while a broker runs (DynamicBrokerConfig.AllDynamicConfigs),
# besides the keys that a topic can override and the keys without effect.
DYNAMIC = frozenset(
    """
    follower.replication.throttled.rate leader.replication.throttled.rate
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
