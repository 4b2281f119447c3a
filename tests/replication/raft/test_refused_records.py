"""A record that only a newer release knows ends the controller that meets it, before it acknowledges it."""

from functools import partial

import pytest
import trio

from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.errors import ErrorCode, MetadataError
from replication.metadata.log import Prepared
from replication.metadata.rules.records import METADATA_PARTITION
from replication.raft.quorum_state import QUORUM_STATE
from replication.wire.api_versions import METADATA_VERSION
from replication.wire.metadata_records import FeatureLevelRecord, encode_record
from scenarios.world.world import World
from storage.batch.records import Record, encode_batch
from storage.filesystem import FileSystem
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import CONFIG, fail
from tests.replication.raft.running_quorum import IDS, config_of, create, join, name_of, quorum

UNKNOWN = [
    pytest.param(b"\x01\x7f\x00", "unknown metadata record 127", id="type"),
    pytest.param(b"\x01\x0c\x09", "FeatureLevelRecord of version 9", id="version"),
    pytest.param(
        encode_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=99), version=0),
        "feature metadata.version of level 99, but this release knows",
        id="level",
    ),
]
LOG = f"/controller/{METADATA_PARTITION}"
SEGMENT = f"{LOG}/{0:020}.log"


def batch_of(value: bytes, *, offset: int, leader_epoch: int) -> bytearray:
    record = Record(timestamp=0, value=value)
    return bytearray(encode_batch([record], base_offset=offset, leader_epoch=leader_epoch))


def read(file_system: FileSystem, path: str) -> bytes:
    file = file_system.open_for_reading(path)
    try:
        return bytes(file.read(0, file.size()))
    finally:
        file.close()


def append(file_system: FileSystem, data: bytearray) -> None:
    file = file_system.open(SEGMENT)
    file.write(file.size(), data)
    file.sync()
    file.close()


def kept(file_system: FileSystem) -> list[bytes]:
    """Return what a refused start must leave as it is."""
    return [read(file_system, path) for path in (SEGMENT, f"{LOG}/{QUORUM_STATE}")]


async def is_refused(world: World, config: BrokerConfig, name: str, said: str) -> None:
    seams = world.node(name)
    before = kept(seams.file_system)
    controller = Controller(config=config, seams=seams, on_bug=fail)
    with pytest.raises(MetadataError, match=said):
        await controller.run()
    assert not controller.port, "it has not listened"
    assert kept(seams.file_system) == before


@pytest.mark.parametrize(("value", "said"), UNKNOWN)
@played
async def test_in_the_log_of_the_only_voter(world: World, value: bytes, said: str) -> None:
    seams = world.node("controller")
    controller = Controller(config=CONFIG, seams=seams, on_bug=fail)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        end = controller.log.log_end_offset
        controller.shut_down()
    append(seams.file_system, batch_of(value, offset=end, leader_epoch=1))
    await is_refused(world, CONFIG, "controller", f"offset {end} of {METADATA_PARTITION}: {said}")


@pytest.mark.parametrize(("value", "said"), UNKNOWN)
@played
async def test_in_the_log_of_one_of_three(world: World, value: bytes, said: str) -> None:
    """It is refused whether or not it is committed, as in Apache Kafka, and the others go on."""
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        assert await create(leader, "before") is ErrorCode.NONE
        await three.until_equal()
        wrong = next(each for each in IDS if each != leader.config.node_id)
        stopped = three.running[wrong]
        end, epoch = stopped.log.log_end_offset, leader.node.quorum.leader_epoch
        await three.stop(wrong)
        append(
            world.node(name_of(wrong)).file_system,
            batch_of(value, offset=end, leader_epoch=epoch),
        )
        config = config_of(wrong, snapshot_bytes=20 << 20)
        await is_refused(world, config, name_of(wrong), f"offset {end} of .*: {said}")
        assert await create(leader, "after") is ErrorCode.NONE


@pytest.mark.parametrize(("value", "said"), UNKNOWN)
@played
async def test_from_a_leader_of_a_newer_release(world: World, value: bytes, said: str) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await three.until_equal()
        ended: dict[int, BaseException] = {}
        others = [each for each in IDS if each != leader.config.node_id]
        logs = {each: three.running[each].log for each in others}
        three.on_end = {each: partial(ended.__setitem__, each) for each in others}
        end = leader.log.log_end_offset
        epoch = leader.node.quorum.leader_epoch
        batch = memoryview(batch_of(value, offset=end, leader_epoch=epoch))
        after = leader.image.apply_all((), offset=end, leader_epoch=epoch)
        leader.log.append_prepared(Prepared(batch, 0, after))
        for each in others:
            await three.ended[each].wait()
            assert isinstance(ended[each], MetadataError)
            assert f"offset {end} of {METADATA_PARTITION}: {said}" in str(ended[each])
            assert logs[each].log_end_offset == end, "it has not been appended"
            assert leader.log.high_watermark == end
