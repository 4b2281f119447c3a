"""Kafka's keys that are checked, kept and described here, and that nothing reads."""

from collections.abc import Mapping

import attrs

from replication.config.keys import INT_MAX, LONG_MAX, Spec, flag, long, specs, whole, words

_DOC = "Accepted without effect."


@attrs.frozen(kw_only=True)
class _OfBrokers:
    """Those of brokers that may be altered while one runs."""

    background_threads: int = whole(10, _DOC, at_least=1)
    log_local_retention_bytes: int = long(-2, _DOC, at_least=-2)
    log_local_retention_ms: int = long(-2, _DOC, at_least=-2)
    max_connection_creation_rate: int = whole(INT_MAX, _DOC, at_least=0)
    metric_reporters: tuple[str, ...] = words(["org.apache.kafka.common.metrics.JmxReporter"], _DOC)
    num_io_threads: int = whole(8, _DOC, at_least=1)
    num_network_threads: int = whole(3, _DOC, at_least=1)
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(LONG_MAX, _DOC, at_least=0)


@attrs.frozen(kw_only=True)
class _OfTopics:
    remote_storage_enable: bool = flag(False, "There is no remote storage.", choices=[False])
    remote_log_copy_disable: bool = flag(False, _DOC)
    remote_log_delete_on_disable: bool = flag(False, _DOC)
    local_retention_ms: int = long(-2, _DOC, at_least=-2)
    local_retention_bytes: int = long(-2, _DOC, at_least=-2)


OF_BROKERS: Mapping[str, Spec] = specs(_OfBrokers)
OF_TOPICS: Mapping[str, Spec] = specs(_OfTopics)
