"""The bytes on the platter, and those that only the page cache knows (theory: storage.testing)."""

import enum
import errno
import fnmatch
import functools
import os
import random
from collections.abc import Callable, Collection, Iterator

import attrs

from storage.attributes import define, frozen

SECTOR = 512
CHANGES = frozenset(
    (
        "write",
        "truncate",
        "allocate",
        "sync",
        "rename",
        "remove",
        "remove_tree",
        "set_modified",
        "sync_directory",
        "open",
    )
)
"""The operations that may change what is on the disk."""


@frozen(kw_only=True)
class DiskCosts:
    """Seconds; the defaults are a good SSD."""

    open: float = 20e-6
    read: float = 2e-6
    read_per_byte: float = 0.2e-9
    write: float = 3e-6
    write_per_byte: float = 0.5e-9
    sync: float = 1e-3


@define(kw_only=True)
class Fault:
    """Raise `error` when `operation` meets a file whose name matches `names`.

    `partial`: half of a write is there. `misplaced`: nothing is raised, and on the platter a write
    lands that many bytes behind where it belongs. The page cache hides that until it drops the pages.
    """

    operation: str
    names: str = "*"
    error: int = errno.EIO
    skip: int = 0
    times: int | None = 1
    partial: bool = False
    misplaced: int = 0

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or not matches(path, self.names):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0

    def awaits(self, operations: Collection[str], path: str) -> bool:
        """Return whether one of `operations` on the file may still meet it."""
        left = self.times is None or self.times > 0
        return left and self.operation in operations and matches(path, self.names)


@define(kw_only=True)
class PowerFailure(Fault):
    """Call `cut`, which cuts the power, once `after` changes of the disk are done: the first of them
    is the next one that matches. With 0 that one is not done.
    """

    cut: Callable[[], None]
    after: int = 0
    _begun: bool = attrs.field(default=False, init=False)

    def strikes(self, operation: str, path: str) -> bool:
        """Return whether the power fails now; after that it fails no more."""
        counts = operation in CHANGES if self._begun else super().strikes(operation, path)
        if not counts:
            return False
        self._begun = True
        self.after -= 1
        return self.after == -1


class Fate(enum.IntEnum):
    """The part that a power cut leaves of a write that was not synced."""

    WHOLE = 0
    # Up to a sector's end on the platter.
    FIRST_PART = 1
    # The length made it, the bytes did not.
    ZEROES = 2
    # Any of them.
    SECTORS = 3
    # Nor of names: a directory is as it was when it was last synced.
    NOTHING = 4
    # What came before the first cut that was not synced, all of it; the cut, and what came
    # after it, not. Chance does without this one: it comes by it now and then.
    UNCUT = 5


@frozen
class Write:
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        end = self.position + len(self.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[self.position : end] = self.data

    def torn(self, chance: random.Random, fate: Fate | None) -> Iterator["Write"]:
        """Yield what a power cut leaves of the write; chance decides where `fate` is None."""
        match Fate(chance.randrange(Fate.UNCUT)) if fate is None else fate:
            case Fate.WHOLE | Fate.UNCUT:
                yield self
            case Fate.FIRST_PART:
                sectors = chance.randrange(0, len(self.data) + SECTOR, SECTOR)
                yield Write(self.position, self.data[: max(0, sectors - self.position % SECTOR)])
            case Fate.ZEROES:
                yield Write(self.position, bytes(len(self.data)))
            case Fate.SECTORS:
                for part in self._sectors():
                    if chance.random() < 0.5:
                        yield part
            case Fate.NOTHING:  # pragma: no branch - there is no other, as mypy knows
                return

    def _sectors(self) -> Iterator["Write"]:
        start = 0
        while start < len(self.data):
            end = start + SECTOR - (self.position + start) % SECTOR
            yield Write(self.position + start, self.data[start:end])
            start = end


@frozen
class Truncate:
    size: int

    def apply(self, content: bytearray) -> None:
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))


@define(eq=False, repr=False)
class FileNode:
    """The bytes as the kernel shows them, as they would survive, and what lies between."""

    content: bytearray = attrs.field(factory=bytearray)
    durable: bytearray = attrs.field(factory=bytearray)
    unsynced: list[Write | Truncate] = attrs.field(factory=list)
    modified_ms: int = 0
    misplaced: list[tuple[Write, Write]] = attrs.field(factory=list)
    """The writes that land, or have landed, elsewhere on the platter: where each belongs, and where
    it lands.
    """

    def do(self, change: Write | Truncate) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    def misplace(self, write: Write, moved_by: int) -> None:
        """Write to where it belongs in the page cache, and elsewhere on the platter."""
        lands = Write(max(0, write.position + moved_by), write.data)
        write.apply(self.content)
        self.unsynced.append(lands)
        self.misplaced.append((write, lands))

    def put_back(self) -> None:
        """Move what was misplaced to where it belongs, unless something else is there by now."""
        for write, lands in reversed(self.misplaced):
            waiting = [number for number, each in enumerate(self.unsynced) if each is lands]
            for number in waiting:
                self.unsynced[number] = write
            for content in (self.content, self.durable):
                there = bytes(content[write.position : write.position + len(write.data)])
                if there == _damaged(write, lands):
                    write.apply(content)
        self.misplaced.clear()
        if not self.unsynced:
            del self.durable[len(self.content) :]

    def sync(self) -> None:
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()

    def evict(self) -> None:
        """Drop clean pages, as a kernel that needs the memory: they are read from the platter
        again.
        """
        self.content = bytearray(self.durable)
        for change in self.unsynced:
            change.apply(self.content)

    def crash(self, chance: random.Random, fate: Fate | None) -> bool:
        """Lose what a power cut takes; return whether a truncation was undone by it."""
        truncations = [i for i, change in enumerate(self.unsynced) if isinstance(change, Truncate)]
        survived = 0 if fate is Fate.UNCUT else len(truncations)
        if fate is None:
            survived = chance.randint(0, len(truncations))
        end = truncations[survived] if survived < len(truncations) else len(self.unsynced)
        for change in self.unsynced[:end]:
            if isinstance(change, Truncate):
                change.apply(self.durable)
            else:
                for part in change.torn(chance, fate):
                    part.apply(self.durable)
        self.unsynced.clear()
        self.content = bytearray(self.durable)
        return survived < len(truncations)


def _damaged(write: Write, lands: Write) -> bytes:
    """Return what a write that landed behind its place has left there: a hole, and its beginning."""
    hole = bytes(min(lands.position - write.position, len(write.data)))
    return hole + write.data[: len(write.data) - len(hole)]


@define(eq=False, repr=False)
class DirectoryNode:
    entries: dict[str, "Node"] = attrs.field(factory=dict)
    durable: dict[str, "Node"] = attrs.field(factory=dict)
    unsynced: list[dict[str, "Node | None"]] = attrs.field(factory=list)

    def do(self, change: "dict[str, Node | None]") -> None:
        """Give, in one step, every name in `change` its node, or none."""
        _apply_names(self.entries, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply_names(self.durable, change)
        self.unsynced.clear()

    def crash(self, chance: random.Random, fate: Fate | None) -> list[str]:
        """Lose what a power cut takes; return the names of the files whose truncation was undone by
        it.
        """
        kept = 0 if fate is Fate.NOTHING else len(self.unsynced)
        if fate is None:
            kept = chance.randint(0, kept)
        for change in self.unsynced[:kept]:
            _apply_names(self.durable, change)
        self.unsynced.clear()
        self.entries = dict(self.durable)
        undone: list[str] = []
        for name, node in self.entries.items():
            found = node.crash(chance, fate)
            undone += found if isinstance(found, list) else [name] * found
        return undone


Node = FileNode | DirectoryNode


def _apply_names(entries: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@define(eq=False)
class SimulatedDisk:
    """One node's disk; it outlives the processes that use it."""

    chance: random.Random
    costs: DiskCosts = attrs.field(factory=DiskCosts)
    wall_ms: Callable[[], int] = lambda: 0
    capacity: int | None = None
    # Answers every sync of a file of these names with success, and does nothing.
    lies: bool = False
    lies_about: str = "*"
    faults: list[Fault] = attrs.field(factory=list)
    root: DirectoryNode = attrs.field(factory=DirectoryNode)
    locks: dict[str, object] = attrs.field(factory=dict)

    def power_cut(self, fate: Fate | None = None) -> list[str]:
        """Cut the power; return the names of the files whose truncation was undone by it.

        With `fate` all unsynced writes end so, and no name or length is lost, but for the lengths
        of `Fate.UNCUT` and the names under `Fate.NOTHING`.
        """
        self.locks.clear()
        return self.root.crash(self.chance, fate)

    def honest_about(self, path: str) -> bool:
        return not (self.lies and matches(path, self.lies_about))

    def node(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path_names(path):
            if type(node) is not DirectoryNode:
                return None
            node = node.entries.get(name)
        return node

    def directory(self, path: str) -> DirectoryNode:
        node = self.node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def file(self, path: str) -> FileNode:
        node = self.node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def used(self) -> int:
        def size(node: Node) -> int:
            if isinstance(node, FileNode):
                return len(node.content)
            return sum(size(child) for child in node.entries.values())

        return size(self.root)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Bit rot: `data` is there now, on the platter as well if that reaches so far, and nobody
        wrote it.
        """
        node = self.file(path)
        for content in (node.content, node.durable):
            if position < len(content):
                Write(position, data).apply(content)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a file: the least bit rot."""
        byte = self.file(path).content[position]
        self.corrupt(path, position, bytes([byte ^ 1 << bit]))


def matches(path: str, names: str) -> bool:
    """Return whether a file has one of `names`, or its path where these have a slash."""
    return fnmatch.fnmatch(path if "/" in names else os.path.basename(path), names)


@functools.lru_cache(maxsize=4096)  # a node asks for the same few again and again
def parent_and_name(path: str) -> tuple[str, str]:
    return os.path.split(path)


@functools.lru_cache(maxsize=4096)
def path_names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))
