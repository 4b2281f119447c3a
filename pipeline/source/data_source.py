r"""`spark.read.format("understudy")`: Kafka's records as Spark tables.

    Name      understudy
    Schema    that of Spark's Kafka source; what is given to `.schema()` is the projection
    Options   docs/pipeline.md

    spark.read.format("understudy").load("broker-1,broker-2,broker-3")
    spark.read.format("understudy").option("kafka.bootstrap.servers", "b1:9092") \
        .option("subscribe", "orders").load()

What is heavy is imported where it is needed: Spark makes this object in many small processes.
"""

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.source.columns import check_schema, ddl, names_for
from pipeline.source.errors import OptionError
from pipeline.source.options import parse_read_options
from pipeline.source.reader import reader_class
from pipeline.source.stream import stream_class

if TYPE_CHECKING:
    from pipeline.source.sink import SinkOptions


class UnderstudyDataSource(DataSource):
    """See the module's docstring."""

    @classmethod
    def name(cls) -> str:
        return "understudy"

    def schema(self) -> str:
        # Whether it is a stream is not known here; its reader looks at the options again.
        return ddl(names_for(parse_read_options(self.options, streaming=None)))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options, streaming=False)
        return reader_class()(options, names_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        options = parse_read_options(self.options, streaming=True)
        return stream_class()(options, names_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        from pipeline.source.sink import RecordsWriter  # noqa: PLC0415 - brings the client

        return RecordsWriter(self._sink_options(schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        from pipeline.source.sink import RecordsStreamWriter  # noqa: PLC0415 - as above

        return RecordsStreamWriter(self._sink_options(schema, overwrite=overwrite))

    def _sink_options(self, schema: StructType, *, overwrite: bool) -> "SinkOptions":
        from pipeline.source.sink import parse_sink_options  # noqa: PLC0415 - as above

        if overwrite:
            raise OptionError(
                "a topic is appended to: mode overwrite, output mode complete are not"
            )
        kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
        return parse_sink_options(self.options, kinds)


def names_of(schema: StructType) -> list[str]:
    """The columns that are wanted, in order."""
    return check_schema([(each.name, each.dataType.simpleString()) for each in schema.fields])


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    spark.dataSource.register(UnderstudyDataSource)
