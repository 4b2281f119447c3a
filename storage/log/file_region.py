"""A stretch of a file on its way to somewhere: what a read answers with.

Record bytes are not read into Python to be sent. A read hands out where they lie, and
`sendfile` takes them from the page cache to the socket; only TLS, an in-memory
connection and a reader in this process bring them into memory, in bounded chunks.

A region pins its file while it is on its way:

    deleted below it      the file stays open until its last region is gone
    truncated below it    the region is aborted; its sender must close the
                          connection, because what it promised is no longer there

A region lets go when it is released or dropped, whichever comes first, so that no path
through a cancelled handler can leak a descriptor.
"""

import weakref
from functools import partial

import attrs

from storage.attributes import define
from storage.errors import RegionAbortedError
from storage.filesystem import File


@define(eq=False)
class FileRegion:
    """`size` bytes of `file` from `position`."""

    file: File
    position: int
    size: int
    aborted: bool = attrs.field(default=False, init=False)
    _pins: "Pins | None" = attrs.field(default=None, repr=False)

    def check(self) -> None:
        """Raise RegionAbortedError where the region has been cut. A sender of the file itself asks before
        each chunk, and again after the last.
        """
        if self.aborted:
            raise RegionAbortedError(
                f"{self.file.path} was truncated below {self.position + self.size} while being sent"
            )

    def read(self) -> bytes:
        """Return all of it, in memory."""
        self.check()
        return self.file.read(self.position, self.size)

    def read_into(self, buffer: memoryview, *, skip: int = 0) -> int:
        """Fill `buffer` from `skip` bytes into the region; return how many bytes were there."""
        self.check()
        wanted = min(len(buffer), self.size - skip)
        return self.file.read_into(self.position + skip, buffer[:wanted])

    def release(self) -> None:
        """Let go of the file. Twice is harmless, and so is never: dropping it does the same."""
        pins, self._pins = self._pins, None
        if pins is not None:
            pins.release(self)


@define(eq=False)
class Pins:
    """The regions of one file that are on their way."""

    file: File
    _regions: dict[int, weakref.ref[FileRegion]] = attrs.field(factory=dict)
    _closing: bool = False

    def __len__(self) -> int:
        return len(self._regions)

    def pin(self, position: int, size: int) -> FileRegion:
        assert not self._closing, "a file on its way out takes no new readers"
        region = FileRegion(self.file, position, size, self)
        key = id(region)
        self._regions[key] = weakref.ref(region, partial(self._forget, key))
        return region

    def release(self, region: FileRegion) -> None:
        self._forget(id(region))

    def abort_beyond(self, size: int) -> None:
        """Abort the regions that reach past `size`, which the file is about to be cut to."""
        for reference in list(self._regions.values()):
            region = reference()
            if region is not None and region.position + region.size > size:
                region.aborted = True

    def close(self) -> None:
        """Close the file now, or when its last region lets go."""
        self._closing = True
        self._close_if_free()

    def _forget(self, key: int, _: object = None) -> None:
        self._regions.pop(key, None)
        if self._closing:
            self._close_if_free()

    def _close_if_free(self) -> None:
        if not self._regions:
            self.file.close()
