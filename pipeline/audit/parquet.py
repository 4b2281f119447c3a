"""Headers as Parquet files, for clusters whose log directories no single machine can read.

    beside broker 1   understudy audit-headers LOG_DIR --name broker-1 --to HEADERS
                        HEADERS/replicas/broker-1.parquet    a row for each replica
                        HEADERS/batches/broker-1.parquet     a row for each batch
    anywhere          understudy pipeline audit --headers HEADERS

Writing needs no Spark. A file appears whole or not at all; a second run replaces it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet

from pipeline.audit import headers, replicas
from replication.errors import UnderstudyError
from storage.filesystem import FileSystem

REPLICAS: Final = "replicas"
BATCHES: Final = "batches"


class NoHeadersError(UnderstudyError):
    """An error: a directory has no headers as `audit-headers` writes them."""


def write_headers(
    files: FileSystem,
    log_directory: str,
    *,
    name: str,
    to: Path,
    check_crcs: bool = False,
    on_replica: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Write the headers of every replica in `log_directory` under `name`; return the batch count.

    `on_replica` is called with the number of replicas that are done, and of all.
    """
    found = list(replicas.with_pasts(files, replicas.find_replicas(files, {name: log_directory})))
    if not found:
        raise replicas.NoLogDirectoryError(f"no partition in {log_directory}")
    # A path means nothing on another machine.
    rows = [replica.to_row() | {"directory": None} for replica in found]
    _write(
        to / REPLICAS, name, replicas.SCHEMA, [pa.RecordBatch.from_pylist(rows, replicas.SCHEMA)]
    )

    def segments() -> Iterator[headers.SegmentHeaders]:
        for done, replica in enumerate(found, start=1):
            yield from replicas.segments_of(files, replica)
            on_replica(done, len(found))

    batches = headers.rows_of(files, segments(), check_crcs=check_crcs)
    return _write(to / BATCHES, name, headers.SCHEMA, batches)


def _write(
    to: Path,
    name: str,
    schema: pa.Schema,
    batches: "Iterator[pa.RecordBatch] | list[pa.RecordBatch]",
) -> int:
    to.mkdir(parents=True, exist_ok=True)
    unfinished, count = to / f".{name}.unfinished", 0
    with pa.parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    unfinished.replace(to / f"{name}.parquet")
    return count
