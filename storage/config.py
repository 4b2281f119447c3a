"""How one partition's log behaves: Kafka's topic-level keys, with Kafka's defaults.

A field is named as its key with the dots turned into underscores, so that
`segment.bytes` is `segment_bytes`. Values are checked where they are parsed; here they
are only held. A log may be handed another `LogConfig` while it is open.
"""

import attrs

from storage.attributes import frozen
from storage.batch.compression import GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL, Codec

LONG_MAX = 2**63 - 1
LARGEST_JAVA_ARRAY = 2**31 - 9
DAY_MS = 24 * 60 * 60 * 1000


@frozen(kw_only=True)
class LogConfig:
    """A topic's settings, as far as its logs go by them: Kafka's names, underscored, and Kafka's
    defaults (org.apache.kafka.storage.internals.log.LogConfig). `_bytes` and `_ms` are units; -1 of
    a retention is no limit.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    max_message_bytes: int = (1 << 20) + 12
    max_decompressed_message_bytes: int = LARGEST_JAVA_ARRAY
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: str = "producer"
    compression_gzip_level: int = GZIP_LEVEL
    compression_lz4_level: int = LZ4_LEVEL
    compression_zstd_level: int = ZSTD_LEVEL
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    preallocate: bool = False
    # Computed once: they are read for every append.
    is_compacted: bool = attrs.field(init=False, eq=False, repr=False)
    """Whether a cleaner keeps of each key the last record."""
    stamps_append_time: bool = attrs.field(init=False, eq=False, repr=False)
    """Whether records get the leader's time instead of the producer's."""
    max_segment_ms: int = attrs.field(init=False, eq=False, repr=False)
    """How long a segment may stay active; compaction must reach it in time (KIP-354)."""

    @is_compacted.default
    def _has_policy_compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @stamps_append_time.default
    def _has_type_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @max_segment_ms.default
    def _until_it_must_roll_ms(self) -> int:
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def is_deleted(self) -> bool:
        """Records go when they are old or too many, not only when a newer one has their key."""
        return "delete" in self.cleanup_policy

    @property
    def target_codec(self) -> Codec | None:
        """The codec that the leader compresses with; None: it keeps the producer's."""
        match self.compression_type:
            case "producer":
                return None
            case "uncompressed":
                return Codec.NONE
            case name:
                return Codec.named(name)

    def level_of(self, codec: Codec) -> int | None:
        """Return how hard to compress (KIP-390); None for a codec that knows no levels."""
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(codec)
