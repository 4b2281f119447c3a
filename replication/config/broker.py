"""Every configuration key of a node, with Kafka's names and defaults.

`BrokerConfig(node_id=1)` is a node with Kafka's defaults; `from_properties` reads a
server.properties file. Both check every value, and the rules that involve several keys.

The file is long because it is one table: a key, its default, and the text that DescribeConfigs
and docs/configuration-keys.md show of it.
"""

import sys
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from os.path import normpath
from typing import Any, Self

import attrs

from replication.config import keys
from replication.config.keys import (
    INT_MAX,
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
from replication.config.known import (
    IGNORED,
    OF_BROKERS,
    REFUSED,
    is_ignored,
    is_of_listener,
    nearest,
)
from replication.config.listeners import (
    AddressLimit,
    HostPort,
    ListenerConfig,
    Voter,
    check_listeners,
    is_routable,
)
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
from replication.errors import ConfigError
from storage.attributes import frozen
from storage.batch.compression import GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL
from storage.config import DAY_MS, LARGEST_JAVA_ARRAY, LONG_MAX

MINUTE_MS = 60_000
_HOUR_MS = 60 * MINUTE_MS
_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@frozen(kw_only=True)
class BrokerConfig(SecurityKeys):
    # The node's identity.
    node_id: int = whole(
        -1,
        "The id of this node, unique among the nodes of the cluster. A configuration file must"
        " set it; never change it once the node has stored data.",
        synonyms={"broker.id": 1},
    )
    process_roles: tuple[str, ...] = words(
        ["broker"],
        "The roles of this node: `broker` stores and serves partitions, `controller` keeps the"
        " cluster's metadata. Set both to run the two in one process, where there is one controller.",
        choices=["broker", "controller"],
    )
    broker_rack: str | None = text(
        None,
        "The rack, or availability zone, of this broker. Replicas of a partition are spread"
        " over racks, and a consumer with the same `client.rack` may read from this broker."
        " Without it the broker has no rack.",
    )
    cluster_id: str | None = text(
        None,
        "The id of the cluster that this node belongs to. Without it, a new cluster gets a"
        " random id and a node keeps the id it finds. Set it to keep a node from joining the"
        " wrong cluster.",
    )

    # Listeners, connections and requests.
    listeners: tuple[ListenerConfig, ...] = values(
        "The addresses on which this node accepts connections. An empty host means every"
        " network interface. Without it, a broker listens on `PLAINTEXT://:9092`.",
        parse=ListenerConfig.parse,
        expectation="NAME://host:port, separated by commas",
    )
    advertised_listeners: tuple[ListenerConfig, ...] = values(
        "The addresses that clients and other brokers use to connect to this broker. Without it"
        " they are the addresses in `listeners`; set it when those cannot be reached from"
        " outside, for example behind a proxy or in a container.",
        parse=ListenerConfig.parse,
        expectation="NAME://host:port, separated by commas",
    )
    listener_security_protocol_map: tuple[str, ...] = words(
        (),
        "The security protocol of each listener, as NAME:PROTOCOL pairs separated by commas. A"
        " listener that is not in the map has the protocol of the same name, or PLAINTEXT.",
        kind=ConfigType.STRING,
    )
    inter_broker_listener_name: str | None = text(
        None,
        "The name of the listener that brokers use among themselves. Without it, brokers use"
        " the first listener with the protocol of `security.inter.broker.protocol`.",
    )
    security_inter_broker_protocol: str = text(
        "PLAINTEXT",
        "The security protocol that brokers use among themselves. It has no effect when"
        " `inter.broker.listener.name` is set.",
        choices=PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = words(
        ["CONTROLLER"],
        "The names of the listeners that the controller uses, separated by commas. Brokers"
        " connect to the controller with the security protocol of the first one.",
        allows=all,
        expectation="names of listeners, separated by commas",
    )
    controller_quorum_voters: tuple[Voter, ...] = values(
        "The node id and address of every controller that votes. A controller must be one of them,"
        " and a node that is no controller must not. A broker needs this key or"
        " `controller.quorum.bootstrap.servers`.",
        parse=Voter.parse,
        expectation="id@host:port, separated by commas",
    )
    controller_quorum_bootstrap_servers: tuple[HostPort, ...] = values(
        "The addresses at which a node looks for the active controller. They are used only when"
        " `controller.quorum.voters` is not set. A controller with this key alone starts only in a"
        " directory that is formatted (`understudy storage format`): its log names the voters.",
        parse=HostPort.parse,
        expectation="host:port, separated by commas",
    )
    controller_quorum_election_timeout_ms: int = whole(
        1000,
        "The time in milliseconds that a controller waits for the votes of an election before it"
        " begins another one.",
        at_least=0,
    )
    controller_quorum_election_backoff_max_ms: int = whole(
        1000,
        "The longest time in milliseconds that a controller waits between two elections. The wait"
        " is random and doubles with each lost election, so that candidates do not block each"
        " other.",
        at_least=0,
    )
    controller_quorum_fetch_timeout_ms: int = whole(
        2000,
        "The time in milliseconds without a successful fetch from the active controller after"
        " which a voter begins an election. An active controller from which no majority fetches"
        " for this time resigns.",
        at_least=0,
    )
    controller_quorum_request_timeout_ms: int = whole(
        2000,
        "The time in milliseconds that a node waits for the answer of a controller in the quorum"
        " before it asks again or asks another one.",
        at_least=0,
    )
    controller_quorum_retry_backoff_ms: int = whole(
        20,
        "The time in milliseconds that a node waits before it repeats a request to the quorum"
        " that has failed.",
        at_least=0,
    )
    controller_quorum_append_linger_ms: int = whole(
        25,
        "The time in milliseconds that Kafka's active controller waits for more records before it"
        " writes them to disk. It is accepted without effect: records are written at once, and"
        " share a sync when they come together.",
        at_least=0,
    )
    controller_quorum_auto_join_enable: bool = flag(
        False,
        "Whether a controller that is not a voter adds itself to the voters (KIP-853). Only a node"
        " with the role `controller` may set it to true.",
    )
    controller_quorum_fetch_max_bytes: int = whole(
        1_048_576,
        "The number of bytes of the metadata log that a node fetches in one request. It is not a"
        " hard limit: a larger first batch is sent whole.",
        at_least=1,
    )
    controller_quorum_fetch_snapshot_max_bytes: int = whole(
        1_048_576,
        "The number of bytes of a metadata snapshot that a node fetches in one request.",
        at_least=1,
    )
    socket_request_max_bytes: int = whole(
        104_857_600,
        "The largest request that a node accepts, in bytes. The connection of a client that"
        " sends a larger one is closed, which protects the node's memory.",
        at_least=1,
    )
    connections_max_idle_ms: int = long(
        600_000,
        "The time in milliseconds after which a connection without any traffic is closed. A"
        " negative value means no limit.",
    )
    max_connections: int = whole(
        INT_MAX,
        "The largest number of connections that the broker keeps open at a time. At the limit,"
        " new connections wait to be accepted; on a listener that only brokers use, the longest"
        " idle connection is closed instead. The default means no limit.",
        at_least=0,
    )
    max_connections_per_ip: int = whole(
        INT_MAX,
        "The largest number of connections that the broker keeps open at a time for one IP"
        " address; further ones are closed. The default means no limit, and 0 accepts only the"
        " addresses in `max.connections.per.ip.overrides`.",
        at_least=0,
    )
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = values(
        "The connection limits of single IP addresses, which replace `max.connections.per.ip`"
        " for them. Example: `10.0.0.1:100,10.0.0.2:200`.",
        parse=AddressLimit.parse,
        expectation="address:count, separated by commas",
        kind=ConfigType.STRING,
    )
    max_request_partition_size_limit: int = whole(
        2000,
        "The largest number of partitions in one DescribeTopicPartitions response. A client"
        " asks for the rest with a cursor.",
        at_least=1,
    )
    request_timeout_ms: int = whole(
        30_000,
        "The time in milliseconds that this node waits for the response to a request it sends"
        " to another node. When it is exceeded, the request fails and may be sent again.",
        at_least=0,
    )

    # Membership of the cluster.
    broker_heartbeat_interval_ms: int = whole(
        2000,
        "The time in milliseconds between two heartbeats that a broker sends to the controller."
        " It must be less than `broker.session.timeout.ms`.",
        at_least=1,
    )
    broker_session_timeout_ms: int = whole(
        9000,
        "The time in milliseconds without a heartbeat after which the controller fences a"
        " broker and moves its leaderships to other brokers. A lower value finds failures"
        " sooner; a higher one tolerates longer pauses.",
        at_least=1,
    )
    controlled_shutdown_enable: bool = flag(
        True,
        "Whether a broker that shuts down first hands over the partitions it leads. When false,"
        " they have no leader until the controller notices that the broker is gone.",
    )
    initial_broker_registration_timeout_ms: int = whole(
        60_000,
        "The time in milliseconds that a starting broker tries to register with the controller."
        " When it is exceeded, the broker stops.",
        at_least=1,
    )

    # Topics.
    auto_create_topics_enable: bool = flag(
        True,
        "Whether the broker creates a topic that does not exist when a client asks for its"
        " metadata. Set it to false to keep misspelled names from becoming topics.",
    )
    delete_topic_enable: bool = flag(
        True, "Whether topics may be deleted. When false, requests to delete a topic are refused."
    )
    num_partitions: int = whole(
        1, "The number of partitions of a new topic whose creator does not give one.", at_least=1
    )
    default_replication_factor: int = whole(
        1,
        "The number of replicas of each partition of a new topic whose creator does not give"
        " one. Raise it on a cluster of several brokers: a partition with one replica is"
        " unavailable when its broker fails.",
        at_least=1,
        at_most=32767,
    )
    min_insync_replicas: int = whole(
        1,
        "The smallest number of in-sync replicas, the leader included, with which a partition"
        " accepts records sent with acks=all. A common choice is 2 with three replicas: acked"
        " records then survive the loss of one broker.",
        at_least=1,
        topic="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = flag(
        False,
        "Whether a replica outside the ISR may become leader when no other replica can. Setting"
        " it to true makes the partition available sooner, and may lose acked records.",
        topic="unclean.leader.election.enable",
    )
    auto_leader_rebalance_enable: bool = flag(
        True,
        "Whether the controller periodically gives leadership back to preferred replicas, the"
        " first replica of each partition. It keeps leaders spread over the brokers after"
        " restarts.",
    )
    leader_imbalance_check_interval_seconds: int = long(
        300,
        "The time in seconds between two checks for partitions that are not led by their"
        " preferred replica. It has an effect only with `auto.leader.rebalance.enable`.",
        at_least=1,
    )
    leader_imbalance_per_broker_percentage: int = whole(
        10,
        "The percentage of the partitions for which a broker is the preferred replica that"
        " other brokers may lead. Above it, the controller gives leadership back to that broker.",
    )
    understudy_eligible_leader_replicas_version: int = whole(
        1,
        "The level of Kafka's feature `eligible.leader.replicas.version` (KIP-966) in a new"
        " cluster; UpdateFeatures changes it later. With 1, an"
        " eligible leader replica may become leader when the ISR is empty; with 0, only members"
        " of the ISR may.",
        at_least=0,
        at_most=1,
    )
    understudy_transaction_version: int = whole(
        2,
        "The level of Kafka's feature `transaction.version` in a new cluster; UpdateFeatures"
        " changes it later. With 2, each transaction of a"
        " producer that supports it ends with a new producer epoch (KIP-890); lower levels keep"
        " the behaviour from before.",
        at_least=0,
        at_most=2,
    )
    compression_type: str = text(
        "producer",
        "The codec with which batches are stored. The default, `producer`, keeps the codec that"
        " the producer chose; any other value makes the leader compress batches again where they"
        " differ.",
        choices=_CODECS,
        topic="compression.type",
    )
    compression_gzip_level: int = whole(
        GZIP_LEVEL,
        "The compression level when the leader compresses batches with gzip. Higher levels give"
        " smaller batches and take more processor time; -1 is zlib's own default.",
        at_least=1,
        at_most=9,
        also=GZIP_LEVEL,
        topic="compression.gzip.level",
    )
    compression_lz4_level: int = whole(
        LZ4_LEVEL,
        "The compression level when the leader compresses batches with lz4. The default, 9,"
        " selects the fast compressor, as Kafka's lz4 library does; any other level selects the"
        " slower one, for smaller batches.",
        at_least=1,
        at_most=17,
        topic="compression.lz4.level",
    )
    compression_zstd_level: int = whole(
        ZSTD_LEVEL,
        "The compression level when the leader compresses batches with zstd. Higher levels give"
        " smaller batches and take more processor time.",
        at_least=-131_072,
        at_most=22,
        topic="compression.zstd.level",
    )
    message_max_bytes: int = whole(
        1_048_588,
        "The largest record batch that a partition accepts, in bytes, after compression. When"
        " you raise it, make sure that producers and consumers allow batches of that size too.",
        at_least=0,
        topic="max.message.bytes",
    )
    max_decompressed_message_bytes: int = whole(
        LARGEST_JAVA_ARRAY,
        "The largest record that a partition accepts in a compressed batch, in bytes, after"
        " decompression. The default imposes no limit.",
        at_least=1,
        at_most=LARGEST_JAVA_ARRAY,
        topic="max.decompressed.message.bytes",
    )

    # Replication.
    num_replica_fetchers: int = whole(
        1,
        "The number of fetchers that a broker runs for each broker it follows. Raise it when"
        " followers lag behind although network and disks have room.",
        at_least=1,
    )
    replica_lag_time_max_ms: int = long(
        30_000,
        "The time in milliseconds after which the leader removes a follower from the ISR that"
        " has not caught up with the end of the log. A lower value lets acks=all continue sooner"
        " after a failure; a higher one tolerates longer pauses.",
        at_least=1,
    )
    replica_fetch_wait_max_ms: int = whole(
        500,
        "The longest time in milliseconds that the leader holds a follower's fetch while there"
        " is less than `replica.fetch.min.bytes` to send. It must not exceed"
        " `replica.lag.time.max.ms`.",
        at_least=0,
    )
    replica_fetch_min_bytes: int = whole(
        1,
        "The number of bytes for which the leader holds a follower's fetch, for at most"
        " `replica.fetch.wait.max.ms`. The default, 1, sends new records at once.",
        at_least=0,
    )
    replica_fetch_max_bytes: int = whole(
        1_048_576,
        "The number of bytes that a follower fetches from one partition in one request. It is"
        " not a hard limit: a larger first batch is sent whole.",
        at_least=0,
    )
    replica_fetch_response_max_bytes: int = whole(
        10_485_760,
        "The number of bytes that a follower asks for in one fetch response, for all partitions"
        " together. It is not a hard limit: a larger first batch is sent whole.",
        at_least=0,
    )
    replica_fetch_backoff_ms: int = whole(
        1000,
        "The time in milliseconds that a follower waits after a failed fetch before it fetches"
        " again.",
        at_least=0,
    )
    replica_socket_timeout_ms: int = whole(
        30_000,
        "The time in milliseconds that a follower waits for a connection to the leader. It must"
        " be at least `replica.fetch.wait.max.ms`.",
        at_least=1,
    )
    replica_socket_receive_buffer_bytes: int = whole(
        65_536,
        "The size in bytes of a follower's socket receive buffer. It is accepted without"
        " effect: the operating system chooses the size.",
        at_least=-1,
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000,
        "The time in milliseconds between two writes of all high watermarks to disk. A broker"
        " that restarts begins with the high watermarks that were written last.",
        at_least=1,
    )
    replica_selector_class: str | None = text(
        None,
        "The rule that chooses the replica a consumer reads from. Without it, or with"
        " LeaderSelector, consumers read from the leader; RackAwareReplicaSelector prefers an"
        " in-sync replica in the rack that the consumer names in `client.rack` (KIP-392).",
        choices=_SELECTORS,
    )
    fetch_purgatory_purge_interval_requests: int = whole(
        1000,
        "The number of finished fetches that may stay in the purgatory. It is accepted without"
        " effect: finished fetches leave at once.",
    )
    producer_purgatory_purge_interval_requests: int = whole(
        1000,
        "The number of finished produce requests that may stay in the purgatory. It is accepted"
        " without effect: finished requests leave at once.",
    )
    fetch_max_bytes: int = whole(
        57_671_680,
        "The largest fetch response that the broker sends, in bytes, whatever the client asks"
        " for. It is not a hard limit: a larger first batch is sent whole, so that readers"
        " always advance.",
        at_least=1024,
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "The number of bytes per second that this broker sends, as leader, to throttled"
        " replicas. The default means no limit. Set it during a reassignment, together with the"
        " topic's `leader.replication.throttled.replicas`.",
        at_least=0,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        "The number of bytes per second that this broker fetches, as follower, for its"
        " throttled replicas. The default means no limit. Set it during a reassignment, together"
        " with the topic's `follower.replication.throttled.replicas`.",
        at_least=0,
    )
    replication_quota_window_num: int = whole(
        11,
        "The number of samples from which the rate of throttled replication is computed.",
        at_least=1,
    )
    replication_quota_window_size_seconds: int = whole(
        1,
        "The length in seconds of one of the samples that `replication.quota.window.num` counts.",
        at_least=1,
    )
    max_incremental_fetch_session_cache_slots: int = whole(
        1000,
        "The number of incremental fetch sessions that the broker keeps for followers and"
        " consumers. Readers without a session send every partition in every fetch; raise it"
        " when many partitions are read by many clients.",
        at_least=0,
    )
    understudy_incremental_fetch_session_eviction_ms: int = long(
        120_000,
        "The time in milliseconds after which an idle fetch session loses its slot to a new"
        " session, and after which a session in use may lose it to a larger one. Kafka has this"
        " value fixed at the default.",
        at_least=0,
    )
    understudy_metadata_fetch_wait_max_ms: int = whole(
        500,
        "The longest time in milliseconds that the controller holds a broker's fetch of the metadata"
        " log while there is nothing new. Raise it where idle brokers shall ask less often. Kafka"
        " has this value fixed at the default.",
        at_least=0,
    )
    understudy_inter_broker_fetch_version: int = whole(
        17,
        "The version of the Fetch API with which followers fetch. Lower it only while a cluster"
        " still has brokers that do not know the newest version.",
        at_least=4,
        at_most=17,
    )

    # The log.
    log_dirs: tuple[str, ...] = words(
        ["/tmp/kafka-logs"],  # noqa: S108 Kafka's default
        "The directories in which partitions are stored, separated by commas. Name one for each"
        " disk; when one fails, the replicas in the others go on.",
        allows=all,
        expectation="directories, separated by commas",
    )
    log_dir_failure_timeout_ms: int = long(
        30_000,
        "The time in milliseconds for which a broker tries to report a failed log directory to"
        " the controller. When it is exceeded, the broker stops.",
        at_least=1,
    )
    metadata_log_dir: str | None = text(
        None,
        "The directory in which the metadata log is stored. Without it, the first of `log.dirs`"
        " is used.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20 << 20,
        "The number of bytes of metadata records after which a node writes a snapshot of the"
        " metadata and deletes the log before it.",
        at_least=1,
    )
    num_recovery_threads_per_data_dir: int = whole(
        2,
        "The number of threads for each log directory that recover logs after an unclean"
        " shutdown. Raise it when a start after a crash takes too long.",
        at_least=1,
    )
    log_segment_bytes: int = whole(
        1 << 30,
        "The largest size of a log segment, in bytes. Retention deletes whole segments, so"
        " smaller segments free disk space in smaller steps and take more files.",
        at_least=14,
        topic="segment.bytes",
    )
    log_roll_ms: int = long(
        7 * DAY_MS,
        "The time in milliseconds after which a log starts a new segment even if the active one"
        " is not full. Retention and compaction work on closed segments only, so lower it for"
        " topics with little traffic.",
        at_least=1,
        topic="segment.ms",
        synonyms={"log.roll.hours": _HOUR_MS},
    )
    log_roll_jitter_ms: int = long(
        0,
        "The largest time in milliseconds by which a log starts a new segment early; each"
        " segment gets its own share of it. Set it to keep many logs from starting segments at"
        " the same moment.",
        at_least=0,
        topic="segment.jitter.ms",
        synonyms={"log.roll.jitter.hours": _HOUR_MS},
    )
    log_index_size_max_bytes: int = whole(
        10 << 20,
        "The largest size of a segment's index file, in bytes. A full index starts a new"
        " segment, and the index of the active segment takes this much disk space. It seldom"
        " needs to be changed.",
        at_least=4,
        topic="segment.index.bytes",
    )
    log_index_interval_bytes: int = whole(
        4096,
        "The number of bytes of records between two entries of the offset index. Lower values"
        " find an offset with less reading and make larger indexes. It seldom needs to be"
        " changed.",
        at_least=0,
        topic="index.interval.bytes",
    )
    log_retention_ms: int = long(
        7 * DAY_MS,
        "The time in milliseconds for which records are kept, where the cleanup policy has"
        " `delete`. A whole segment is deleted when its newest record is older. -1 means no"
        " limit.",
        at_least=-1,
        topic="retention.ms",
        synonyms={"log.retention.minutes": MINUTE_MS, "log.retention.hours": _HOUR_MS},
    )
    log_retention_bytes: int = long(
        -1,
        "The size in bytes above which the oldest segments of a partition are deleted, where"
        " the cleanup policy has `delete`. The default, -1, means no limit. It holds for each"
        " partition, not for the topic.",
        topic="retention.bytes",
    )
    log_retention_check_interval_ms: int = long(
        300_000,
        "The time in milliseconds between two checks for segments that retention lets the"
        " broker delete.",
        at_least=1,
    )
    log_segment_delete_delay_ms: int = long(
        60_000,
        "The time in milliseconds between the moment a segment leaves the log and the moment"
        " its files are deleted from disk. It lets reads that have begun come to their end.",
        at_least=0,
        topic="file.delete.delay.ms",
    )
    log_initial_task_delay_ms: int = long(
        30_000,
        "The time in milliseconds after the start of the broker at which its periodic work on"
        " logs (retention, flushes, checkpoints) begins.",
        at_least=0,
    )
    log_flush_interval_messages: int = long(
        LONG_MAX,
        "The number of records after which a log is synced to disk. The default means that this"
        " never causes a sync: replication keeps acked records safe, and the operating system"
        " writes in its own time. Lower it only if records must survive a power failure of all"
        " replicas.",
        at_least=1,
        topic="flush.messages",
    )
    log_flush_interval_ms: int = long(
        LONG_MAX,
        "The longest time in milliseconds for which records stay unsynced. The check runs every"
        " `log.flush.scheduler.interval.ms`, so set that too. The default means that time never"
        " causes a sync.",
        at_least=0,
        topic="flush.ms",
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX,
        "The time in milliseconds between two checks for logs that are due to be synced. It is"
        " also the default of `log.flush.interval.ms`. Its own default means that no check is"
        " made.",
        at_least=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = whole(
        60_000,
        "The time in milliseconds between two writes of all recovery points to disk. A broker"
        " that crashed checks its logs from the recovery points that were written last.",
        at_least=0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = whole(
        60_000,
        "The time in milliseconds between two writes of all log start offsets to disk.",
        at_least=0,
    )
    log_cleanup_policy: tuple[str, ...] = words(
        ["delete"],
        "What happens to old records: `delete` deletes old segments, `compact` keeps the last"
        " record of each key, and `compact,delete` does both. An empty value keeps everything.",
        choices=["delete", "compact"],
        may_be_empty=True,
        topic="cleanup.policy",
    )
    log_cleaner_delete_retention_ms: int = long(
        DAY_MS,
        "The time in milliseconds for which compaction keeps a tombstone, a record without a"
        " value. A consumer that reads from the beginning must finish within it to be sure to"
        " see every deletion.",
        at_least=0,
        topic="delete.retention.ms",
    )
    log_cleaner_enable: bool = flag(
        True,
        "Whether the log cleaner runs. When false, topics with the cleanup policy `compact` are"
        " not compacted and grow without limit.",
    )
    log_cleaner_threads: int = whole(
        1,
        "The number of logs that the broker compacts at the same time. Raise it when compaction"
        " cannot keep up.",
        at_least=0,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 << 20,
        "The memory in bytes for the keys of the logs being compacted, shared by all cleaners."
        " More memory compacts more records in one pass; each key takes 24 bytes.",
    )
    log_cleaner_io_buffer_size: int = whole(
        512 << 10,
        "The memory in bytes for reading and writing during compaction, shared by all cleaners."
        " A cleaner reads half of its share at a time.",
        at_least=0,
    )
    log_cleaner_io_buffer_load_factor: float = real(
        0.9,
        "The share of `log.cleaner.dedupe.buffer.size` that may be filled with keys before a"
        " pass ends. Higher values compact more records in one pass and look keys up more"
        " slowly.",
        low=0.01,
        high=0.99,
    )
    log_cleaner_backoff_ms: int = long(
        15_000,
        "The time in milliseconds that a cleaner waits before it looks again, when it has found"
        " no log to compact.",
        at_least=0,
    )
    log_cleaner_io_max_bytes_per_second: float = real(
        sys.float_info.max,
        "The number of bytes per second that all cleaners together read and write. The default"
        " means no limit; set it to leave more of the disk to clients.",
        low=1.0,
        high=sys.float_info.max,
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0,
        "The shortest time in milliseconds for which a record stays uncompacted. The default,"
        " 0, leaves only the active segment out. Set it to give consumers time to see every"
        " record of a key.",
        at_least=0,
        topic="min.compaction.lag.ms",
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX,
        "The longest time in milliseconds for which a record may stay uncompacted, however"
        " little of the log is dirty. The default means no limit. Set it where deleted data must"
        " be gone by a deadline.",
        at_least=1,
        topic="max.compaction.lag.ms",
    )
    log_cleaner_min_cleanable_ratio: float = real(
        0.5,
        "The share of a log that must be dirty, that is not yet compacted, before the log is"
        " compacted. Lower values waste less disk space and compact more often.",
        low=0.0,
        high=1.0,
        topic="min.cleanable.dirty.ratio",
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        "The timestamp that records carry: `CreateTime` keeps the one that the producer set,"
        " `LogAppendTime` replaces it with the time at which the leader appends the record.",
        choices=["CreateTime", "LogAppendTime"],
        topic="message.timestamp.type",
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "The time in milliseconds by which a record's timestamp may lie in the leader's past;"
        " records with older ones are refused. The default means no limit. It has no effect with"
        " `LogAppendTime`.",
        at_least=0,
        topic="message.timestamp.before.max.ms",
    )
    log_message_timestamp_after_max_ms: int = long(
        _HOUR_MS,  # since Kafka 4 (KIP-1030)
        "The time in milliseconds by which a record's timestamp may lie in the leader's future;"
        " records with later ones are refused. The default is an hour. It has no effect with"
        " `LogAppendTime`.",
        at_least=0,
        topic="message.timestamp.after.max.ms",
    )
    log_preallocate: bool = flag(
        False,
        "Whether a new segment takes up its full size on disk at once. It has an advantage only"
        " on file systems that handle growing files badly.",
        topic="preallocate",
    )
    producer_id_expiration_ms: int = whole(
        DAY_MS,
        "The time in milliseconds without a write after which a partition forgets an idempotent"
        " producer. A producer that retries later than that may write a record twice.",
        at_least=1,
    )
    producer_id_expiration_check_interval_ms: int = whole(
        600_000,
        "The time in milliseconds between two checks for producers that"
        " `producer.id.expiration.ms` lets the broker forget.",
        at_least=1,
    )
    transaction_max_timeout_ms: int = whole(
        900_000,
        "The longest transaction timeout, in milliseconds, that a producer may ask for. Longer"
        " transactions hold back consumers that read committed records only.",
        at_least=1,
    )
    transactional_id_expiration_ms: int = whole(
        7 * DAY_MS,
        "The time in milliseconds without a transaction after which the coordinator forgets a"
        " transactional id.",
        at_least=1,
    )
    transaction_partition_verification_enable: bool = flag(
        True,
        "Whether a leader verifies with the transaction coordinator that a partition is part of"
        " the transaction before it appends the transaction's first record. It protects against"
        " hanging transactions (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = whole(
        20,
        "The time in milliseconds that a leader waits before it asks the coordinator again to"
        " add a partition to a transaction, while the producer's last transaction is still being"
        " completed.",
        at_least=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = whole(
        100,
        "The time in milliseconds after which a leader stops asking the coordinator to add a"
        " partition to a transaction and returns the error to the producer, which then retries.",
        at_least=0,
    )
    transaction_state_log_num_partitions: int = whole(
        50,
        "The number of partitions of the internal topic `__transaction_state`. It is used when"
        " the topic is created, and must not be changed afterwards.",
        at_least=1,
    )
    transaction_state_log_replication_factor: int = whole(
        3,
        "The number of replicas of the internal topic `__transaction_state`. With fewer brokers"
        " than that, the topic cannot be created and transactions cannot begin.",
        at_least=1,
        at_most=32767,
        kind=ConfigType.SHORT,
    )
    transaction_state_log_min_isr: int = whole(
        2,
        "The `min.insync.replicas` of the internal topic `__transaction_state`. It is used when"
        " the topic is created.",
        at_least=1,
    )
    transaction_state_log_segment_bytes: int = whole(
        100 << 20,
        "The `segment.bytes` of the internal topic `__transaction_state`. It is small because a"
        " new coordinator reads whole partitions of the topic.",
        at_least=1,
    )
    transaction_state_log_load_buffer_size: int = whole(
        5 << 20,
        "The number of bytes that a new transaction coordinator reads at a time when it loads a"
        " partition of `__transaction_state`.",
        at_least=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = whole(
        10_000,
        "The time in milliseconds between two checks for transactions that have exceeded their"
        " timeout and must be aborted.",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = whole(
        _HOUR_MS,
        "The time in milliseconds between two checks for transactional ids that"
        " `transactional.id.expiration.ms` lets the coordinator forget.",
        at_least=1,
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = whole(
        6000,
        "The shortest session timeout, in milliseconds, that a member of a consumer group may"
        " ask for.",
    )
    group_max_session_timeout_ms: int = whole(
        1_800_000,
        "The longest session timeout, in milliseconds, that a member of a consumer group may"
        " ask for. Longer sessions tolerate longer pauses, and failed members are found later.",
    )
    group_initial_rebalance_delay_ms: int = whole(
        3000,
        "The time in milliseconds for which the coordinator of an empty group waits for more"
        " members before the first rebalance. Lower it, to 0 if need be, for tests; raise it"
        " where many members start at once.",
    )
    group_max_size: int = whole(
        2**31 - 1,
        "The largest number of members in one consumer group. The default means no limit.",
        at_least=1,
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(
        ["classic", "consumer", "streams"],
        "The protocols of groups that this broker serves. Groups of `consumer` (KIP-848) are served"
        " where it is listed, and clients see it only then. `share` and `streams` are accepted"
        " without effect.",
        choices=["classic", "consumer", "share", "streams"],
    )
    group_consumer_session_timeout_ms: int = whole(
        45_000,
        "The time in milliseconds without a heartbeat after which a member of a consumer group"
        " (KIP-848) is removed. Longer sessions tolerate longer pauses, and failed members are"
        " found later.",
        at_least=1,
    )
    group_consumer_heartbeat_interval_ms: int = whole(
        5_000,
        "The time in milliseconds between two heartbeats of a member of a consumer group"
        " (KIP-848). Members learn of a new assignment with a heartbeat: shorter intervals make"
        " rebalances faster, and cost requests.",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = whole(
        45_000,
        "The shortest session timeout, in milliseconds, that may be set for one consumer group"
        " (`consumer.session.timeout.ms`).",
        at_least=1,
    )
    group_consumer_max_session_timeout_ms: int = whole(
        60_000,
        "The longest session timeout, in milliseconds, that may be set for one consumer group"
        " (`consumer.session.timeout.ms`).",
        at_least=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = whole(
        5_000,
        "The shortest time between two heartbeats, in milliseconds, that may be set for one"
        " consumer group (`consumer.heartbeat.interval.ms`).",
        at_least=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = whole(
        15_000,
        "The longest time between two heartbeats, in milliseconds, that may be set for one"
        " consumer group (`consumer.heartbeat.interval.ms`).",
        at_least=1,
    )
    group_consumer_assignment_interval_ms: int = whole(
        1_000,
        "The least time in milliseconds between two assignments of a consumer group (KIP-848)."
        " Members that join within it are assigned together, by the next heartbeat after it."
        " Lower it, to 0 if need be, for tests.",
        at_least=0,
    )
    group_consumer_min_assignment_interval_ms: int = whole(
        0,
        "The shortest time between two assignments, in milliseconds, that may be set for one"
        " consumer group (`consumer.assignment.interval.ms`).",
        at_least=0,
    )
    group_consumer_max_assignment_interval_ms: int = whole(
        15_000,
        "The longest time between two assignments, in milliseconds, that may be set for one"
        " consumer group (`consumer.assignment.interval.ms`).",
        at_least=0,
    )
    group_consumer_max_size: int = whole(
        2**31 - 1,
        "The largest number of members in one consumer group (KIP-848). The default means no"
        " limit.",
        at_least=1,
    )
    group_consumer_assignors: tuple[str, ...] = words(
        ["uniform", "range"],
        "The assignors that members of a consumer group (KIP-848) may ask for. The first is that"
        " of groups that ask for none.",
        choices=["uniform", "range"],
    )
    group_consumer_migration_policy: str = text(
        "bidirectional",
        "The directions in which a group with members changes its protocol: `upgrade`, when a"
        " consumer of KIP-848 joins a classic group; `downgrade`, when the last of them leaves;"
        " `bidirectional`, both; `disabled`, neither, and no classic member joins a group that has"
        " consumers of KIP-848.",
        choices=["bidirectional", "upgrade", "downgrade", "disabled"],
    )
    group_consumer_regex_refresh_interval_ms: int = whole(
        10 * MINUTE_MS,
        "The time in milliseconds after which the topics of a regular expression that a consumer"
        " group (KIP-848) is subscribed to are looked up again. New topics are found within ten"
        " seconds.",
        at_least=10_000,
    )
    offset_metadata_max_bytes: int = whole(
        4096, "The largest text, in bytes, that a client may store with a committed offset."
    )
    offsets_commit_timeout_ms: int = whole(
        5000,
        "The time in milliseconds within which the in-sync replicas must store an offset"
        " commit. When it is exceeded, the commit fails and the client may retry.",
        at_least=1,
    )
    offsets_load_buffer_size: int = whole(
        5 << 20,
        "The number of bytes that a new group coordinator reads at a time when it loads a"
        " partition of `__consumer_offsets`.",
        at_least=1,
    )
    offsets_retention_minutes: int = whole(
        7 * 24 * 60,
        "The time in minutes for which the committed offsets of a group without members are"
        " kept. Raise it where consumers may be away for longer than the default, a week.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = long(
        600_000,
        "The time in milliseconds between two checks for committed offsets that"
        " `offsets.retention.minutes` lets the coordinator delete.",
        at_least=1,
    )
    offsets_topic_num_partitions: int = whole(
        50,
        "The number of partitions of the internal topic `__consumer_offsets`. It is used when"
        " the topic is created, and must not be changed afterwards.",
        at_least=1,
    )
    offsets_topic_replication_factor: int = whole(
        3,
        "The number of replicas of the internal topic `__consumer_offsets`. With fewer brokers"
        " than that, the topic cannot be created and groups have no coordinator.",
        at_least=1,
        at_most=32767,
        kind=ConfigType.SHORT,
    )
    offsets_topic_segment_bytes: int = whole(
        100 << 20,
        "The `segment.bytes` of the internal topic `__consumer_offsets`. It is small because a"
        " new coordinator reads whole partitions of the topic.",
        at_least=1,
    )
    offsets_topic_compression_codec: int = whole(
        0,
        "The codec with which group coordinators compress their records: 0 none, 1 gzip, 2"
        " snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )

    # These are not keys: the keys that are set for one listener, the keys that the file sets, with
    # their text, and the keys among them that have no effect.
    listener_keys: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    given: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    ignored_keys: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        for (name, spec), value in zip(BROKER_KEYS.items(), _values_of(self), strict=True):
            if value is not spec.default:  # a default is allowed
                spec.check(name, value)
        _check_together(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return the configuration that `properties` set.

        Raise ConfigError, with a message of one line, for the first key or value that is wrong.
        """
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
        named = {owners[name] for name in properties if name in owners}
        for name in filter(named.__contains__, declared):  # in the order of their declaration
            spec = declared[name]
            others = {"log.dir": 1} if name == "log.dirs" else spec.synonyms
            for other, unit in ((name, 1), *others.items()):
                if other in properties:
                    value = spec.value_of(other, properties[other])
                    found[name.replace(".", "_")] = (
                        value * unit if unit != 1 and value > 0 else value
                    )
                    break
        # The interval of the check is the default for the interval of syncs (KafkaConfig).
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
    def controller_listeners(self) -> tuple[ListenerConfig, ...]:
        return tuple(each for each in self.listeners if each.name in self._controller_names)

    @property
    def broker_listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners that clients and other brokers connect to; Kafka's default if none is set."""
        listeners = self.listeners or (ListenerConfig("PLAINTEXT", "", 9092),)
        return tuple(each for each in listeners if each.name not in self._controller_names)

    @property
    def advertised_broker_listeners(self) -> tuple[ListenerConfig, ...]:
        """The addresses given to clients; a listener on every interface is advertised as localhost."""
        advertised = {each.name: each for each in self.advertised_listeners}
        return tuple(
            advertised.get(each.name, attrs.evolve(each, host=each.host or "localhost"))
            for each in self.broker_listeners
        )

    @cached_property
    def inter_broker_listener(self) -> str:
        """The configured listener, or the first one with `security.inter.broker.protocol`."""
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name.upper()
        protocol, mapped = self.security_inter_broker_protocol, self.listener_security_protocol_map
        for each in self.broker_listeners:
            if protocol_of(each.name, mapped) == protocol:
                return each.name
        return protocol

    def security_of(self, listener: str) -> ListenerSecurity:
        """Return the security of this node's listener, or of another node's listener of that name."""
        return listener_security(
            listener,
            self,
            protocol=protocol_of(listener, self.listener_security_protocol_map),
            overrides=self.listener_keys,
        )

    @property
    def authorizer(self) -> tuple[frozenset[str], bool] | None:
        """The super users, and whether everyone may use a resource without ACLs; None if there is no
        authorizer.
        """
        if not self.authorizer_class_name:
            return None
        users = frozenset(each.strip() for each in self.super_users.split(";") if each.strip())
        return users, self.allow_everyone_if_no_acl_found

    @property
    def inter_broker_introduction(self) -> Introduction:
        """The security of connections between brokers."""
        return self.security_of(self.inter_broker_listener).introduction(
            self.sasl_mechanism_inter_broker_protocol, key="sasl.mechanism.inter.broker.protocol"
        )

    @property
    def controller_introduction(self) -> Introduction:
        """The security of connections from brokers to the controller."""
        return self.security_of(self.controller_listener_names[0].upper()).introduction(
            self.sasl_mechanism_controller_protocol, key="sasl.mechanism.controller.protocol"
        )

    @property
    def controller_addresses(self) -> tuple[HostPort, ...]:
        """The addresses of the controllers. Raises ConfigError if no key gives one."""
        if self.controller_quorum_voters:
            return tuple(HostPort(each.host, each.port) for each in self.controller_quorum_voters)
        if self.controller_quorum_bootstrap_servers:
            return self.controller_quorum_bootstrap_servers
        if self.is_controller and self.controller_listeners:
            own = self.controller_listeners[0]
            return (HostPort(own.host or "localhost", own.port),)
        raise ConfigError(
            "controller.quorum.bootstrap.servers is missing: a broker must know its controller"
        )

    @property
    def names_no_voters(self) -> bool:
        """Whether only the metadata log can say who votes: the keys name bootstrap servers alone."""
        return bool(self.controller_quorum_bootstrap_servers) and not self.controller_quorum_voters

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log; one of `log_dirs` is spelled as it is there."""
        wanted = self.metadata_log_dir or self.log_dirs[0]
        same = (each for each in self.log_dirs if normpath(each) == normpath(wanted))
        return next(same, wanted)

    @property
    def _controller_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.controller_listener_names)


BROKER_KEYS: Mapping[str, Spec] = keys.specs(BrokerConfig)
_values_of = attrgetter(*(name.replace(".", "_") for name in BROKER_KEYS))


def _is_without_effect(name: str) -> bool:
    return name in OF_BROKERS or is_ignored(name)


def _check_together(config: BrokerConfig) -> None:
    """Check the rules that involve several keys (KafkaConfig.validateValues)."""

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
    _check_quorum(config)
    check_listeners(config.listeners, advertised=config.advertised_listeners)
    _check_roles(config)
    for each in config.listeners:
        if uses_sasl(protocol_of(each.name, config.listener_security_protocol_map)):
            check_sasl_listener(config.security_of(each.name))
    names = [each.name for each in config.broker_listeners]
    found = config.inter_broker_listener in names
    # A default that names no listener is accepted: a single broker may use any listener name.
    if config.is_broker and not found and (config.inter_broker_listener_name or not names):
        raise ConfigError(
            f"inter.broker.listener.name={config.inter_broker_listener}: expected one of the "
            f"listeners ({', '.join(names) or 'none'})"
        )


def _check_roles(config: BrokerConfig) -> None:
    """Check that each role has listeners, and no other role's (KafkaConfig.validateValues)."""
    of_controller, roles = config.controller_listeners, ",".join(config.process_roles)
    named = f"controller.listener.names={','.join(config.controller_listener_names)}"
    text = f"listeners={','.join(map(str, config.listeners))}"
    if config.is_controller and not of_controller:
        raise ConfigError(f"{text}: expected one of {named}, where process.roles={roles}")
    if not config.is_broker and len(of_controller) < len(config.listeners):
        raise ConfigError(f"{text}: expected only those of {named}, where process.roles={roles}")
    if not config.is_controller and of_controller:
        raise ConfigError(f"{text}: expected none of {named}, where process.roles={roles}")
    if config.is_broker and not config.broker_listeners:
        raise ConfigError(f"{text}: expected one for clients, beside those of {named}")


def _check_quorum(config: BrokerConfig) -> None:
    """Check the keys of the quorum, and this node's place in it (KafkaConfig.validateValues)."""
    voters = config.controller_quorum_voters
    text = f"controller.quorum.voters={','.join(map(str, voters))}"
    ids = {each.node_id for each in voters}
    if len(ids) < len(voters):
        raise ConfigError(f"{text}: expected each node id once")
    if len({(each.host, each.port) for each in voters if each.port}) < sum(
        bool(each.port) for each in voters
    ):
        raise ConfigError(f"{text}: expected each address once")
    for each in voters:
        if not is_routable(each.host):
            raise ConfigError(f"{text}: expected hosts that others can reach")
    if voters and config.is_controller and config.node_id not in ids:
        raise ConfigError(f"{text}: expected node {config.node_id}, which is a controller")
    if voters and not config.is_controller and config.node_id in ids:
        raise ConfigError(f"{text}: node {config.node_id} is no controller, and cannot vote")
    if config.controller_quorum_auto_join_enable and not config.is_controller:
        raise ConfigError(
            "controller.quorum.auto.join.enable=true: expected false for a node that is no"
            " controller"
        )
