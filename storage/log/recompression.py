"""What a leader does where the topic has a codec of its own (`compression.type`).

    producer sent     compression.type     written
    ─────────────     ────────────────     ───────
    lz4               producer             lz4, in the bytes that came
    lz4               zstd                 zstd, at compression.zstd.level
    lz4               uncompressed         not compressed
    lz4               lz4                  lz4, in the bytes that came: levels are for rewriting

Rule 1: records are not decoded. The blob behind the header is unpacked and packed again, so
that timestamps, offsets, headers and sequences are the producer's, byte for byte.

Rule 2: a control batch that came uncompressed stays so.

Rule 3: the sizes that a topic allows hold for what came and for what is written.

(LogValidator in Kafka, which builds each record anew.)
"""

from collections.abc import Sequence
from typing import Final

from storage.batch.allowance import Allowance
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import BatchHeader, read_header, with_records
from storage.batch.records import unpack
from storage.config import LogConfig
from storage.log.append import PlacedBatch, check_message_size, most_decompressed

# A byte takes so much longer to compress than to decompress, at the higher levels.
_TIMES_AS_LONG: Final = 32


def recompress(
    records: memoryview,
    batches: Sequence[PlacedBatch],
    config: LogConfig,
    *,
    allowance: Allowance | None = None,
) -> tuple[memoryview, list[PlacedBatch]]:
    """Return the buffer to append, and where its batches stand: the one given if nothing changes.

    Raise LongCheckError where that costs more than `allowance`.
    """
    target = config.target_codec
    if target is None or not any(_changes(header, target) for _, header in batches):
        return records, list(batches)
    made = bytearray()
    placed = []
    for position, header in batches:
        batch: memoryview | bytearray = records[position : position + header.size]
        if _changes(header, target):
            plain = unpack(header, batch, max_size=most_decompressed(header.size))
            if allowance is not None:
                allowance.spend_bytes(_TIMES_AS_LONG * len(plain))
            batch = with_records(batch, target, compress(target, plain, config.level_of(target)))
        placed.append(PlacedBatch(len(made), read_header(batch)))
        check_message_size(placed[-1].header, config)
        made += batch
    return memoryview(made), placed


def _changes(header: BatchHeader, target: Codec) -> bool:
    untouched = header.is_control and header.codec is Codec.NONE
    return header.codec is not target and not untouched
