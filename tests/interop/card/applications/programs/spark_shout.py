"""Copies the topic `lines` to `shouted`, in capitals. Arguments: servers, checkpoints, Spark's jars."""

import sys

from pyspark.sql import SparkSession, functions

servers, checkpoints, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .getOrCreate()
)
lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "lines")
    .option("startingOffsets", "earliest")
    .load()
)
shouted = lines.select(functions.upper(lines.value.cast("string")).alias("value"))
query = (
    shouted.writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "shouted")
    .option("checkpointLocation", checkpoints)
    .start()
)
query.awaitTermination()
