"""Folds of header rows that are a table already: the sums of `folding.py`, made by Spark's JVM.

The hashes are of the same columns as there, but other hashes: only folds of one kind are
compared with each other. Each hash of 64 bits is added up in two halves, as Spark takes a sum that goes
beyond 64 bits for an error.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions as f

from pipeline.audit.folding import Fold, Who
from pipeline.audit.header_stream import FINGERPRINT
from storage.types import Offset, TopicPartition

_HASHES: Final = 2
_LOW_HALF: Final = 2**32 - 1


def folds_of(
    batches: DataFrame, starts: Mapping[TopicPartition, Offset]
) -> Iterator[tuple[Who, Fold]]:
    """Yield the fold of each replica in `batches` whose partition `starts` names."""
    rows = [(where.topic, where.partition, start) for where, start in starts.items()]
    wanted = batches.sparkSession.createDataFrame(
        rows, "topic string, partition int, start_offset bigint"
    )
    digest = [each for number in range(_HASHES) for each in _sums_of_hash(number)]
    is_damaged = f.col("damage").isNotNull() | ~f.coalesce("is_sound", f.lit(True))
    counted = (
        batches.join(f.broadcast(wanted), ["topic", "partition"])
        .where((f.col("last_offset") >= f.col("start_offset")) | f.col("damage").isNotNull())
        .groupBy("replica", "topic", "partition")
        .agg(
            f.count("*").alias("batches"),
            f.coalesce(f.sum("record_count"), f.lit(0)).alias("records"),
            f.coalesce(f.sum("size"), f.lit(0)).alias("size"),
            (f.max("last_offset") + 1).alias("end_offset"),
            f.max_by("leader_epoch", "base_offset").alias("last_epoch"),
            f.array(*digest).alias("digest"),
            f.bool_or(is_damaged).alias("is_damaged"),
        )
    )
    for replica, topic, partition, *sums, digests, damaged in counted.collect():
        fold = Fold(
            **dict(zip(_SUMS, sums, strict=True)), digest=tuple(digests), is_damaged=damaged
        )
        yield (replica, TopicPartition(topic, partition)), fold


_SUMS: Final = ("batches", "records", "size", "end_offset", "last_epoch")


def _sums_of_hash(number: int) -> Iterator[Column]:
    found = f.xxhash64(f.lit(number), *FINGERPRINT)
    yield f.sum(f.shiftright(found, 32))
    yield f.sum(found.bitwiseAND(_LOW_HALF))
