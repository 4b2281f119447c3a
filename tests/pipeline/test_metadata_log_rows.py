"""The metadata log as rows of events: those that the controller reported, without Spark."""

from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.journals.metadata_log import read_metadata_log
from pipeline.journals.rows import DAMAGED, find_journals, rows_of
from replication.controller.controller import Controller
from replication.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ControlledShutdownStarted,
    Event,
    IsrChanged,
    LeaderElected,
    PartitionOffline,
    TopicCreated,
    TopicDeleted,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from scenarios.world.world import World
from storage.filesystem import FileSystem, OsFileSystem
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import (
    CONFIG,
    Registered,
    create_topic,
    join,
    running,
)

DECIDED = (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ControlledShutdownStarted,
    IsrChanged,
    LeaderElected,
    PartitionOffline,
    TopicCreated,
    TopicDeleted,
)
DIRECTORY = f"{CONFIG.log_dirs[0]}/__cluster_metadata-0"


async def live_through_something(controller: Controller) -> None:
    """Let brokers be fenced, shut down, come back and lead; delete a topic."""
    clock = controller.seams.clock
    first, second, third = await join(controller, 1, 2, 3)
    await create_topic(controller, "orders", (1, 2, 3), (2, 3, 1))
    await create_topic(controller, "gone", (1,))
    for _ in range(6):
        await clock.sleep(2)
        await second.heartbeat()
        await third.heartbeat()
    await first.heartbeat()
    while not (await second.heartbeat(want_shut_down=True)).should_shut_down:
        await clock.sleep(1)
    topics = [DeleteTopicState(name="gone")]
    await controller.answer_client(DeleteTopicsRequest(topics=topics))
    await Registered(controller, 3, incarnation=2).register()
    await clock.sleep(20)


def written(files: FileSystem, directory: str) -> list[Event]:
    return [entry.event for entry in read_metadata_log(files, directory)]


def without_silence(event: Event) -> Event:
    return attrs.evolve(event, since_heartbeat_ms=-1) if isinstance(event, BrokerFenced) else event


@played
async def test_the_log_tells_what_its_controller_reported(world: World) -> None:
    async with running(world) as controller:
        await live_through_something(controller)
        entries = list(read_metadata_log(controller.seams.file_system, DIRECTORY))
    reported = [
        without_silence(each.event)
        for each in world.trace.entries
        if isinstance(each.event, DECIDED)
    ]
    assert {type(each) for each in reported} == {*DECIDED}
    assert [each.event for each in entries] == reported
    assert {each.broker for each in entries} == {CONFIG.node_id}
    assert sorted(each.at_ms for each in entries) == [each.at_ms for each in entries]


@played
async def test_a_log_that_was_cut_goes_on_after_its_snapshot(world: World) -> None:
    config = attrs.evolve(CONFIG, metadata_log_max_record_bytes_between_snapshots=2000)
    async with running(world, config) as controller:
        await live_through_something(controller)
        found = written(controller.seams.file_system, DIRECTORY)
        names = controller.seams.file_system.list_directory(DIRECTORY)
    assert any(name.endswith(".checkpoint") for name in names)
    reported = [
        without_silence(each.event)
        for each in world.trace.entries
        if isinstance(each.event, DECIDED)
    ]
    assert found
    assert found == reported[-len(found) :]
    assert len(found) < len(reported)


def copy_to(directory: Path, files: FileSystem) -> None:
    directory.mkdir(parents=True)
    for name in files.list_directory(DIRECTORY):
        file = files.open_for_reading(f"{DIRECTORY}/{name}")
        (directory / name).write_bytes(file.read(0, file.size()))
        file.close()


def rows(*paths: Path) -> list[dict[str, Any]]:
    disk = OsFileSystem()
    found = rows_of(disk, find_journals(disk, [str(path) for path in paths]))
    return [row for batch in found for row in batch.to_pylist()]


def test_a_torn_end_is_passed_over_and_a_gap_is_named(tmp_path: Path) -> None:
    @played
    async def kept(world: World) -> None:
        async with running(world) as controller:
            await live_through_something(controller)
            copy_to(copy, controller.seams.file_system)

    copy = tmp_path / "broker-1" / "__cluster_metadata-0"
    kept()
    whole = rows(copy)
    elected = next(row for row in whole if row["reason"] == "leader fenced")
    assert (elected["topic"], elected["leader"], elected["node"]) == ("orders", 2, CONFIG.node_id)
    (log,) = copy.glob("*.log")
    data = log.read_bytes()
    log.write_bytes(data[:-7])
    assert rows(copy) == whole[: len(rows(copy))]
    assert DAMAGED not in {row["name"] for row in rows(copy)}
    for checkpoint in copy.glob("*.checkpoint"):
        checkpoint.unlink()
    log.rename(copy / "00000000000000000900.log")
    log.with_name("00000000000000000900.log").write_bytes(data[len(data) // 2 :])
    assert not rows(copy), "no batch begins there: that is a torn end, too"
    (copy / "00000000000000000901.log").write_bytes(data)
    (damaged,) = rows(copy)
    assert damaged["name"] == DAMAGED
    assert f"{copy} cannot be read: 00000000000000000900.log: byte 0" in damaged["cause"]
