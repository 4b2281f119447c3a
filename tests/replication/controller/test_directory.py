"""The directory of a controller that starts for the first time."""

from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

from replication.controller.controller import Controller
from replication.metadata.formatter import bootstrap_records
from replication.metadata.rules.levels import METADATA_VERSIONS
from replication.wire.metadata_records import FeatureLevelRecord
from scenarios.world.world import World
from storage.checkpoint import read_meta_properties, uuid_text
from storage.log.flush import Syncing
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import CONFIG, fail, running
from tests.replication.controller.test_refused_start import format_controller

T = TypeVar("T")
DIRECTORY = CONFIG.metadata_directory


@played
async def test_a_directory_that_belongs_to_nobody_is_formatted(world: World) -> None:
    async with running(world) as controller:
        disk = world.node("controller").file_system
        owner = read_meta_properties(disk, DIRECTORY)
        assert owner is not None
        assert (owner.cluster_id, owner.node_id) == (controller.cluster_id, CONFIG.node_id)
        assert owner.directory_id == uuid_text(controller.node.directory_id)
        records = bootstrap_records(disk, DIRECTORY)
        levels = {
            each.name: each.feature_level
            for each in records
            if isinstance(each, FeatureLevelRecord)
        }
        assert levels == dict(controller.image.feature_levels)


@played
async def test_the_release_that_a_directory_was_formatted_for_sets_the_first_levels(
    world: World,
) -> None:
    format_controller(world.node("controller").file_system, release="4.0")
    async with running(world) as controller:
        assert METADATA_VERSIONS[controller.image.metadata_version] == "4.0-IV3"


@played
async def test_the_start_of_an_epoch_is_synced_with_the_first_decision(world: World) -> None:
    seams = world.node("controller")
    syncs = 0

    async def counted(work: Callable[[], T], /) -> T:
        nonlocal syncs
        syncs += isinstance(work, Syncing)
        return await seams.offload(work)

    for end in (6, 7):  # the start of the epoch, and at first five records
        controller = Controller(
            config=CONFIG, seams=attrs.evolve(seams, offload=counted), on_bug=fail
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            assert (controller.log.high_watermark, syncs) == (end, 1)
            controller.shut_down()
        syncs = 0
