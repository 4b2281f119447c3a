"""The pipeline: Spark reads what the cluster has written, through PySpark and without a jar.

    session.py    a Spark session with what the sources need, or the user's own
    java.py       Java from JAVA_HOME, the PATH or PyPI; class_data.py makes it start sooner
    shipping.py   this code on the executors of a cluster
    source/       records as Spark tables: `spark.read.format("understudy")`
    formats/      values in the Confluent wire format as columns: Avro, Protobuf, JSON Schema
    audit/        whether the replicas hold the same batches, by their headers
    export/       topics as Parquet, Delta or Iceberg, each record once
    journals/     ISR and lag over time, and failovers; from the brokers' event journals
    reports/      the results of jobs, as one HTML file each

Jobs are functions over DataFrames: they run under `understudy pipeline`, under spark-submit and
in a notebook.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the format `understudy` known to a session that was not made by `pipeline.session`."""
    from pipeline.source.data_source import register as register_source  # noqa: PLC0415 - heavy

    register_source(spark)
