"""File regions as memory, a bounded piece at a time.

They are for connections without `sendfile`: in memory, with TLS, or of files that exist only in a
simulation. A region of a gigabyte costs one chunk.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from replication.errors import PeerUnavailableError
from storage.errors import RegionAbortedError
from storage.log.file_region import FileRegion

CHUNK_BYTES = 64 * 1024
_UNREADABLE = (ValueError, OSError, RegionAbortedError)


def region_chunks(region: FileRegion, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Yield `region` in chunks, each valid until the next one."""
    room = memoryview(bytearray(min(chunk_bytes, region.size)))
    done = 0
    while done < region.size:
        chunk = room[: min(len(room), region.size - done)]
        with region_readable(region):
            filled = region.read_into(chunk, skip=done)
        if filled < len(chunk):
            raise region_lost(region, f"ends at {region.position + done + filled}")
        yield chunk
        done += filled
    with region_readable(region):
        pass  # the last chunk may have been truncated meanwhile


def region_bytes(region: FileRegion) -> bytes:
    """Return all bytes of a small region."""
    try:
        data = region.read()
    except _UNREADABLE as error:  # as in `region_readable`, which costs more than a small read
        raise _unreadable(region, error) from error
    if len(data) < region.size:
        raise region_lost(region, f"ends at {region.position + len(data)}")
    return data


@contextmanager
def region_readable(region: FileRegion) -> Iterator[None]:
    """Raise PeerUnavailableError if the bytes cannot be read, for whatever reason."""
    try:
        region.check()
        yield
    except _UNREADABLE as error:
        raise _unreadable(region, error) from error


def _unreadable(region: FileRegion, error: Exception) -> PeerUnavailableError:
    return region_lost(region, f"cannot be read ({error})")


def region_lost(region: FileRegion, reason: str) -> PeerUnavailableError:
    """Return the error for bytes that a frame has announced, and that cannot be read."""
    return PeerUnavailableError(
        f"{region.file.path} {reason}, inside a region of {region.size} bytes"
        f" at {region.position} that was being sent"
    )
