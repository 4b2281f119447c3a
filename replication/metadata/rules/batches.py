"""Metadata records in record batches, which is how a log holds them.

One batch is what the controller decided at once. It is on disk whole or not at all (its
CRC sees to that), and it is applied at once, so that nobody ever sees half a decision.
"""

from collections.abc import Sequence

from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MetadataRecord, decode_record, encode_record
from storage.batch.record_batch import walk
from storage.batch.records import Record, decode_batch, encode_batch
from storage.types import NO_OFFSET, Buffer, LeaderEpoch


def batch_of(records: Sequence[MetadataRecord], *, wall_ms: int) -> bytearray:
    """Return one batch, writable, because the log stamps offset and epoch where they stand."""
    assert records, "an empty batch would say nothing"
    encoded = (
        Record(offset=NO_OFFSET, timestamp=wall_ms, key=None, value=encode_record(record))
        for record in records
    )
    return bytearray(encode_batch(encoded))


def apply_batches(image: MetadataImage, batches: Buffer) -> MetadataImage:
    """Return the image after the records of `batches` that lie beyond it.

    A partial batch at the end is left out. Raise MetadataError for a record that this release
    does not know.
    """
    view = memoryview(batches)
    for position, header in walk(view):
        if header.last_offset <= image.offset:
            continue
        records: list[MetadataRecord] = [
            decode_record(record.value)
            for record in decode_batch(view[position : position + header.size])
            if record.offset > image.offset and record.value is not None
        ]
        epoch: LeaderEpoch = header.leader_epoch
        image = image.apply_all(records, offset=header.last_offset, leader_epoch=epoch)
    return image
