"""Kafka's keys that are checked, kept and described here without any effect."""

from collections.abc import Mapping

import attrs

from replication.config.keys import INT_MAX, Spec, flag, long, specs, whole, words
from storage.config import LONG_MAX


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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
