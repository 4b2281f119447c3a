"""A snapshot that went bad on the disk of the leader is not taken up by the node that needs it."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from replication.controller.controller import Controller
from replication.errors import ErrorCode, MetadataError
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.filesystem import File
from tests.replication.broker.stage import played
from tests.replication.raft.running_quorum import IDS, RunningQuorum, create, join, name_of, quorum


def cut(file: File) -> None:
    file.truncate(file.size() // 2)


def cut_wholly(file: File) -> None:
    file.truncate(0)


def flip(file: File) -> None:
    middle = file.size() // 2
    byte = bytes(file.read(middle, 1))[0]
    file.write(middle, bytes([byte ^ 1]))


async def a_snapshot_goes_bad(
    world: World, three: RunningQuorum, damage: Callable[[File], None]
) -> tuple[Controller, Controller]:
    """Return the leader, whose snapshot is damaged, and the one that needs it."""
    leader = await three.leader()
    await join(leader)
    behind = next(each for each in IDS if each != leader.config.node_id)
    three.kill(behind)
    for number in range(20):
        assert await create(leader, f"t{number}") is ErrorCode.NONE
    await leader.log.take_snapshot()
    assert leader.log.snapshot is not None
    file = world.node(name_of(leader.config.node_id)).file_system.open(leader.log.snapshot.path)
    damage(file)
    file.close()
    return leader, await three.start(behind)


@pytest.mark.parametrize("damage", [cut, cut_wholly])
@played
async def test_a_leader_whose_snapshot_was_truncated_ends(
    world: World, damage: Callable[[File], None]
) -> None:
    """It names the file, and the next leader, whose log is whole, serves the one that needs it."""
    async with quorum(world) as three:
        ended: dict[int, BaseException] = {}
        three.on_end = {each: partial(ended.__setitem__, each) for each in IDS}
        first, behind = await a_snapshot_goes_bad(world, three, damage)
        await three.ended[first.config.node_id].wait()
        (error,) = ended.values()
        assert isinstance(error, KafkaStorageError)
        assert re.search(r"\d+ bytes are left of \d+: .*51-0000000001\.checkpoint", str(error))
        second = await three.leader()
        await three.until_equal()
        assert second is not behind
        assert len(behind.log.committed_image.topics) == 20


@played
async def test_a_snapshot_with_a_wrong_checksum_is_not_taken_up(world: World) -> None:
    async with quorum(world) as three:
        ended: dict[int, BaseException] = {}
        three.on_end = {each: partial(ended.__setitem__, each) for each in IDS}
        leader, behind = await a_snapshot_goes_bad(world, three, flip)
        node_id = behind.config.node_id
        end = behind.log.log_end_offset
        await three.ended[node_id].wait()
        assert isinstance(ended[node_id], MetadataError)
        assert "51-0000000001.checkpoint cannot be read: the CRC-32C of" in str(ended[node_id])
        assert behind.log.log_end_offset == end
        names = world.node(name_of(node_id)).file_system.list_directory(behind.log.log.directory)
        assert not [each for each in names if each.startswith(f"{51:020}")]
        assert leader.is_active
