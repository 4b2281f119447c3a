"""Log directories made by hand: what the audit and `verify` are to tell apart."""

from pathlib import Path

from hypothesis import strategies as st

from storage.batch.records import Record, encode_batch


def batch(base_offset: int, *values: bytes, leader_epoch: int = 0) -> bytes:
    """A batch whose records are `values`, from `base_offset` on."""
    records = [Record(timestamp=1000 + base_offset, value=value) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def write_segment(log_dir: Path, partition: str, base_offset: int, *batches: bytes) -> None:
    directory = log_dir / partition
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))


def write_replica(log_dir: Path, partition: str, *batches: bytes) -> None:
    """A log of one segment that begins at offset 0."""
    write_segment(log_dir, partition, 0, *batches)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Draw batches in order, of a few shapes, some missing."""
    offset, found = 0, []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.sampled_from([0, 0, 0, 2]))
        values = [b"v"] * draw(st.integers(1, 3))
        found.append(batch(offset, *values, leader_epoch=draw(st.integers(0, 1))))
        offset += len(values)
    return found
