"""Every key of a node: Kafka's names, Kafka's defaults, one line each.

`BrokerConfig(node_id=1)` is a node with Kafka's defaults; `from_properties` reads what a
server.properties said. Both check every value, and the rules that bind several.
"""

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from replication.config import keys
from replication.config.keys import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Spec,
    flag,
    long,
    real,
    text,
    values,
    whole,
    words,
)
from replication.config.known import IGNORED, REFUSED, is_ignored, is_of_listener, nearest
from replication.config.listeners import AddressLimit, HostPort, Listener, Voter, check_listeners
from replication.config.security import (
    PROTOCOLS,
    Introduction,
    ListenerSecurity,
    SecurityKeys,
    check_sasl_listener,
    listener_security,
    protocol_of,
    uses_sasl,
)
from replication.config.without_effect import OF_BROKERS
from replication.errors import ConfigError
from storage.compression import GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@attrs.frozen(kw_only=True)
class BrokerConfig(SecurityKeys):
    # Who this node is.
    node_id: int = whole(-1, "The number of this node in its cluster.", synonyms={"broker.id": 1})
    process_roles: tuple[str, ...] = words(
        ["broker"], "What this node does.", choices=["broker", "controller"]
    )
    broker_rack: str | None = text(None, "The rack it stands in.")
    cluster_id: str | None = text(None, "The cluster it belongs to; none: whichever it finds.")

    # Where it listens, and whom it asks.
    listeners: tuple[Listener, ...] = values(
        "Where it listens.",
        parse=Listener.parse,
        expectation="NAME://host:port, separated by commas",
        kind=ConfigType.STRING,
    )
    advertised_listeners: tuple[Listener, ...] = values(
        "Where others find it.",
        parse=Listener.parse,
        expectation="NAME://host:port, separated by commas",
        kind=ConfigType.STRING,
    )
    listener_security_protocol_map: tuple[str, ...] = words(
        (),
        "Which protocol each listener speaks: NAME:PROTOCOL, separated by commas.",
        kind=ConfigType.STRING,
    )
    inter_broker_listener_name: str | None = text(None, "The listener that brokers use.")
    security_inter_broker_protocol: str = text(
        "PLAINTEXT",
        "The protocol that brokers use, where no inter.broker.listener.name is given.",
        choices=PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = words(
        ["CONTROLLER"], "The listeners that the controller uses.", kind=ConfigType.STRING
    )
    controller_quorum_voters: tuple[Voter, ...] = values(
        "The controller.", parse=Voter.parse, expectation="id@host:port, separated by commas"
    )
    controller_quorum_bootstrap_servers: tuple[HostPort, ...] = values(
        "Where to find the controller.",
        parse=HostPort.parse,
        expectation="host:port, separated by commas",
    )
    socket_request_max_bytes: int = whole(104_857_600, "The largest request.", at_least=1)
    connections_max_idle_ms: int = long(600_000, "When an idle connection is closed.")
    max_connections: int = whole(
        INT_MAX,
        "The most connections that are open at a time. Further ones wait to be accepted, but for"
        " those on an inter-broker listener of their own: for each of these the connection that"
        " has been quiet longest is closed.",
        at_least=0,
    )
    max_connections_per_ip: int = whole(
        INT_MAX,
        "The most connections that are open at a time from one IP address. Further ones are"
        " closed. 0 lets in only those that max.connections.per.ip.overrides names.",
        at_least=0,
    )
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = values(
        "The same for single addresses: 10.0.0.1:100,10.0.0.2:200.",
        parse=AddressLimit.parse,
        expectation="address:count, separated by commas",
        kind=ConfigType.STRING,
    )
    max_request_partition_size_limit: int = whole(
        2000, "Partitions in one answer that describes them.", at_least=1
    )
    request_timeout_ms: int = whole(30_000, "How long a request waits for its answer.", at_least=0)

    # Being a member of the cluster.
    broker_heartbeat_interval_ms: int = whole(2000, "How often it says it is alive.", at_least=1)
    broker_session_timeout_ms: int = whole(9000, "When a silent broker is fenced.", at_least=1)
    controlled_shutdown_enable: bool = flag(True, "Whether leaders move away before it stops.")
    initial_broker_registration_timeout_ms: int = whole(
        60_000, "How long a broker that starts looks for its controller.", at_least=1
    )

    # Topics.
    auto_create_topics_enable: bool = flag(True, "Whether asking for a topic creates it.")
    delete_topic_enable: bool = flag(True, "Whether topics may be deleted.")
    num_partitions: int = whole(1, "Partitions of a topic that names none.", at_least=1)
    default_replication_factor: int = whole(
        1, "Replicas of a topic that names none.", at_least=1, at_most=32767
    )
    min_insync_replicas: int = whole(
        1, "The ISR that acks=all demands.", at_least=1, topic="min.insync.replicas"
    )
    unclean_leader_election_enable: bool = flag(
        False,
        "Whether a replica outside the ISR may lead.",
        topic="unclean.leader.election.enable",
    )
    auto_leader_rebalance_enable: bool = flag(True, "Whether preferred replicas lead again.")
    leader_imbalance_check_interval_seconds: int = long(
        300, "How often it is looked whether they do.", at_least=1
    )
    leader_imbalance_per_broker_percentage: int = whole(
        10, "Of the partitions that a broker is preferred for, how many others may lead."
    )
    understudy_eligible_leader_replicas_version: int = whole(
        1,
        "Whether leaders are elected from the ELR too: Kafka's eligible.leader.replicas.version.",
        at_least=0,
        at_most=1,
    )
    understudy_transaction_version: int = whole(
        2,
        "How transactions end, for producers that know of it: Kafka's transaction.version.",
        at_least=0,
        at_most=2,
    )
    compression_type: str = text(
        "producer", "The codec kept on disk.", choices=_CODECS, topic="compression.type"
    )
    compression_gzip_level: int = whole(
        GZIP_LEVEL,
        "How hard gzip tries; -1: as zlib sees fit.",
        at_least=1,
        at_most=9,
        also=GZIP_LEVEL,
        topic="compression.gzip.level",
    )
    compression_lz4_level: int = whole(
        LZ4_LEVEL,
        "How hard lz4 tries; 9: not at all.",
        at_least=1,
        at_most=17,
        topic="compression.lz4.level",
    )
    compression_zstd_level: int = whole(
        ZSTD_LEVEL,
        "How hard zstd tries.",
        at_least=-131_072,
        at_most=22,
        topic="compression.zstd.level",
    )
    message_max_bytes: int = whole(
        1_048_588, "The largest batch.", at_least=0, topic="max.message.bytes"
    )

    # Following and being followed.
    num_replica_fetchers: int = whole(1, "Fetchers for each source broker.", at_least=1)
    replica_lag_time_max_ms: int = long(
        30_000, "How far behind in time a member of the ISR may fall.", at_least=1
    )
    replica_fetch_wait_max_ms: int = whole(500, "How long a fetch waits for bytes.", at_least=0)
    replica_fetch_min_bytes: int = whole(1, "The bytes a fetch waits for.", at_least=0)
    replica_fetch_max_bytes: int = whole(1_048_576, "Bytes from one partition.", at_least=0)
    replica_fetch_response_max_bytes: int = whole(10_485_760, "Bytes of a response.", at_least=0)
    replica_fetch_backoff_ms: int = whole(1000, "How long a failed fetch rests.", at_least=0)
    replica_socket_timeout_ms: int = whole(30_000, "How long a follower waits.", at_least=1)
    replica_socket_receive_buffer_bytes: int = whole(65_536, "SO_RCVBUF.", at_least=-1)
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000, "How often high watermarks are saved.", at_least=1
    )
    replica_selector_class: str | None = text(
        None, "Who says which replica a consumer reads from.", choices=_SELECTORS
    )
    fetch_purgatory_purge_interval_requests: int = whole(1000, "Done fetches kept at most.")
    producer_purgatory_purge_interval_requests: int = whole(1000, "Done produces kept at most.")
    fetch_max_bytes: int = whole(57_671_680, "Bytes of any fetch response.", at_least=1024)
    leader_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second for throttled followers.", at_least=0
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second that throttled replicas here fetch.", at_least=0
    )
    replication_quota_window_num: int = whole(11, "Samples that a rate is measured by.", at_least=1)
    replication_quota_window_size_seconds: int = whole(1, "How long a sample is.", at_least=1)
    max_incremental_fetch_session_cache_slots: int = whole(1000, "Fetch sessions.", at_least=0)
    understudy_incremental_fetch_session_eviction_ms: int = long(
        120_000,
        "How long a fetch session is idle, or old, before another may have its slot; fixed in Kafka.",
        at_least=0,
    )
    understudy_inter_broker_fetch_version: int = whole(
        17, "The Fetch version that followers speak.", at_least=4, at_most=17
    )

    # The log.
    log_dirs: tuple[str, ...] = words(
        ["/tmp/kafka-logs"],  # noqa: S108 Kafka's default
        "Where partitions are kept.",
        kind=ConfigType.STRING,
    )
    log_dir_failure_timeout_ms: int = long(
        30_000,
        "How long the controller may not hear of a lost directory before the broker stops.",
        at_least=1,
    )
    metadata_log_dir: str | None = text(
        None, "Where the metadata log is; none: the first of log.dirs."
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20 << 20, "Bytes of records after which the metadata log is cut.", at_least=1
    )
    num_recovery_threads_per_data_dir: int = whole(2, "Threads that recover logs.", at_least=1)
    log_segment_bytes: int = whole(
        1 << 30, "Bytes of a segment.", at_least=14, topic="segment.bytes"
    )
    log_roll_ms: int = long(
        7 * _DAY_MS,
        "How long a segment is appended to.",
        at_least=1,
        topic="segment.ms",
        synonyms={"log.roll.hours": _HOUR_MS},
    )
    log_roll_jitter_ms: int = long(
        0,
        "What is taken off that, at random.",
        at_least=0,
        topic="segment.jitter.ms",
        synonyms={"log.roll.jitter.hours": _HOUR_MS},
    )
    log_index_size_max_bytes: int = whole(
        10 << 20, "Bytes of an index.", at_least=4, topic="segment.index.bytes"
    )
    log_index_interval_bytes: int = whole(
        4096, "Bytes between two entries of an index.", at_least=0, topic="index.interval.bytes"
    )
    log_retention_ms: int = long(
        7 * _DAY_MS,
        "How long records are kept; -1: for ever.",
        at_least=-1,
        topic="retention.ms",
        synonyms={"log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
    )
    log_retention_bytes: int = long(
        -1, "How many bytes are kept; below 0: all.", topic="retention.bytes"
    )
    log_retention_check_interval_ms: int = long(
        300_000, "How often retention is looked at.", at_least=1
    )
    log_segment_delete_delay_ms: int = long(
        60_000,
        "How long a deleted file stays.",
        at_least=0,
        topic="file.delete.delay.ms",
    )
    log_initial_task_delay_ms: int = long(30_000, "When background work begins.", at_least=0)
    log_flush_interval_messages: int = long(
        LONG_MAX, "Records after which a log is synced.", at_least=1, topic="flush.messages"
    )
    log_flush_interval_ms: int = long(
        LONG_MAX, "Time after which a log is synced.", at_least=0, topic="flush.ms"
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX, "How often it is looked at which logs to sync.", at_least=1
    )
    log_flush_offset_checkpoint_interval_ms: int = whole(
        60_000, "How often recovery points are saved.", at_least=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = whole(
        60_000, "How often log start offsets are saved.", at_least=0
    )
    log_cleanup_policy: tuple[str, ...] = words(
        ["delete"],
        "What happens to old records.",
        choices=["delete", "compact"],
        may_be_empty=True,
        topic="cleanup.policy",
    )
    log_cleaner_delete_retention_ms: int = long(
        _DAY_MS, "How long tombstones are kept.", at_least=0, topic="delete.retention.ms"
    )
    log_cleaner_enable: bool = flag(True, "Whether compacted topics are compacted.")
    log_cleaner_threads: int = whole(1, "Logs compacted at a time.", at_least=0)
    log_cleaner_dedupe_buffer_size: int = long(
        128 << 20, "Memory for keys, of all cleaners together."
    )
    log_cleaner_io_buffer_size: int = whole(
        512 << 10, "Bytes read at a time, twice that, of all cleaners together.", at_least=0
    )
    log_cleaner_io_buffer_load_factor: float = real(
        0.9, "How full the memory for keys may be.", low=0.01, high=0.99
    )
    log_cleaner_backoff_ms: int = long(
        15_000, "How long a cleaner that finds nothing rests.", at_least=0
    )
    log_cleaner_io_max_bytes_per_second: float = real(
        sys.float_info.max,
        "What all cleaners together read and write.",
        low=1.0,
        high=sys.float_info.max,
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "How long a record is left alone.", at_least=0, topic="min.compaction.lag.ms"
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX, "How long it may be.", at_least=1, topic="max.compaction.lag.ms"
    )
    log_cleaner_min_cleanable_ratio: float = real(
        0.5, "How dirty a log must be.", low=0.0, high=1.0, topic="min.cleanable.dirty.ratio"
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        "Whose time a record carries.",
        choices=["CreateTime", "LogAppendTime"],
        topic="message.timestamp.type",
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How far back a record's time may lie.",
        at_least=0,
        topic="message.timestamp.before.max.ms",
    )
    log_message_timestamp_after_max_ms: int = long(
        _HOUR_MS,  # since Kafka 4 (KIP-1030)
        "How far ahead a record's time may lie.",
        at_least=0,
        topic="message.timestamp.after.max.ms",
    )
    log_preallocate: bool = flag(
        False, "Whether a new segment takes its place.", topic="preallocate"
    )
    producer_id_expiration_ms: int = whole(_DAY_MS, "When a producer is forgotten.", at_least=1)
    producer_id_expiration_check_interval_ms: int = whole(
        600_000, "How often that is looked at.", at_least=1
    )
    transaction_max_timeout_ms: int = whole(
        900_000, "The longest time that a producer may give its transactions.", at_least=1
    )
    transactional_id_expiration_ms: int = whole(
        7 * _DAY_MS, "When a transactional id that nobody uses is forgotten.", at_least=1
    )
    transaction_partition_verification_enable: bool = flag(
        True, "Whether a leader asks before it opens a transaction (KIP-890)."
    )
    add_partitions_to_txn_retry_backoff_ms: int = whole(
        20, "How long it waits to ask again, while the last one is being completed.", at_least=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = whole(
        100, "For how long it asks, before the producer has to.", at_least=0
    )
    transaction_state_log_num_partitions: int = whole(
        50, "Partitions of `__transaction_state`.", at_least=1
    )
    transaction_state_log_replication_factor: int = whole(
        3, "Their replicas.", at_least=1, at_most=32767, kind=ConfigType.SHORT
    )
    transaction_state_log_min_isr: int = whole(2, "Their min.insync.replicas.", at_least=1)
    transaction_state_log_segment_bytes: int = whole(
        100 << 20, "Their segment.bytes: small, for they are read as a whole.", at_least=1
    )
    transaction_state_log_load_buffer_size: int = whole(
        5 << 20, "How much of such a partition is read at a time.", at_least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = whole(
        10_000, "How often transactions that go on for too long are looked for.", at_least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = whole(
        _HOUR_MS, "How often transactional ids that nobody uses are.", at_least=1
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = whole(6000, "The shortest session of a member.")
    group_max_session_timeout_ms: int = whole(1_800_000, "The longest session of a member.")
    group_initial_rebalance_delay_ms: int = whole(
        3000, "How long an empty group waits for more members."
    )
    group_max_size: int = whole(2**31 - 1, "Members of a group at most.", at_least=1)
    offset_metadata_max_bytes: int = whole(4096, "Metadata of a committed offset at most.")
    offsets_commit_timeout_ms: int = whole(
        5000, "How long a commit waits for its followers.", at_least=1
    )
    offsets_load_buffer_size: int = whole(
        5 << 20, "Bytes read at a time by who takes groups over.", at_least=1
    )
    offsets_retention_minutes: int = whole(
        7 * 24 * 60, "How long offsets of a group that nobody is in are kept.", at_least=1
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often that is looked at.", at_least=1
    )
    offsets_topic_num_partitions: int = whole(
        50, "Partitions of __consumer_offsets, when it is made.", at_least=1
    )
    offsets_topic_replication_factor: int = whole(
        3,
        "Replicas of __consumer_offsets, when it is made.",
        at_least=1,
        at_most=32767,
        kind=ConfigType.SHORT,
    )
    offsets_topic_segment_bytes: int = whole(
        100 << 20, "Bytes of a segment of __consumer_offsets, when it is made.", at_least=1
    )
    offsets_topic_compression_codec: int = whole(
        0, "The codec of what is written there, by its number.", at_least=0, at_most=4
    )

    # Not keys: what was said of one listener, the keys that a file set, with their text, and which
    # of those mean nothing here.
    listener_keys: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    given: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    ignored_keys: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        for name, spec in BROKER_KEYS.items():
            spec.check(name, getattr(self, name.replace(".", "_")))
        _check_together(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """ConfigError, in one line, for the first key or value that is not one."""
        declared = BROKER_KEYS
        owners = {
            other: name for name, spec in declared.items() for other in (name, *spec.synonyms)
        }
        owners["log.dir"] = "log.dirs"
        listener_keys = {name: value for name, value in properties.items() if is_of_listener(name)}
        ignored = [
            name
            for name in properties
            if name not in owners and name not in listener_keys and _is_without_effect(name)
        ]
        for name in properties:
            if name in REFUSED:
                raise ConfigError(f"{name}: {REFUSED[name]}")
            if name not in owners and name not in listener_keys and name not in ignored:
                known = {*owners, *OF_BROKERS, *IGNORED}
                raise ConfigError(f"unknown key {name}{nearest(name, known)}")
        found: dict[str, Any] = {}
        for name, spec in declared.items():
            others = {"log.dir": 1} if name == "log.dirs" else spec.synonyms
            for other, unit in ((name, 1), *others.items()):
                if other in properties:
                    value = spec.value_of(other, properties[other])
                    found[name.replace(".", "_")] = (
                        value * unit if unit != 1 and value > 0 else value
                    )
                    break
        # Who only says how often to look means that to be how often to sync (KafkaConfig).
        if "log_flush_scheduler_interval_ms" in found:
            found.setdefault("log_flush_interval_ms", found["log_flush_scheduler_interval_ms"])
        for name, spec in OF_BROKERS.items():
            if name in properties:
                spec.value_of(name, properties[name])
        described = owners.keys() | OF_BROKERS.keys()
        config = cls(
            **found,
            listener_keys=listener_keys,
            given={name: text for name, text in properties.items() if name in described},
            ignored_keys=tuple(sorted(ignored)),
        )
        if config.node_id < 0:
            raise ConfigError("node.id is missing: every node of a cluster has its own number")
        return config

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(each for each in self.listeners if each.name in self._controller_names)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Where clients and other brokers come in; Kafka's default where none is given."""
        listeners = self.listeners or (Listener("PLAINTEXT", "", 9092),)
        return tuple(each for each in listeners if each.name not in self._controller_names)

    @property
    def advertised_broker_listeners(self) -> tuple[Listener, ...]:
        """What clients are told; a listener on every interface is advertised as localhost."""
        advertised = {each.name: each for each in self.advertised_listeners}
        return tuple(
            advertised.get(each.name, attrs.evolve(each, host=each.host or "localhost"))
            for each in self.broker_listeners
        )

    @cached_property
    def inter_broker_listener(self) -> str:
        """By its name, or the first that speaks `security.inter.broker.protocol`."""
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name.upper()
        protocol, mapped = self.security_inter_broker_protocol, self.listener_security_protocol_map
        for each in self.broker_listeners:
            if protocol_of(each.name, mapped) == protocol:
                return each.name
        return protocol

    def security_of(self, listener: str) -> ListenerSecurity:
        """What a listener of ours asks of those who connect, or another node's of that name."""
        return listener_security(
            listener,
            self,
            protocol=protocol_of(listener, self.listener_security_protocol_map),
            overrides=self.listener_keys,
        )

    @property
    def authorizer(self) -> tuple[frozenset[str], bool] | None:
        """The super users, and whether what no ACL speaks of is everybody's; None without one."""
        if not self.authorizer_class_name:
            return None
        users = frozenset(each.strip() for each in self.super_users.split(";") if each.strip())
        return users, self.allow_everyone_if_no_acl_found

    @property
    def inter_broker_introduction(self) -> Introduction:
        """How brokers connect to each other."""
        return self.security_of(self.inter_broker_listener).introduction(
            self.sasl_mechanism_inter_broker_protocol, key="sasl.mechanism.inter.broker.protocol"
        )

    @property
    def controller_introduction(self) -> Introduction:
        """How brokers connect to the controller."""
        return self.security_of(self.controller_listener_names[0].upper()).introduction(
            self.sasl_mechanism_controller_protocol, key="sasl.mechanism.controller.protocol"
        )

    @property
    def controller_address(self) -> HostPort:
        """Where the controller is; ConfigError where nothing says so."""
        if self.controller_quorum_voters:
            voter = self.controller_quorum_voters[0]
            return HostPort(voter.host, voter.port)
        if self.controller_quorum_bootstrap_servers:
            return self.controller_quorum_bootstrap_servers[0]
        if self.is_controller and self.controller_listeners:
            own = self.controller_listeners[0]
            return HostPort(own.host or "localhost", own.port)
        raise ConfigError(
            "controller.quorum.bootstrap.servers is missing: a broker must know its controller"
        )

    @property
    def metadata_directory(self) -> str:
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def _controller_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.controller_listener_names)


BROKER_KEYS: Mapping[str, Spec] = keys.specs(BrokerConfig)


def _is_without_effect(name: str) -> bool:
    return name in OF_BROKERS or is_ignored(name)


def _check_together(config: BrokerConfig) -> None:
    """The rules that bind several keys (KafkaConfig.validateValues)."""

    def expect(holds: bool, message: str) -> None:  # noqa: FBT001 an assertion's shape
        if not holds:
            raise ConfigError(message)

    expect(
        config.replica_fetch_wait_max_ms <= config.replica_lag_time_max_ms,
        f"replica.fetch.wait.max.ms={config.replica_fetch_wait_max_ms}: expected at most "
        f"replica.lag.time.max.ms ({config.replica_lag_time_max_ms}), or followers would fall "
        "out of the ISR while they wait",
    )
    expect(
        config.replica_fetch_wait_max_ms <= config.replica_socket_timeout_ms,
        f"replica.fetch.wait.max.ms={config.replica_fetch_wait_max_ms}: expected at most "
        f"replica.socket.timeout.ms ({config.replica_socket_timeout_ms})",
    )
    expect(
        config.broker_heartbeat_interval_ms < config.broker_session_timeout_ms,
        f"broker.heartbeat.interval.ms={config.broker_heartbeat_interval_ms}: expected less than "
        f"broker.session.timeout.ms ({config.broker_session_timeout_ms})",
    )
    expect(
        bool(config.process_roles), "process.roles is empty: expected broker, controller or both"
    )
    expect(bool(config.log_dirs), "log.dirs is empty: expected at least one directory")
    expect(
        len(config.controller_quorum_voters) <= 1,
        "controller.quorum.voters names several controllers: expected one, there is no quorum yet",
    )
    check_listeners(config.listeners, advertised=config.advertised_listeners)
    for each in config.listeners:
        if uses_sasl(protocol_of(each.name, config.listener_security_protocol_map)):
            check_sasl_listener(config.security_of(each.name))
    names = [each.name for each in config.broker_listeners]
    found = config.inter_broker_listener in names
    # The default is nobody's mistake: a broker on its own may listen under any name.
    if config.is_broker and not found and (config.inter_broker_listener_name or not names):
        raise ConfigError(
            f"inter.broker.listener.name={config.inter_broker_listener}: expected one of the "
            f"listeners ({', '.join(names) or 'none'})"
        )
