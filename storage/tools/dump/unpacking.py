"""How much a dump decompresses: in proportion to the bytes of the file, whatever these say.

    16 MiB, and 256 bytes for each byte of the batches so far      decompressed
    8 for each byte of its batch                                   records

A few hundred bytes of zstd may stand for hundreds of MiB. What is more than this was made to
exhaust its reader, or holds large values that are all alike: it is named, and not shown. A leader
takes no single batch that is out of this proportion (`storage.log.append`).
"""

import attrs

from storage.batch.records import MAX_DECOMPRESSED_SIZE, unpack
from storage.errors import CorruptRecordError, ExpansionError
from storage.log.append import DECOMPRESSED_AT_LEAST, DECOMPRESSED_PER_BYTE, MAX_RECORDS_PER_BYTE
from storage.log.segment_file import StoredBatch


@attrs.define
class Unpacking:
    """What may still be decompressed of one file."""

    _left: int = DECOMPRESSED_AT_LEAST

    def unpack(self, batch: StoredBatch) -> bytes:
        """Return the records of `batch`; raise CorruptRecordError where they are too many bytes."""
        header = batch.header
        if header.record_count > header.size * MAX_RECORDS_PER_BYTE:
            raise CorruptRecordError(
                f"{header.record_count} records in {header.size} bytes are too many to show"
            )
        self._left += header.size * DECOMPRESSED_PER_BYTE
        most = max(1, min(self._left, MAX_DECOMPRESSED_SIZE))
        try:
            data = bytes(unpack(header, batch.data, max_size=most))
        except ExpansionError as error:
            self._left -= most  # it took as long as if it had been shown
            raise CorruptRecordError(f"too much for so few bytes to show: {error}") from error
        self._left -= len(data)
        return data
