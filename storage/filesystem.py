"""The disk seam: all operations of the operating system that storage uses.

Rule 1: paths are strings; a file is read and written at positions, never at a cursor.
Two readers and a writer therefore share one descriptor without a lock.

Rule 2: `write` puts all of the buffer there or raises `OSError`; it never copies it first.

Rule 3: a new name lasts through a crash only after `sync_directory` of its parent, and
bytes only after `sync` of their file. `OsFileSystem` inherits that from the kernel;
`storage.testing.FaultyFileSystem` simulates it, so that a test finds a missing sync.

Rule 4: what cannot be opened, or listed, for want of descriptors or memory is a `ShortageError`.

Rule 5: only regular files are opened. Other users may be able to write into a log directory: a
symbolic link there could lead anywhere, and the opening of a pipe could wait without end. Both are
an `IrregularFileError`. The path of the directory itself may contain links.

Rule 6: an operation has a cost in seconds. Real disks charge it themselves, so
`OsFileSystem` reports none; a simulated disk adds it up, and the offload seam sleeps it.
"""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import stat
from typing import Protocol

from storage.attributes import define, frozen
from storage.errors import IrregularFileError, LogDirectoryLockedError, raise_shortage
from storage.types import Buffer


@frozen(kw_only=True)
class Space:
    """The size of the volume that a directory lies on."""

    total_bytes: int
    usable_bytes: int
    """The bytes that an ordinary process may still write."""


class File(Protocol):
    """An open file. Closing twice is harmless; anything else after closing raises ValueError."""

    @property
    def path(self) -> str:
        """The path that it was opened at."""

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; return how many bytes were there."""

    def write(self, position: int, buffer: Buffer) -> None:
        """Put all of `buffer` at `position`, without copying it."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it with zeroes."""

    def allocate(self, size: int) -> None:
        """Extend the file with zeroes to at least `size` bytes, and reserve the space on the disk."""

    def size(self) -> int:
        """Return how many bytes the file has."""

    def sync(self) -> None:
        """Make the bytes durable (fsync)."""

    def descriptor(self) -> int | None:
        """Return the descriptor for `sendfile`, or None where there is no real file."""

    def close(self) -> None:
        """Close the file, without a sync."""


class Lock(Protocol):
    """An exclusive hold on a directory, given back by `release`."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """The operations on names and files, and those that make both durable."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raise FileNotFoundError where it is missing, unless
        `create`.
        """

    def open_for_reading(self, path: str) -> File:
        """Open a file for reading alone. Raise FileNotFoundError where it is missing."""

    def exists(self, path: str) -> bool:
        """Return whether `path` names a file, a directory or a link."""

    def is_directory(self, path: str) -> bool:
        """Return whether `path` names a directory."""

    def is_link(self, path: str) -> bool:
        """Return whether `path` names a symbolic link, whatever it leads to."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in the directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; an existing one is fine."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; a missing one is fine."""

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in wall-clock milliseconds."""

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        """Set when the file was last written; `sync` of the file makes that last."""

    def space(self, path: str) -> Space:
        """Return the size of the volume of `path` and its free space, in bytes."""

    def sync_directory(self, path: str) -> None:
        """Make the names in `path` durable."""

    def lock(self, path: str) -> Lock:
        """Take the lock file `path`. Raise LogDirectoryLockedError where another process holds it."""

    def descriptors(self) -> int | None:
        """Return how many files the process may have open; None where there is no limit."""

    def take_cost(self) -> float:
        """Return the seconds that operations have cost since the last call."""


def make_lasting_directory(file_system: FileSystem, path: str) -> None:
    """Make a directory and its parents so that a power cut leaves them there.

    A directory whose name was never synced goes, and takes along what was synced inside.
    """
    made = [path]
    while (parent := os.path.dirname(made[-1])) and not file_system.exists(parent):
        made.append(parent)
    file_system.make_directory(path)
    for directory in made:
        # One that we may not even read is not one that we have made something in.
        with contextlib.suppress(PermissionError):
            file_system.sync_directory(os.path.dirname(directory) or ".")


def _open_file(path: str, flags: int) -> int:
    """Open the regular file at `path`; raise IrregularFileError where something else is."""
    try:
        # A pipe is opened at once, and refused below; a link is not followed.
        descriptor = _open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise IrregularFileError(errno.ELOOP, "a symbolic link, not a file", path) from error
        if error.errno == errno.ENXIO:
            raise IrregularFileError(errno.ENXIO, "a socket or a pipe, not a file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IrregularFileError(errno.EINVAL, "not a regular file", path)
    return descriptor


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise_shortage(error)
        raise


@define(eq=False)
class OsFile:
    path: str
    _fd: int

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._open(), size, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self._open(), [buffer[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def write(self, position: int, buffer: Buffer) -> None:
        written = os.pwrite(self._open(), buffer, position)
        while written < len(buffer):
            rest = memoryview(buffer)[written:]
            written += os.pwrite(self._open(), rest, position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._open(), size)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._open(), 0, size)
        elif size > self.size():  # macOS: the length alone
            self.truncate(size)

    def size(self) -> int:
        return os.fstat(self._open()).st_size

    def sync(self) -> None:
        os.fsync(self._open())

    def descriptor(self) -> int | None:
        return self._open()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> int:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return self._fd


@define(eq=False)
class OsLock:
    path: str
    _fd: int

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFileSystem:
    """The kernel's files: what `FileSystem` promises, by the calls of `os`."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(path, _open_file(path, flags))

    def open_for_reading(self, path: str) -> OsFile:
        return OsFile(path, _open_file(path, os.O_RDONLY))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise_shortage(error)
            raise

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise_shortage(error)
            raise

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        os.utime(path, ns=(wall_ms * 1_000_000, wall_ms * 1_000_000))

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(
            total_bytes=found.f_frsize * found.f_blocks,
            usable_bytes=found.f_frsize * found.f_bavail,
        )

    def sync_directory(self, path: str) -> None:
        fd = _open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        fd = _open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise LogDirectoryLockedError(
                f"another process is using {os.path.dirname(path)} (it holds {path})"
            ) from error
        return OsLock(path, fd)

    def descriptors(self) -> int | None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft

    def take_cost(self) -> float:
        return 0.0
