"""Sales by day, from a Kafka topic to Parquet."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SALE = "shop string, cents long"


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    return (
        spark.read.format("understudy")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def by_day(records: DataFrame) -> DataFrame:
    sales = records.select(
        f.to_date("timestamp").alias("day"),
        f.from_json(f.col("value").cast("string"), SALE).alias("sale"),
    )
    return sales.groupBy("day", "sale.shop").agg(f.sum("sale.cents").alias("cents"))
