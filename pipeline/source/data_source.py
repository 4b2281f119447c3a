r"""`spark.read.format("understudy")`: Kafka's records as Spark tables.

    Name      understudy
    Schema    that of Spark's Kafka source; a schema given to `.schema()` is the projection
    Options   docs/pipeline.md

    spark.read.format("understudy").load("broker-1,broker-2,broker-3")
    spark.read.format("understudy").option("kafka.bootstrap.servers", "b1:9092") \
        .option("subscribe", "orders").load()

Heavy modules are imported where they are needed: Spark makes this object in many short processes.
"""

from collections.abc import Sequence
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

from pipeline.source.columns import (
    FormatColumns,
    check_schema,
    ddl,
    formats_for,
    kinds_for,
    names_for,
    spark_schema,
)
from pipeline.source.errors import OptionError
from pipeline.source.options import parse_read_options
from pipeline.source.reader import reader_class
from pipeline.source.stream import stream_class

if TYPE_CHECKING:
    from pipeline.source.sink import SinkOptions


class UnderstudyDataSource(DataSource):
    """The data source `understudy`."""

    @classmethod
    def name(cls) -> str:
        return "understudy"

    def schema(self) -> StructType | str:
        # Spark does not say here whether it is a stream; the reader parses the options again.
        options = parse_read_options(self.options, streaming=None)
        formats = formats_for(options)
        names = names_for(options, formats)
        return spark_schema(names, formats) if formats else ddl(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options, streaming=False)
        formats = formats_for(options)
        return reader_class()(options, names_of(schema, formats), formats)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        options = parse_read_options(self.options, streaming=True)
        formats = formats_for(options)
        return stream_class()(options, names_of(schema, formats), formats)

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
                "a topic can only be appended to: not mode overwrite, nor output mode complete"
            )
        kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
        return parse_sink_options(self.options, kinds)


def names_of(schema: StructType, formats: Sequence[FormatColumns] = ()) -> list[str]:
    """Return the names of a schema's columns, in order; raise OptionError for an unknown one."""
    given = [(each.name, each.dataType.simpleString()) for each in schema.fields]
    return check_schema(given, kinds_for(formats))


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    spark.dataSource.register(UnderstudyDataSource)
