"""One process's view of a simulated disk (the theory: storage.testing)."""

import errno
import os
import random

from storage.attributes import define
from storage.errors import LogDirectoryLockedError, raise_shortage
from storage.filesystem import Space
from storage.testing.disk import (
    CHANGES,
    DirectoryNode,
    Fate,
    Fault,
    FileNode,
    PowerFailure,
    SimulatedDisk,
    Truncate,
    Write,
    parent_and_name,
    path_names,
)
from storage.types import Buffer


class DetachedError(OSError):
    """This process is dead: it may not touch the disk any more."""


UNBOUNDED = 1 << 40  # what a disk without a capacity says that it has

# What needs a descriptor of its own.
_OPENING = frozenset(("open", "list", "remove_tree", "sync_directory"))


def _killed(path: str) -> DetachedError:
    return DetachedError(errno.EIO, "this process was killed", path)


@define(eq=False)
class FaultyFile:
    path: str
    _system: "FaultyFileSystem"
    _node: FileNode
    _writable: bool = True
    closed: bool = False

    def read(self, position: int, size: int) -> bytes:
        self._enter("read", self._system.disk.costs.read)
        data = bytes(memoryview(self._node.content)[position : position + size])
        self._system.charge(len(data) * self._system.disk.costs.read_per_byte)
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, position: int, buffer: Buffer) -> None:
        disk = self._system.disk
        data = bytes(buffer)
        fault = self._enter_writing(
            "write", disk.costs.write + len(data) * disk.costs.write_per_byte
        )
        growth = position + len(data) - len(self._node.content)
        if fault is None and disk.capacity is not None and growth > 0:
            room = disk.capacity - disk.used()
            if growth > room:
                fault = Fault(operation="write", error=errno.ENOSPC, partial=True)
        if fault is not None and fault.misplaced:
            self._node.misplace(Write(position, data), fault.misplaced)
        elif fault is not None:
            if fault.partial:
                self._node.do(Write(position, data[: len(data) // 2]))
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        else:
            self._node.do(Write(position, data))
        self._node.modified_ms = disk.wall_ms()

    def truncate(self, size: int) -> None:
        fault = self._enter_writing("truncate", self._system.disk.costs.write)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        self._node.do(Truncate(size))

    def allocate(self, size: int) -> None:
        disk = self._system.disk
        fault = self._enter_writing("allocate", disk.costs.write)
        growth = size - len(self._node.content)
        if fault is None and disk.capacity is not None and growth > disk.capacity - disk.used():
            fault = Fault(operation="allocate", error=errno.ENOSPC)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        if growth > 0:
            self._node.do(Truncate(size))

    def size(self) -> int:
        self._enter("size", 0.0)
        return len(self._node.content)

    def sync(self) -> None:
        disk = self._system.disk
        fault = self._enter_writing("sync", disk.costs.sync)
        if fault is not None:
            self._node.unsynced.clear()  # the kernel marks the pages clean all the same
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        if disk.honest_about(self.path):
            self._node.sync()

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        self.closed = True

    def _enter(self, operation: str, cost: float) -> None:
        fault = self._faulted(operation, cost)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)

    def _enter_writing(self, operation: str, cost: float) -> Fault | None:
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading only", self.path)
        return self._faulted(operation, cost)

    def _faulted(self, operation: str, cost: float) -> Fault | None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")
        return self._system.enter(operation, self.path, cost)


@define(eq=False)
class FaultyLock:
    _system: "FaultyFileSystem"
    _path: str

    def release(self) -> None:
        if self._system.disk.locks.get(self._path) is self._system:
            del self._system.disk.locks[self._path]


class FaultyFileSystem:
    """One process's view of a `SimulatedDisk`."""

    def __init__(self, chance: random.Random, *, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk(chance)
        self.detached = False
        # How many changes to the disk have been asked for: each is a place to die at.
        self.changes = 0
        self._cost = 0.0
        self._dies_at: int | None = None

    # What happens to the process and to the machine.

    def detach(self) -> None:
        """Kill the process: nothing is lost, and nothing more is written."""
        self.detached = True
        for path in [path for path, holder in self.disk.locks.items() if holder is self]:
            del self.disk.locks[path]

    def crash(self, fate: Fate | None = None) -> None:
        """Cut the power: what was not synced is at the mercy of chance, or meets `fate`."""
        self.detach()
        self.disk.power_cut(fate)

    def die_after(self, changes: int) -> None:
        """Be killed in the middle of things: after this many more changes to the disk."""
        self._dies_at = self.changes + changes

    def reopen(self) -> "FaultyFileSystem":
        """Return the file system of the next process on the same disk."""
        return FaultyFileSystem(self.disk.chance, disk=self.disk)

    def inject(self, fault: Fault) -> Fault:
        self.disk.faults.append(fault)
        return fault

    # FileSystem.

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self._enter("open", path, self.disk.costs.open)
        parent_path, name = parent_and_name(path)
        parent = self.disk.directory(parent_path)
        if create and name not in parent.entries:
            parent.do({name: FileNode(modified_ms=self.disk.wall_ms())})
        return FaultyFile(path, self, self.disk.file(path))

    def open_for_reading(self, path: str) -> FaultyFile:
        self._enter("open", path, self.disk.costs.open)
        return FaultyFile(path, self, self.disk.file(path), writable=False)

    def exists(self, path: str) -> bool:
        self._enter("exists", path, 0.0)
        return self.disk.node(path) is not None

    def is_directory(self, path: str) -> bool:
        self._enter("exists", path, 0.0)
        return isinstance(self.disk.node(path), DirectoryNode)

    def is_link(self, path: str) -> bool:
        """Return False: a simulated disk has no links."""
        self._enter("exists", path, 0.0)
        return False

    def list_directory(self, path: str) -> list[str]:
        self._enter("list", path, self.disk.costs.open)
        return sorted(self.disk.directory(path).entries)

    def make_directory(self, path: str) -> None:
        self._enter("make_directory", path, self.disk.costs.open)
        directory = self.disk.root
        for name in path_names(path):
            child = directory.entries.get(name)
            if child is None:
                child = DirectoryNode()
                directory.do({name: child})
            if not isinstance(child, DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = child

    def rename(self, source: str, target: str) -> None:
        self._enter("rename", source, self.disk.costs.open)
        node = self.disk.node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        source_parent, source_name = parent_and_name(source)
        target_parent, target_name = parent_and_name(target)
        if source_parent == target_parent:
            self.disk.directory(source_parent).do({source_name: None, target_name: node})
        else:
            self.disk.directory(target_parent).do({target_name: node})
            self.disk.directory(source_parent).do({source_name: None})

    def remove(self, path: str) -> None:
        self._enter("remove", path, self.disk.costs.open)
        if isinstance(self.disk.node(path), DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._unlink(path)

    def remove_tree(self, path: str) -> None:
        self._enter("remove_tree", path, self.disk.costs.open)
        self._unlink(path)

    def modified_ms(self, path: str) -> int:
        self._enter("size", path, 0.0)
        node = self.disk.node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node.modified_ms if isinstance(node, FileNode) else self.disk.wall_ms()

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        self._enter("set_modified", path, self.disk.costs.open)
        self.disk.file(path).modified_ms = wall_ms

    def space(self, path: str) -> Space:
        self._enter("space", path, 0.0)
        self.disk.directory(path)
        total = UNBOUNDED if self.disk.capacity is None else self.disk.capacity
        return Space(total_bytes=total, usable_bytes=max(0, total - self.disk.used()))

    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory", path, self.disk.costs.sync)
        if self.disk.honest_about(path):
            self.disk.directory(path).sync()

    def lock(self, path: str) -> FaultyLock:
        self.open(path, create=True).close()
        if path in self.disk.locks:
            raise LogDirectoryLockedError(
                f"another process is using {os.path.dirname(path)} (it holds {path})"
            )
        self.disk.locks[path] = self
        return FaultyLock(self, path)

    def descriptors(self) -> int | None:
        return None

    def take_cost(self) -> float:
        cost, self._cost = self._cost, 0.0
        return cost

    # For the files of this process.

    def charge(self, seconds: float) -> None:
        self._cost += seconds

    def enter(self, operation: str, path: str, cost: float) -> Fault | None:
        """Begin an operation: charge its cost, and return the fault that strikes it, if one does."""
        if operation in CHANGES:
            if self.changes == self._dies_at:
                self.detach()
            self.changes += 1
        if self.detached:
            raise _killed(path)
        self.charge(cost)
        if not self.disk.faults:
            return None
        fault = next((f for f in self.disk.faults if f.strikes(operation, path)), None)
        if isinstance(fault, PowerFailure):
            fault.cut()
            raise _killed(path)
        return fault

    def _enter(self, operation: str, path: str, cost: float) -> None:
        fault = self.enter(operation, path, cost)
        if fault is not None:
            error = OSError(fault.error, os.strerror(fault.error), path)
            if operation in _OPENING:
                raise_shortage(error)
            raise error

    def _unlink(self, path: str) -> None:
        parent_path, name = parent_and_name(path)
        parent = self.disk.node(parent_path)
        if isinstance(parent, DirectoryNode) and name in parent.entries:
            parent.do({name: None})
