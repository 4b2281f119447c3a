"""Brokers whose copy of the metadata ends before the controller's log begins."""

import pytest

from replication.metadata.rules.records import METADATA_PARTITION
from storage.checkpoint import read_file, replace_file
from storage.filesystem import FileSystem, make_lasting_directory
from tests.replication.broker.stage import Stage, played_in, staged

# A few records each, so that a handful of topics is worth a snapshot.
OFTEN = "1500"


def controller_start(stage: Stage) -> int:
    node = stage.cluster.controller
    assert node is not None
    return node.log.log.log_start_offset


def copy_start(stage: Stage, broker: int) -> int:
    log = stage.cluster.brokers[broker].logs.get(METADATA_PARTITION)
    assert log is not None
    return log.log_start_offset


async def create(stage: Stage, numbers: range) -> None:
    for number in numbers:
        await stage.client.create_topic(stage.address(1), f"topic-{number}", replicas=1)


async def until_all_know(stage: Stage, count: int) -> None:
    def known() -> bool:
        node = stage.cluster.controller
        assert node is not None
        images = [broker.metadata.image for broker in stage.cluster.brokers.values()]
        return all(each == node.image for each in images) and (len(node.image.topics) == count)

    await stage.cluster.until(known, what=f"every broker knows {count} topics")


@played_in(staged, metadata_log_max_record_bytes_between_snapshots=OFTEN)
async def test_every_node_shortens_its_log_and_keeps_the_same_image(stage: Stage) -> None:
    await create(stage, range(30))
    await until_all_know(stage, 30)
    assert controller_start(stage) > 50
    assert all(copy_start(stage, broker) > 50 for broker in (1, 2, 3))
    for node in (0, 1, 2, 3):
        await stage.cluster.kill_node(node)
    for node in (0, 1, 2, 3):
        await stage.cluster.start_node(node)
    await until_all_know(stage, 30)
    await create(stage, range(30, 32))
    await until_all_know(stage, 32)


@played_in(staged, metadata_log_max_record_bytes_between_snapshots=OFTEN)
async def test_a_broker_that_was_away_for_long_is_sent_the_snapshot(stage: Stage) -> None:
    await away_for_long(stage)


@pytest.mark.conformance("KR-614")
@played_in(
    staged,
    metadata_log_max_record_bytes_between_snapshots=OFTEN,
    controller_quorum_fetch_snapshot_max_bytes="100",
)
async def test_a_snapshot_is_fetched_in_pieces(stage: Stage) -> None:
    await away_for_long(stage)
    node = stage.cluster.controller
    assert node is not None
    requests = {
        dict(name.tags).get("request"): count
        for name, count in node.metrics.snapshot()
        if name.name == "RequestsPerSec"
    }
    assert requests["FetchSnapshot"] > 10


async def away_for_long(stage: Stage) -> None:
    await create(stage, range(3))
    await until_all_know(stage, 3)
    copy = stage.cluster.brokers[3].logs.get(METADATA_PARTITION)
    assert copy is not None
    await stage.cluster.kill_broker(3)
    await create(stage, range(3, 30))
    assert controller_start(stage) > copy.log_end_offset, "or there is nothing to be shown"
    await stage.cluster.start_broker(3)
    await until_all_know(stage, 30)


@played_in(staged, metadata_log_max_record_bytes_between_snapshots=OFTEN)
async def test_a_broker_that_is_new_is_sent_the_snapshot(stage: Stage) -> None:
    await create(stage, range(30))
    log = stage.cluster.brokers[3].logs.get(METADATA_PARTITION)
    assert log is not None
    await stage.cluster.kill_broker(3)
    stage.world.node("b3").file_system.remove_tree(log.directory)
    await stage.cluster.start_broker(3)
    await until_all_know(stage, 30)
    assert copy_start(stage, 3) > 0


@played_in(staged, metadata_log_max_record_bytes_between_snapshots=OFTEN)
async def test_a_snapshot_that_goes_bad_on_a_broker_is_fetched_again(stage: Stage) -> None:
    await create(stage, range(30))
    await until_all_know(stage, 30)
    log = stage.cluster.brokers[2].logs.get(METADATA_PARTITION)
    assert log is not None
    await stage.cluster.kill_broker(2)
    disk = stage.world.node("b2").file_system
    names = disk.list_directory(log.directory)
    (snapshot,) = [name for name in names if name.endswith(".checkpoint")]
    file = disk.open(f"{log.directory}/{snapshot}")
    file.truncate(10)
    file.close()
    await stage.cluster.start_broker(2)
    await until_all_know(stage, 30)


def tree(file_system: FileSystem, path: str) -> dict[str, bytes]:
    """Every file below `path`."""
    files: dict[str, bytes] = {}
    for name in file_system.list_directory(path):
        below = f"{path}/{name}"
        if file_system.is_directory(below):
            files |= tree(file_system, below)
        else:
            files[below] = read_file(file_system, below) or b""
    return files


@played_in(staged, metadata_log_max_record_bytes_between_snapshots=OFTEN)
async def test_an_older_controllers_disk_is_followed_back_below_the_brokers_snapshots(
    stage: Stage,
) -> None:
    node = stage.cluster.controller
    assert node is not None
    directory = node.log.directory
    await create(stage, range(12))
    await until_all_know(stage, 12)
    await stage.cluster.kill_controller()
    saved = tree(stage.world.node("controller").file_system, directory)
    await stage.cluster.start_controller()
    end = node.log.log_end_offset
    await create(stage, range(12, 40))
    await until_all_know(stage, 40)
    assert all(copy_start(stage, broker) > end for broker in (1, 2, 3))
    await stage.cluster.kill_controller()
    file_system = stage.world.node("controller").file_system
    file_system.remove_tree(f"{directory}/{METADATA_PARTITION}")
    for path, data in saved.items():
        if f"/{METADATA_PARTITION}/" in path:
            make_lasting_directory(file_system, path.rpartition("/")[0])
            replace_file(file_system, path, data)
    await stage.cluster.start_controller()
    await until_all_know(stage, 12)
    await create(stage, range(12, 15))
    await until_all_know(stage, 15)
