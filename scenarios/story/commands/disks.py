"""The faults of disks and wall clocks.

    wipe b1                       replace its disk by an empty one
    image b1 old                  copy its disk, as a snapshot of a virtual machine would
    restore b1 old                replace its disk by that copy
    swap b2 b3                    exchange their disks

    lie b1 names=*.log            from now on a sync does nothing and reports success
    fail b1 write names=*.log error=ENOSPC times=1      the next such operation fails
    rot b1 t-0 17                 flip one bit of the batch that holds offset 17
    rot b1 t-0/*.index            flip one bit of each of its files of that name
    misdirect b1 t-0 512          its next write to that log lands so many bytes further on the platter
    spoil b1 t-0/leader-epoch-checkpoint  remove the second half of its files of that name
    lose b1 t-0 end-of-segment    lose what was synced of its log: the last batch of a segment that
                                  another one follows, or `all` records
    stale b1 t-0 repeated         add what a lost truncation may leave behind its log: the last batch
                                  once more, or an `earlier` one, of the leader epoch before
    jump b1 600s                  its wall clock jumps; -300s jumps back
    drift b1 100ms                its wall clock gains so much in a second
    speed b1 1.05                 so many seconds pass on both its clocks in a second

A node whose disk is taken away must be down. `recover` ends lies, failures and speeds, flips bits of
batches and checkpoints back, and moves misdirected writes to their place; lost writes stay lost. A lie that ends was no lie: what the disk had claimed is on it then.
"""

import copy
import errno
import fnmatch
import math
from collections.abc import Iterator
from operator import itemgetter

from scenarios.story.arguments import (
    Options,
    Words,
    exactly,
    nodes,
    number_of,
    partition_of,
    seconds_of,
)
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world.cluster import partition_directory
from scenarios.world.trace import BitFlipped, DiskLies, FileRotted, WriteMisdirected
from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.batch.record_batch import check_crc, stamp, walk
from storage.log.segment import LOG_SUFFIX
from storage.testing import Fault, SimulatedDisk
from storage.testing.disk import DirectoryNode, FileNode, Node
from storage.types import Offset, TopicPartition

ALWAYS = "always"
CHECKPOINT = "checkpoint"
HIGHEST_BIT = 7
SLOWEST, FASTEST = 0.5, 2.0
"""The speeds of a clock; oscillators differ by far less."""
READING = ("open", "read")
OPERATIONS = ("open", "read", "write", "truncate", "sync", "rename", "remove")


async def wipe(stage: Stage, words: Words, options: Options) -> list[str]:
    for name in _nodes_down(stage, words, options):
        stage.cluster.replace_disk(name, DirectoryNode())
    return []


async def image(stage: Stage, words: Words, options: Options) -> list[str]:
    name, title = exactly(words, 2, options)
    (node,) = nodes(stage, [name], {})
    stage.images[title] = copy.deepcopy(_contents(stage, node))
    return []


async def restore(stage: Stage, words: Words, options: Options) -> list[str]:
    name, title = exactly(words, 2, options)
    _nodes_down(stage, [name], {})
    if title not in stage.images:
        raise ScriptError(f"there is no image {title!r}")
    _put(stage, name, copy.deepcopy(stage.images[title]))
    return []


async def swap(stage: Stage, words: Words, options: Options) -> list[str]:
    one, other = _nodes_down(stage, exactly(words, 2, options), {})
    held, others = _contents(stage, one), _contents(stage, other)
    _put(stage, one, others)
    _put(stage, other, held)
    return []


def _nodes_down(stage: Stage, words: Words, options: Options) -> Words:
    for name in nodes(stage, words, options):
        if stage.cluster.is_running(name):
            raise ScriptError(f"{name} is up: nobody takes its disk")
    return words


def _contents(stage: Stage, name: str) -> Node:
    """Return the files of a node's disk, whose directory has the node's name."""
    contents = stage.world.disk(name).root.entries.get(name)
    if contents is None:
        raise ScriptError(f"the disk of {name} is empty")
    return contents


def _put(stage: Stage, name: str, contents: Node) -> None:
    root = DirectoryNode(entries={name: contents}, durable={name: contents})
    stage.cluster.replace_disk(name, root)


async def lie(stage: Stage, words: Words, options: Options) -> list[str]:
    names = options.pop("names", "*")
    for name in nodes(stage, words, options):
        stage.world.disk(name).lies = True
        stage.world.disk(name).lies_about = names
        stage.tell(DiskLies(node=name))
    return []


def end_lie(disk: SimulatedDisk) -> None:
    """Let a disk write what it claimed to have synced, and lie no more.

    Otherwise the next power cut would leave holes before what it has synced honestly since, and
    neither we nor Apache Kafka look for these.
    """
    nodes: list[Node] = [disk.root] if disk.lies else []
    disk.lies = False
    while nodes:
        node = nodes.pop()
        node.sync()
        if isinstance(node, DirectoryNode):
            nodes += node.entries.values()


async def fail(stage: Stage, words: Words, options: Options) -> list[str]:
    names, error = options.pop("names", "*"), options.pop("error", "EIO")
    times, skip = options.pop("times", "1"), number_of(options.pop("skip", "0"))
    name, operation = exactly(words, 2, options)
    nodes(stage, [name], {})
    number = getattr(errno, error, None)
    if operation not in OPERATIONS or not isinstance(number, int):
        raise ScriptError(f"fail NODE {'|'.join(OPERATIONS)} names=*.log error=EIO times=1")
    fault = Fault(
        operation=operation,
        names=names,
        error=number,
        skip=skip,
        times=None if times == ALWAYS else number_of(times),
        partial=operation == "write",
    )
    stage.world.disk(name).faults.append(fault)
    return []


def reading_faults(stage: Stage, name: str, directory: str) -> Iterator[str]:
    """Yield the injected faults that the node will meet when it reads its log there."""
    disk, seen = stage.cluster.disk(name), set[str]()
    logs = disk.list_directory(directory) if disk.is_directory(directory) else []
    for fault in stage.world.disk(name).faults:
        for log in logs:
            line = f"{fault.operation} of {log} fails ({errno.errorcode[fault.error]})"
            if log.endswith(LOG_SUFFIX) and fault.awaits(READING, log) and line not in seen:
                seen.add(line)
                yield line


async def misdirect(stage: Stage, words: Words, options: Options) -> list[str]:
    name, where, moved_by = exactly(words, 3, options)
    nodes(stage, [name], {})
    partition, distance = partition_of(where), number_of(moved_by)
    if distance < 1:
        raise ScriptError("misdirect NODE PARTITION BYTES: by one byte at least")
    names = f"*/{partition}/*{LOG_SUFFIX}"
    stage.world.disk(name).faults.append(Fault(operation="write", names=names, misplaced=distance))
    stage.tell(WriteMisdirected(node=name, partition=partition))
    return []


def put_back_misdirected(disk: SimulatedDisk) -> None:
    for _, file in _files(disk.root, ""):
        file.put_back()


async def rot(stage: Stage, words: Words, options: Options) -> list[str]:
    if len(words) == 2:
        return _rot_files(stage, words, options)
    name, where, offset = exactly(words, 3, options)
    nodes(stage, [name], {})
    partition, wanted = partition_of(where), number_of(offset)
    place = _place_of(stage, name, partition, wanted)
    if place is None:
        raise ScriptError(f"{partition} on {name} does not hold offset {wanted}")
    path, _, last = place
    stage.world.disk(name).flip_bit(path, last)
    stage.rotten.append((name, partition, wanted))
    stage.tell(BitFlipped(node=name, partition=partition, offset=wanted))
    return []


def _rot_files(stage: Stage, words: Words, options: Options) -> list[str]:
    """Flip the highest bit of the byte in the middle of what is written in each of these files."""
    name, pattern = exactly(words, 2, options)
    nodes(stage, [name], {})
    disk = stage.world.disk(name)
    for path, file in _named_files(stage, name, pattern):
        if written := _written(file):
            disk.flip_bit(path, written // 2, bit=HIGHEST_BIT)
            if CHECKPOINT in path:
                stage.rotten_checkpoints.append((name, path, written // 2))
            stage.tell(FileRotted(node=name, path=path))
    return []


def repair_checkpoints(stage: Stage) -> None:
    """Flip back the bits of checkpoints that have not been written anew: text has none of these."""
    for name, path, position in stage.rotten_checkpoints:
        disk = stage.world.disk(name)
        node = disk.node(path)
        if isinstance(node, FileNode) and node.content[position : position + 1] > b"\x7f":
            disk.flip_bit(path, position, bit=HIGHEST_BIT)
    stage.rotten_checkpoints.clear()


def written_files(stage: Stage, name: str, pattern: str) -> list[str]:
    """Return the paths of a node's files that match `pattern` and have any content."""
    return [path for path, file in _matching(stage, name, pattern) if _written(file)]


def _named_files(stage: Stage, name: str, pattern: str) -> list[tuple[str, FileNode]]:
    found = _matching(stage, name, pattern)
    if not found:
        raise ScriptError(f"{name} has no file {pattern!r}")
    return found


def _matching(stage: Stage, name: str, pattern: str) -> list[tuple[str, FileNode]]:
    files = _files(stage.world.disk(name).root, "")
    return [(path, file) for path, file in files if fnmatch.fnmatch(path, f"*/{pattern}")]


def _written(file: FileNode) -> int:
    """Return the number of bytes before the room that a file has at its end."""
    return len(bytes(file.content).rstrip(b"\0"))


def _place_of(
    stage: Stage, name: str, partition: TopicPartition, offset: Offset
) -> tuple[str, int, int] | None:
    """Return the file and the first and last byte of the batch that holds `offset`."""
    disk = stage.cluster.disk(name)
    directory = partition_directory(disk, name, partition)
    if not disk.is_directory(directory):
        return None
    stream = BatchStream(disk, directory)
    try:
        stream.seek(offset)
        header, path = stream.head(), stream.path
        if header is None or path is None or not header.base_offset <= offset <= header.last_offset:
            return None
        return path, stream.position, stream.position + header.size - 1
    except DamagedLogError:  # before that batch, by a power cut say
        return None
    finally:
        stream.close()


def repair_flipped_bits(stage: Stage) -> None:
    """Flip back every bit that was flipped and is still in its place."""
    rotten, stage.rotten[:] = list(stage.rotten), []
    for name, partition, offset in rotten:
        place = _place_of(stage, name, partition, offset)
        if place is not None:
            path, first, last = place
            disk = stage.world.disk(name)
            if not check_crc(bytes(disk.file(path).content[first : last + 1])):
                disk.flip_bit(path, last)


async def spoil(stage: Stage, words: Words, options: Options) -> list[str]:
    name, pattern = exactly(words, 2, options)
    _nodes_down(stage, [name], {})
    for _, node in _named_files(stage, name, pattern):
        node.content = node.content[: len(node.content) // 2]
        node.durable = bytearray(node.content)
        node.unsynced.clear()
    return []


async def lose(stage: Stage, words: Words, options: Options) -> list[str]:
    name, where, what = exactly(words, 3, options)
    segments = _segments_of(stage, name, partition_of(where))
    if what == "all":
        for node in segments:
            _replace(node, b"")
    elif what == "end-of-segment" and len(segments) > 1:
        content = bytes(segments[0].content)
        last = max((position for position, _ in walk(memoryview(content))), default=0)
        _replace(segments[0], content[:last])
    else:
        raise ScriptError("lose NODE PARTITION all|end-of-segment, of several segments")
    return []


async def stale(stage: Stage, words: Words, options: Options) -> list[str]:
    name, where, what = exactly(words, 3, options)
    node = [each for each in _segments_of(stage, name, partition_of(where)) if each.content][-1]
    content = bytes(node.content)
    position, header = max(walk(memoryview(content)), key=itemgetter(0))
    batch = bytearray(content[position : position + header.size])
    if what == "earlier" and header.leader_epoch > 0:
        epoch = header.leader_epoch - 1
        stamp(batch, base_offset=header.next_offset, leader_epoch=epoch)
    elif what != "repeated":
        raise ScriptError("stale NODE PARTITION repeated|earlier, after the first leader epoch")
    _replace(node, content + batch)
    return []


def _segments_of(stage: Stage, name: str, partition: TopicPartition) -> list[FileNode]:
    """Return the `.log` files of a log whose broker is down; its disk is not to be trusted again."""
    _nodes_down(stage, [name], {})
    stage.tell(DiskLies(node=name))
    found = _named_files(stage, name, f"{partition}/*{LOG_SUFFIX}")
    return [node for _, node in sorted(found, key=itemgetter(0))]


def _replace(node: FileNode, content: bytes) -> None:
    node.content, node.durable = bytearray(content), bytearray(content)
    node.unsynced.clear()


def _files(node: Node, path: str) -> Iterator[tuple[str, FileNode]]:
    if isinstance(node, FileNode):
        yield path, node
        return
    for name, entry in node.entries.items():
        yield from _files(entry, f"{path}/{name}")


async def drift(stage: Stage, words: Words, options: Options) -> list[str]:
    name, gained = exactly(words, 2, options)
    nodes(stage, [name], {})
    stage.world.clock(name).drift_wall(seconds_of(gained))
    return []


async def speed(stage: Stage, words: Words, options: Options) -> list[str]:
    name, rate = exactly(words, 2, options)
    nodes(stage, [name], {})
    stage.world.clock(name).run_at(_speed_of(rate))
    return []


def _speed_of(word: str) -> float:
    try:
        rate = float(word)
    except ValueError:
        rate = math.nan
    if not SLOWEST <= rate <= FASTEST:
        raise ScriptError(f"speed NODE {SLOWEST} to {FASTEST}: {word!r} is none")
    return rate


async def jump(stage: Stage, words: Words, options: Options) -> list[str]:
    name, duration = exactly(words, 2, options)
    nodes(stage, [name], {})
    back = duration.startswith("-")
    milliseconds = int(seconds_of(duration.removeprefix("-")) * 1000)
    stage.world.clock(name).jump_wall(-milliseconds if back else milliseconds)
    return []
