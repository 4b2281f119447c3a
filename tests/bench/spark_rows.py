"""The floor of `tests.bench.spark`: the same records, a row at a time, as a source without Arrow gives them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from storage.batch.record_batch import check_crc, walk
from storage.batch.records import decode_batch


@attrs.frozen
class File(InputPartition):
    path: str


class Rows(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset bigint, timestamp bigint, timestampType int"

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(self.options["path"])


@attrs.frozen
class Reader(DataSourceReader):
    path: str

    def partitions(self) -> list[InputPartition]:
        return [File(str(path)) for path in sorted(Path(self.path).glob("t-0/*.log"))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, File)
        data = memoryview(Path(partition.path).read_bytes())
        for position, header in walk(data):
            batch = data[position : position + header.size]
            if not check_crc(batch):
                raise RuntimeError("the benchmark's own batches are sound")
            for record in decode_batch(batch):
                yield record.key, record.value, "t", 0, record.offset, record.timestamp, 0
