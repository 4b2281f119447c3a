"""File regions as memory, a bounded piece at a time.

For whatever cannot use `sendfile`: an in-memory connection, TLS, a file that exists only
in a simulation. A region of a gigabyte costs one chunk.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from replication.errors import PeerUnavailableError
from storage.errors import RegionAbortedError
from storage.log.file_region import FileRegion

CHUNK_BYTES = 64 * 1024
_UNREADABLE = (ValueError, OSError, RegionAbortedError)


def region_chunks(region: FileRegion, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """All of `region`, each chunk valid until the next is asked for."""
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
        pass  # what was sent last may have been cut away meanwhile


def region_bytes(region: FileRegion) -> bytes:
    """All of it, at once: for one that is small."""
    try:
        data = region.read()
    except _UNREADABLE as error:  # as in `region_readable`, which costs more than a small read
        raise _unreadable(region, error) from error
    if len(data) < region.size:
        raise region_lost(region, f"ends at {region.position + len(data)}")
    return data


@contextmanager
def region_readable(region: FileRegion) -> Iterator[None]:
    """Every way in which the bytes may be gone, as one: closed, cut away, a failing disk."""
    try:
        region.check()
        yield
    except _UNREADABLE as error:
        raise _unreadable(region, error) from error


def _unreadable(region: FileRegion, error: Exception) -> PeerUnavailableError:
    return region_lost(region, f"cannot be read ({error})")


def region_lost(region: FileRegion, reason: str) -> PeerUnavailableError:
    """The bytes that a frame has announced are gone: its connection cannot go on."""
    return PeerUnavailableError(
        f"{region.file.path} {reason}, inside a region of {region.size} bytes"
        f" at {region.position} that was being sent"
    )
