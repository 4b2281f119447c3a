"""The faults of disks and wall clocks.

    wipe b1                       replace its disk by an empty one
    image b1 old                  copy its disk, as a snapshot of a virtual machine would
    restore b1 old                replace its disk by that copy
    swap b2 b3                    exchange their disks

    lie b1 names=*.log            from now on a sync does nothing and reports success
    fail b1 write names=*.log error=ENOSPC times=1      the next such operation fails
    rot b1 t-0 17                 flip one bit of the batch that holds offset 17
    spoil b1 t-0/leader-epoch-checkpoint  remove the second half of its files of that name
    jump b1 600s                  its wall clock jumps; -300s jumps back
    drift b1 100ms                its wall clock gains so much in a second

A node whose disk is taken away must be down. `recover` ends lies and failures, and flips bits
back; lost writes stay lost. A lie that ends was no lie: what the disk had claimed is on it then.
"""

import copy
import errno
import fnmatch
from collections.abc import Iterator

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
from scenarios.world.trace import BitFlipped, DiskLies
from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.batch.record_batch import check_crc
from storage.log.segment import LOG_SUFFIX
from storage.testing import Fault, SimulatedDisk
from storage.testing.disk import DirectoryNode, FileNode, Node
from storage.types import Offset, TopicPartition

ALWAYS = "always"
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


async def rot(stage: Stage, words: Words, options: Options) -> list[str]:
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


def _place_of(
    stage: Stage, name: str, partition: TopicPartition, offset: Offset
) -> tuple[str, int, int] | None:
    """Return the file and the first and last byte of the batch that holds `offset`."""
    disk, directory = stage.cluster.disk(name), partition_directory(name, partition)
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
    files = _files(_contents(stage, name), f"/{name}")
    found = [node for path, node in files if fnmatch.fnmatch(path, f"*/{pattern}")]
    if not found:
        raise ScriptError(f"{name} has no file {pattern!r}")
    for node in found:
        node.content = node.content[: len(node.content) // 2]
        node.durable = bytearray(node.content)
        node.unsynced.clear()
    return []


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


async def jump(stage: Stage, words: Words, options: Options) -> list[str]:
    name, duration = exactly(words, 2, options)
    nodes(stage, [name], {})
    back = duration.startswith("-")
    milliseconds = int(seconds_of(duration.removeprefix("-")) * 1000)
    stage.world.clock(name).jump_wall(-milliseconds if back else milliseconds)
    return []
