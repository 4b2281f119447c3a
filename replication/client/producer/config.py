"""The configuration of a producer, with Kafka's keys (ProducerConfig).

Idempotence is on by default. It is switched off if another key excludes it (acks other than all,
more than five requests in flight, no retries). If `enable.idempotence=true` is also set, the
configuration is refused, as Kafka refuses it.
"""

from collections.abc import Mapping
from typing import Any, Self

from replication.client.config import ClientConfig
from replication.config.keys import flag, long, text, whole
from replication.errors import ConfigError
from storage.attributes import frozen

MOST_IN_FLIGHT_WITH_IDEMPOTENCE = 5
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}


@frozen(kw_only=True)
class ProducerConfig(ClientConfig):
    """The keys of a producer, with Kafka's defaults."""

    acks: str = text(
        "all",
        "The acknowledgement that the producer waits for: `all` (or -1) from every in-sync"
        " replica, 1 from the leader only, 0 none. Lower values are faster and may lose records.",
        choices=[*_ACKS],
    )
    enable_idempotence: bool = flag(
        True,
        "Whether each record is written once and in order, even if it is sent several times. It"
        " needs `acks=all`, retries, and at most 5 requests in flight.",
    )
    max_in_flight_requests_per_connection: int = whole(
        5,
        "The number of requests that the producer sends to one broker before it has the"
        " response to the first. More than 5 excludes idempotence.",
        at_least=1,
    )
    retries: int = whole(
        2**31 - 1,
        "The number of times that the producer sends a batch again after a failure. Leave the"
        " default and limit the time with `delivery.timeout.ms` instead.",
        at_least=0,
    )
    delivery_timeout_ms: int = whole(
        120_000,
        "The time in milliseconds after `send` within which a record is either acked or fails."
        " It must be at least `linger.ms` plus `request.timeout.ms`.",
        at_least=0,
    )
    linger_ms: int = long(
        5,
        "The time in milliseconds for which a batch waits for more records before it is sent. A"
        " higher value gives larger batches and more delay.",
        at_least=0,
    )
    batch_size: int = whole(
        16_384,
        "The size in bytes at which a batch is full and is sent at once. Larger batches"
        " compress better and take more memory. 0 sends every record by itself.",
        at_least=0,
    )
    buffer_memory: int = long(
        32 << 20,
        "The memory in bytes for records that have not yet been acked. When it is full, `send`"
        " waits for up to `max.block.ms`.",
        at_least=0,
    )
    max_block_ms: int = long(
        60_000,
        "The longest time in milliseconds that `send` waits for free memory or for a topic's"
        " metadata. Starting, committing and aborting a transaction wait no longer either.",
        at_least=0,
    )
    max_request_size: int = whole(
        1 << 20,
        "The largest record, and the largest request, that the producer sends, in bytes. Raise"
        " it together with the brokers' `message.max.bytes`.",
        at_least=0,
    )
    compression_type: str = text(
        "none",
        "The codec with which the producer compresses batches. Compression saves network"
        " traffic and disk space, and takes processor time.",
        choices=["none", "gzip", "snappy", "lz4", "zstd"],
    )
    transactional_id: str = text(
        "",
        "The id under which the producer runs transactions. It must stay the same across"
        " restarts, and no two running producers may share it. Without it, the producer cannot"
        " use transactions.",
    )
    transaction_timeout_ms: int = whole(
        60_000,
        "The time in milliseconds after which the coordinator aborts a transaction that is"
        " still open. Brokers limit it with `transaction.max.timeout.ms`.",
        at_least=1,
    )
    partitioner_ignore_keys: bool = flag(
        False,
        "Whether the producer ignores keys when it chooses the partition of a record. When"
        " false, records with the same key go to the same partition.",
    )
    partitioner_adaptive_partitioning_enable: bool = flag(
        True,
        "Whether the producer sends fewer of the records without a key to partitions with many"
        " waiting batches (KIP-794).",
    )
    metadata_max_idle_ms: int = long(
        300_000,
        "The time in milliseconds after the last record for a topic until the producer stops"
        " refreshing the topic's metadata.",
        at_least=5000,
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.enable_idempotence and (conflict := _conflict(self)):
            raise ConfigError(f"enable.idempotence=true needs {conflict}")
        if self.transactional_id and not self.enable_idempotence:
            raise ConfigError("transactional.id needs enable.idempotence=true")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms}: expected at least linger.ms"
                f" + request.timeout.ms, {self.linger_ms + self.request_timeout_ms}"
            )

    @property
    def required_acks(self) -> int:
        """The value of `acks` in requests: -1 for all."""
        return _ACKS[self.acks]

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        if "enable.idempotence" in given or given.get("transactional.id"):
            return super()._read(given)
        without = super()._read({**given, "enable.idempotence": False})
        return without if _conflict(without) else super()._read(given)


def _conflict(config: ProducerConfig) -> str:
    """Return the condition of idempotence that `config` breaks; an empty text if there is none."""
    if config.required_acks != -1:
        return "acks=all"
    if config.retries == 0:
        return "retries of at least 1"
    if config.max_in_flight_requests_per_connection > MOST_IN_FLIGHT_WITH_IDEMPOTENCE:
        return f"max.in.flight.requests.per.connection <= {MOST_IN_FLIGHT_WITH_IDEMPOTENCE}"
    return ""
