"""A start that is refused leaves the directory of the controller as it was."""

import random

import attrs
import pytest

from replication.broker.adoption import AdoptionError, adopt
from replication.config import BrokerConfig
from replication.config.listeners import HostPort, Voter
from replication.controller.controller import Controller
from replication.errors import ConfigError, MetadataError
from replication.metadata.formatter import BOOTSTRAP_CHECKPOINT, NodeFormat, format_directories
from replication.metadata.rules.checkpoint import (
    BOOTSTRAP_SNAPSHOT_ID,
    checkpoint_batches,
    checkpoint_name,
)
from replication.metadata.rules.formatting import feature_levels
from replication.metadata.rules.records import METADATA_PARTITION
from replication.raft.quorum_state import QUORUM_STATE
from replication.wire.api_versions import KAFKA_4_4, METADATA_VERSION
from replication.wire.metadata_records import FeatureLevelRecord, encode_record
from scenarios.world.world import World
from storage.checkpoint import META_PROPERTIES
from storage.errors import CheckpointError, InconsistentMetadataError, LogDirectoryError
from storage.filesystem import FileSystem
from storage.manager.log_directory import FORMER_METADATA_TOPIC, LOCK
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import CONFIG, fail

DIRECTORY = CONFIG.metadata_directory
PROPERTIES = f"{DIRECTORY}/{META_PROPERTIES}"
CHECKPOINT = f"{DIRECTORY}/{METADATA_PARTITION}/{checkpoint_name(BOOTSTRAP_SNAPSHOT_ID)}"


def format_controller(file_system: FileSystem, *, release: str | None = None) -> None:
    wanted = NodeFormat(
        cluster_id="c",
        node_id=CONFIG.node_id,
        directories=[DIRECTORY],
        metadata_directory=DIRECTORY,
        is_controller=True,
        levels=feature_levels({}, release=release, is_dynamic=False),
    )
    format_directories(file_system, wanted, random_bytes=random.Random(0).randbytes, wall_ms=0)


def contents(file_system: FileSystem, directory: str = DIRECTORY) -> dict[str, bytes]:
    """Return the bytes of each file, and an entry for each directory, without the lock."""
    found: dict[str, bytes] = {}
    for name in file_system.list_directory(directory):
        path = f"{directory}/{name}"
        if file_system.is_directory(path):
            found |= {path: b""} | contents(file_system, path)
        elif name != LOCK:
            found[path] = read(file_system, path)
    return found


def read(file_system: FileSystem, path: str) -> bytes:
    file = file_system.open_for_reading(path)
    try:
        return bytes(file.read(0, file.size()))
    finally:
        file.close()


def add(file_system: FileSystem, path: str, data: bytes) -> None:
    file_system.open(path, create=True).close()
    write(file_system, path, data)


def write(file_system: FileSystem, path: str, data: bytes) -> None:
    file = file_system.open(path)
    file.truncate(0)
    file.write(0, data)
    file.sync()
    file.close()


async def is_refused(world: World, config: BrokerConfig, error: type[Exception], said: str) -> None:
    seams = world.node("controller")
    before = contents(seams.file_system)
    with pytest.raises(error, match=said):
        await Controller(config=config, seams=seams, on_bug=fail).run()
    assert contents(seams.file_system) == before


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (attrs.evolve(CONFIG, node_id=7), "belongs to node 100"),
        (attrs.evolve(CONFIG, cluster_id="d"), "belongs to cluster c"),
    ],
)
@played
async def test_the_directory_of_another(world: World, config: BrokerConfig, said: str) -> None:
    format_controller(world.node("controller").file_system)
    await is_refused(world, config, InconsistentMetadataError, said)


@played
async def test_a_directory_id_that_is_none(world: World) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    lines = read(file_system, PROPERTIES).splitlines(keepends=True)
    others = [each for each in lines if not each.startswith(b"directory.id")]
    write(file_system, PROPERTIES, b"".join([*others, b"directory.id=short\n"]))
    await is_refused(world, CONFIG, CheckpointError, "directory.id")


@pytest.mark.parametrize("damage", ["truncated", "changed"])
@played
async def test_a_damaged_checkpoint(world: World, damage: str) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    data = read(file_system, CHECKPOINT)
    damaged = data[:-1] if damage == "truncated" else data[:-1] + bytes([data[-1] ^ 1])
    write(file_system, CHECKPOINT, damaged)
    await is_refused(world, CONFIG, MetadataError, f"{CHECKPOINT} cannot be read")


@played
async def test_a_damaged_quorum_state(world: World) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    add(file_system, f"{DIRECTORY}/{METADATA_PARTITION}/{QUORUM_STATE}", b'{"leaderId":1')
    await is_refused(world, CONFIG, CheckpointError, "quorum-state: not JSON")


@played
async def test_a_damaged_bootstrap_checkpoint_of_an_older_kafka(world: World) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    data = read(file_system, CHECKPOINT)
    file_system.remove(CHECKPOINT)
    add(file_system, f"{DIRECTORY}/{BOOTSTRAP_CHECKPOINT}", data[:-1])
    await is_refused(world, CONFIG, MetadataError, "bootstrap.checkpoint cannot be read")


@played
async def test_a_metadata_log_of_an_older_release(world: World) -> None:
    file_system = world.node("controller").file_system
    file_system.make_directory(DIRECTORY)
    file_system.make_directory(f"{DIRECTORY}/{FORMER_METADATA_TOPIC}-0")
    await is_refused(world, CONFIG, LogDirectoryError, "is the metadata log of an older release")


@played
async def test_first_levels_that_this_release_does_not_support(world: World) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    newer = FeatureLevelRecord(name=METADATA_VERSION, feature_level=KAFKA_4_4 + 1)
    batches = checkpoint_batches(
        [encode_record(newer, 0)], leader_epoch=0, wall_ms=0, last_timestamp_ms=0
    )
    write(file_system, CHECKPOINT, b"".join(batches))
    await is_refused(world, CONFIG, MetadataError, "metadata.version")


@played
async def test_a_first_record_of_an_unknown_version(world: World) -> None:
    file_system = world.node("controller").file_system
    format_controller(file_system)
    record = encode_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=KAFKA_4_4), 0)
    newer = record[:2] + bytes([9]) + record[3:]
    batches = checkpoint_batches([newer], leader_epoch=0, wall_ms=0, last_timestamp_ms=0)
    write(file_system, CHECKPOINT, b"".join(batches))
    await is_refused(world, CONFIG, MetadataError, "FeatureLevelRecord of version 9")


@played
async def test_one_of_several_controllers_without_a_cluster(world: World) -> None:
    world.node("controller").file_system.make_directory(DIRECTORY)
    voters = tuple(Voter(each, f"c{each}", 9093) for each in (CONFIG.node_id, 101))
    config = attrs.evolve(CONFIG, controller_quorum_voters=voters)
    await is_refused(world, config, ConfigError, "cluster.id is missing")


@played
async def test_voters_that_nothing_names(world: World) -> None:
    """With bootstrap servers alone the log names the voters, and only formatting begins one."""
    world.node("controller").file_system.make_directory(DIRECTORY)
    config = attrs.evolve(CONFIG, controller_quorum_bootstrap_servers=(HostPort("c101", 9093),))
    await is_refused(world, config, ConfigError, "/controller is not formatted: .* --standalone")


@played
async def test_an_adoption_into_another_cluster(world: World) -> None:
    seams = world.node("controller")
    format_controller(seams.file_system)
    owner = read(seams.file_system, PROPERTIES).replace(b"node.id=100", b"node.id=0")
    write(seams.file_system, PROPERTIES, owner)
    before = contents(seams.file_system)
    with pytest.raises(AdoptionError, match="belongs to cluster c"):
        await adopt(seams, DIRECTORY, cluster_id="d", broker_id=1, topics=())
    assert contents(seams.file_system) == before
