"""Do the replicas of every partition hold the same batches, as their headers tell?

Each replica's log is a sequence of batches, and a follower appends the leader's batches
as they are. So the logs are compared batch by batch, by base offset:

    broker-1   [0-4 e0 crc a][5-9 e0 crc b][10-14 e1 crc c]
    broker-2   [0-4 e0 crc a][5-9 e0 crc b][10-12 e0 crc d]
                                            ^ the first offset where they part

The comparison begins at the highest log start: what lies below it one replica has
already deleted, as retention allows. It ends at the highest end: what one replica lacks
there is a missing tail, and the logs part where it begins.

A header holds the CRC of what follows it, so equal headers mean equal records as they
were written. Bit rot after that only shows in a full read: `understudy verify`.
"""

from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession, Window, functions as f

from pipeline.batches import register

KEY = ["topic", "partition"]
# What must be equal: all that identifies a batch, with the epoch that the CRC leaves out.
FINGERPRINT = ["last_offset", "leader_epoch", "crc", "size"]


def audit(batches: DataFrame) -> DataFrame:
    """One row per partition: same, or the first offset where the replicas part.

    Args:
        batches: rows of the `understudy-batches` source, from every replica's directory.

    Returns:
        topic, partition, replicas, log_start_offset, log_end_offset, batches, same,
        first_divergent_offset (null where same), leader_epochs (replica to epoch there),
        sorted by topic and partition.
    """
    replicas = batches.groupBy(*KEY, "replica").agg(
        f.min("log_start_offset").alias("start"), (f.max("last_offset") + 1).alias("end")
    )
    ranges = replicas.groupBy(*KEY).agg(
        f.sort_array(f.collect_set("replica")).alias("replicas"),
        f.max("start").alias("log_start_offset"),
        f.coalesce(f.max("end"), f.max("start")).alias("log_end_offset"),
    )
    compared = compare(batches, ranges)
    first = first_divergence(compared)
    counts = compared.groupBy(*KEY).agg(f.count("*").alias("batches"))
    return (
        ranges.join(counts, KEY, "left")
        .join(first, KEY, "left")
        .select(
            *KEY,
            "replicas",
            "log_start_offset",
            "log_end_offset",
            f.coalesce("batches", f.lit(0)).alias("batches"),
            f.col("first_divergent_offset").isNull().alias("same"),
            "first_divergent_offset",
            "leader_epochs",
        )
        .orderBy(*KEY)
    )


def compare(batches: DataFrame, ranges: DataFrame) -> DataFrame:
    """One row per partition and base offset: who holds a batch there, and is it one and the same."""
    held = batches.where("base_offset is not null").drop("log_start_offset").join(ranges, KEY)
    return (
        held.where("last_offset >= log_start_offset")
        .groupBy(*KEY, "base_offset")
        .agg(
            f.first("replicas").alias("replicas"),
            f.countDistinct("replica").alias("holders"),
            f.countDistinct(f.struct(*FINGERPRINT)).alias("variants"),
            f.map_from_entries(f.collect_list(f.struct("replica", "leader_epoch"))).alias(
                "leader_epochs"
            ),
        )
        .withColumn("agree", (f.col("holders") == f.size("replicas")) & (f.col("variants") == 1))
    )


def first_divergence(compared: DataFrame) -> DataFrame:
    """The lowest base offset of each partition at which the replicas do not agree."""
    by_offset = Window.partitionBy(*KEY).orderBy("base_offset")
    return (
        compared.where(~f.col("agree"))
        .withColumn("rank", f.row_number().over(by_offset))
        .where("rank = 1")
        .select(*KEY, f.col("base_offset").alias("first_divergent_offset"), "leader_epochs")
    )


@attrs.frozen
class AuditRow:
    """What `audit` says of one partition."""

    topic: str
    partition: int
    replicas: list[str]
    log_start_offset: int
    log_end_offset: int
    batches: int
    same: bool
    first_divergent_offset: int | None
    leader_epochs: dict[str, int] | None

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        span = f"[{self.log_start_offset}, {self.log_end_offset})"
        if self.same:
            return f"{where} same {span} in {self.batches:,} batches"
        epochs = ", ".join(f"{name} e{epoch}" for name, epoch in sorted(self.epochs.items()))
        return f"{where} differs at offset {self.first_divergent_offset} of {span}: {epochs}"

    @property
    def epochs(self) -> dict[str, int]:
        """Each replica's leader epoch where they part; one that has nothing there is left out."""
        return self.leader_epochs or {}


def audit_directories(
    session: SparkSession, paths: Sequence[str], names: Sequence[str] | None = None
) -> list[AuditRow]:
    """Audit log directories, one for each replica, and bring the answer to the driver."""
    register(session)
    reader = session.read.format("understudy-batches").option("path", ",".join(paths))
    if names is not None:
        reader = reader.option("names", ",".join(names))
    return [AuditRow(**row.asDict()) for row in audit(reader.load()).collect()]
