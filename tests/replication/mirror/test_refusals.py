"""What a mirror refuses, in one line, and leaves as it is."""

import attrs
import pytest

from replication.mirror import MirrorError
from replication.mirror.state import LOG_DIRECTORY, read_state, write_state
from scenarios.simulation.world import World
from storage.errors import KafkaStorageError
from storage.records import Record
from storage.standalone import append_records, open_log_directory
from storage.testing import FaultyFileSystem
from tests.replication.client.scene import T0, play
from tests.replication.mirror.scene import COPY, MACHINE, Following, following


def disk_of(world: World) -> FaultyFileSystem:
    disk = world.disk(MACHINE)
    return FaultyFileSystem(disk.chance, disk=disk)


async def copied(copy: Following, *values: str) -> None:
    """A copy of these, stopped."""
    await copy.scene.produce(*values)
    await copy.start()
    await copy.until_end(len(values))
    await copy.stop()


def write_to_copy(world: World, value: bytes) -> None:
    with open_log_directory(COPY, file_system=disk_of(world)) as logs:
        log = logs.get(T0)
        assert log is not None
        append_records(log, [Record(value=value, timestamp=1)])


def test_a_copy_that_was_written_to() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copied(copy, "a")
            write_to_copy(world, b"mine")
            await copy.scene.produce("b", "c")
            with pytest.raises(MirrorError, match=r"t-0 in /m was written to.*offset 1 "):
                await copy.make().run()
            world.kill(MACHINE)
            with open_log_directory(COPY, file_system=disk_of(world)) as logs:
                log = logs.get(T0)
                assert log is not None
                assert log.log_end_offset == 2

    play(story)


def test_one_that_was_written_to_beyond_the_sources_end_is_cut_by_its_epochs() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copied(copy, "a")
            write_to_copy(world, b"mine")
            await copy.start()
            await copy.until_end(1)
            await copy.scene.produce("b")
            await copy.until_end(2)
            copy.assert_same()

    play(story)


def test_a_source_of_another_cluster() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copied(copy, "a")
            files = disk_of(world)
            state = read_state(files, f"/{MACHINE}")
            assert state is not None
            write_state(files, f"/{MACHINE}", attrs.evolve(state, cluster_id="another"))
            with pytest.raises(MirrorError, match=r"of cluster another,.*is cluster understudy"):
                await copy.make().run()

    play(story)


def test_a_promoted_copy() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copied(copy, "a")
            files = disk_of(world)
            state = read_state(files, f"/{MACHINE}")
            assert state is not None
            write_state(files, f"/{MACHINE}", attrs.evolve(state, promoted=True))
            with pytest.raises(MirrorError, match="was promoted"):
                await copy.make().run()

    play(story)


def test_logs_that_no_mirror_made() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copied(copy, "a")
            disk_of(world).remove(f"/{MACHINE}/mirror.json")
            with pytest.raises(MirrorError, match=rf"{LOG_DIRECTORY} holds logs.*not a copy"):
                await copy.make().run()

    play(story)


def test_a_full_disk_ends_it_and_what_was_copied_is_there_after_it() -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
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

    play(story)
