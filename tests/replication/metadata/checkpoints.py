"""Snapshots of the metadata as bytes, for tests that have no file."""

from replication.metadata.rules.checkpoint import CheckpointReader
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.snapshot import decode_snapshot, encode_snapshot
from storage.batch.record_batch import walk
from storage.types import OffsetAndEpoch


def snapshot_bytes(image: MetadataImage) -> bytes:
    return b"".join(encode_snapshot(image, wall_ms=1000, last_timestamp_ms=900))


def reader_of(data: bytes) -> CheckpointReader:
    return CheckpointReader(
        data[position : position + header.size] for position, header in walk(data)
    )


def image_in(data: bytes, end: OffsetAndEpoch) -> MetadataImage:
    return decode_snapshot(reader_of(data), end)
