"""What a producer is told, by Kafka's names (ProducerConfig).

Idempotence is the default, and gives way where something is asked for that it cannot have
(acks other than all, more than five requests in flight, no retries), unless it is asked for
too: then the two are refused together, as Kafka refuses them.
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.client.config import ClientConfig
from replication.config.keys import flag, long, text, whole
from replication.errors import ConfigError

MOST_IN_FLIGHT_WITH_IDEMPOTENCE = 5
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}


@attrs.frozen(kw_only=True)
class ProducerConfig(ClientConfig):
    """The keys of a producer, at Kafka's defaults."""

    acks: str = text("all", "Who must have a record before it is acked.", choices=[*_ACKS])
    enable_idempotence: bool = flag(True, "Whether a record is there once, however often sent.")
    max_in_flight_requests_per_connection: int = whole(
        5, "How many requests one broker may be asked at once.", at_least=1
    )
    retries: int = whole(2**31 - 1, "How often a record is sent again.", at_least=0)
    delivery_timeout_ms: int = whole(
        120_000, "How long after `send` a record is either there or given up.", at_least=0
    )
    linger_ms: int = long(5, "How long a batch waits for more records.", at_least=0)
    batch_size: int = whole(16_384, "Bytes of a batch that is full.", at_least=0)
    buffer_memory: int = long(32 << 20, "Bytes of records that are on their way.", at_least=0)
    max_block_ms: int = long(
        60_000, "How long `send` may wait for room, or to hear of the topic.", at_least=0
    )
    max_request_size: int = whole(1 << 20, "The most bytes of a record or request.", at_least=0)
    compression_type: str = text(
        "none",
        "How batches are compressed.",
        choices=["none", "gzip", "snappy", "lz4", "zstd"],
    )
    transactional_id: str = text(
        "", "The name under which transactions are, across restarts; none for none."
    )
    transaction_timeout_ms: int = whole(
        60_000, "How long a transaction may go on before its coordinator aborts it.", at_least=1
    )
    partitioner_ignore_keys: bool = flag(False, "Whether keys do not choose the partition.")
    partitioner_adaptive_partitioning_enable: bool = flag(
        True, "Whether fewer records without a key go where many wait (KIP-794)."
    )
    metadata_max_idle_ms: int = long(
        300_000, "How long a topic that nothing is sent to is still asked about.", at_least=5000
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
        """`acks` as requests have it: -1 for all."""
        return _ACKS[self.acks]

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        if "enable.idempotence" in given or given.get("transactional.id"):
            return super()._read(given)
        without = super()._read({**given, "enable.idempotence": False})
        return without if _conflict(without) else super()._read(given)


def _conflict(config: ProducerConfig) -> str:
    """What idempotence would need that is not so; nothing where it can be."""
    if config.required_acks != -1:
        return "acks=all"
    if config.retries == 0:
        return "retries of at least 1"
    if config.max_in_flight_requests_per_connection > MOST_IN_FLIGHT_WITH_IDEMPOTENCE:
        return f"max.in.flight.requests.per.connection <= {MOST_IN_FLIGHT_WITH_IDEMPOTENCE}"
    return ""
