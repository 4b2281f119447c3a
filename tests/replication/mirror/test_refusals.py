"""What a mirror refuses, in one line, and leaves as it is."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest
import trio

from replication.client.admin import NewTopic
from replication.mirror import MirrorError
from replication.mirror.state import LOG_DIRECTORY, STATE_FILE, read_state, write_state
from replication.net.raising import raising_only_one
from scenarios.world.cluster import node_id_of
from scenarios.world.world import World
from storage.batch.records import Record
from storage.errors import KafkaStorageError
from storage.testing import Fault, FaultyFileSystem
from storage.testing.disk import DirectoryNode
from storage.tools.standalone import append_records, open_log_directory
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene
from tests.replication.mirror.scene import COPY, MACHINE, Following, admin_of, all_files, following


def disk_of(world: World) -> FaultyFileSystem:
    disk = world.disk(MACHINE)
    return FaultyFileSystem(disk.chance, disk=disk)


async def copied(copy: Following, *values: str) -> None:
    """A copy of these, stopped."""
    await copy.begin(*values)
    await copy.stop()


def write_to_copy(world: World, value: bytes, partition: TopicPartition = T0) -> None:
    with open_log_directory(COPY, file_system=disk_of(world)) as logs:
        log = logs.get(partition)
        assert log is not None
        append_records(log, [Record(value=value, timestamp=1)])
    # Opening a log takes away the producers' snapshot that is not its last: not while it is watched.
    with open_log_directory(COPY, file_system=disk_of(world)):
        pass


@contextmanager
def refused(copy: Following, match: str) -> Iterator[None]:
    """Expect a MirrorError of one line that leaves the copy as it was, except for `heard_ms`."""
    before = all_files(copy.world)
    with pytest.raises(MirrorError, match=match) as raised:
        yield
    assert "\n" not in str(raised.value)
    copy.world.kill(MACHINE)
    after = all_files(copy.world)
    assert heard_never(before) == heard_never(after)


def heard_never(files: dict[str, bytes]) -> dict[str, bytes]:
    state = f"/{STATE_FILE}"
    if state not in files:
        return files
    return files | {state: re.sub(rb'"heard_ms": \d+', b"", files[state])}


@played_in(following)
async def test_a_copy_that_was_written_to(copy: Following, world: World) -> None:
    await copied(copy, "a")
    write_to_copy(world, b"mine")
    await copy.scene.produce("b", "c")
    for _ in range(2):
        with refused(copy, r"t-0 in /m was written to.*offset 1 "):
            await copy.make().run()


@played_in(following, replicas=((1,), (1,)))
async def test_one_of_which_several_partitions_were_written_to_is_refused_in_one_line_too(
    copy: Following, world: World
) -> None:
    await copy.scene.produce("a")
    await copy.scene.produce("a", partition=1)
    await copy.start()
    await copy.until_end(1)
    await copy.until_end(1, TopicPartition("t", 1))
    await copy.stop()
    for number in range(2):
        write_to_copy(world, b"mine", TopicPartition("t", number))
        await copy.scene.produce("b", partition=number)
    with refused(copy, r"t-\d in /m was written to.*offset 1 "):
        await copy.make().run()


@played_in(following)
async def test_one_that_was_written_to_beyond_the_sources_end_is_cut_by_its_epochs(
    copy: Following, world: World
) -> None:
    await copied(copy, "a")
    write_to_copy(world, b"mine")
    await copy.start()
    await copy.until_end(1)
    await copy.scene.produce("b")
    await copy.until_end(2)
    copy.assert_same()


async def become_another(source: Scene) -> None:
    """Another cluster at the same addresses, with a topic of the same name."""
    cluster = source.cluster
    await cluster.kill_all()
    for name in cluster.names:
        cluster.replace_disk(name, DirectoryNode())
        node_id = node_id_of(name)
        config = cluster.nodes.configs[node_id]
        cluster.nodes.configs[node_id] = attrs.evolve(config, cluster_id="another")
    await cluster.nodes.start()
    async with admin_of(source) as admin:
        await admin.create_topics([NewTopic(name="t", replicas=((1,),))])
    await source.produce("x", "y", "z")


@played_in(following)
async def test_a_source_of_another_cluster(copy: Following) -> None:
    await copied(copy, "a")
    await become_another(copy.scene)
    for _ in range(2):
        with refused(copy, r"of cluster understudy,.*is cluster another$"):
            await copy.make().run()


@played_in(following)
async def test_a_source_that_is_another_cluster_from_now_on(copy: Following) -> None:
    await copied(copy, "a")
    with (
        refused(copy, "is cluster another now; /m holds a copy of cluster understudy"),
        raising_only_one(),
    ):
        async with trio.open_nursery() as nursery:
            mirror = copy.make()
            await nursery.start(mirror.run)
            await copy.until(lambda: mirror.trouble is None, "it follows")
            await become_another(copy.scene)
            await trio.sleep_forever()


@played_in(following)
async def test_a_promoted_copy(copy: Following, world: World) -> None:
    await copied(copy, "a")
    files = disk_of(world)
    state = read_state(files, f"/{MACHINE}")
    assert state is not None
    write_state(files, f"/{MACHINE}", attrs.evolve(state, promoted=True))
    with refused(copy, "was promoted"):
        await copy.make().run()


@played_in(following)
async def test_logs_that_no_mirror_made(copy: Following, world: World) -> None:
    await copied(copy, "a")
    disk_of(world).remove(f"/{MACHINE}/{STATE_FILE}")
    with refused(copy, rf"{LOG_DIRECTORY} holds logs.*not a copy"):
        await copy.make().run()


@played_in(following)
async def test_a_full_disk_ends_it_and_the_copied_records_stay(
    copy: Following, world: World
) -> None:
    await copied(copy, "a")
    await copy.scene.produce("b" * 100_000)
    disk = world.disk(MACHINE)
    disk.capacity = disk.used() + 20_000
    with pytest.raises(KafkaStorageError, match="the copy is left as it is"):
        await copy.make().run()
    world.kill(MACHINE)
    disk.capacity = None
    await copy.start()
    await copy.until_end(2)
    copy.assert_same()


async def follow_for_two_minutes(copy: Following) -> None:
    mirror = copy.make()
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.run)
            await copy.scene.cluster.clock.sleep(120)
            mirror.stop()


@pytest.mark.parametrize("name", [STATE_FILE, "*-checkpoint", "*.log", "*.snapshot"])
@played_in(following)
async def test_after_a_full_disk_the_copy_can_be_continued(
    copy: Following, world: World, name: str
) -> None:
    await copied(copy, "a")
    await copy.scene.produce("b")
    disk = world.disk(MACHINE)
    full = Fault(operation="write", names=f"{name}*", error=errno.ENOSPC, times=None)
    disk.faults.append(full)
    with pytest.raises((KafkaStorageError, OSError)) as ended:
        await follow_for_two_minutes(copy)
    assert "\n" not in str(ended.value)
    assert "No space left on device" in str(ended.value)
    world.kill(MACHINE)
    disk.faults.clear()
    await copy.start()
    await copy.until_end(2)
    copy.assert_same()
