"""UpdateFeatures raises `kraft.version` while the quorum works: the voters move into the log (KIP-853)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from replication.controller.controller import Controller
from replication.controller.features import OwnRegistration
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.metadata.rules.image import ControllerRegistration
from replication.metadata.rules.levels import named_features
from replication.wire.api_versions import KRAFT_VERSION, METADATA_VERSION, ApiVersionsRequest
from replication.wire.broker_registration import Feature
from replication.wire.control_records import VoterEndpoint
from replication.wire.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from replication.wire.update_raft_voter import UpdateRaftVoterRequest
from scenarios.world.world import World
from storage.checkpoint import MetaProperties, write_meta_properties
from storage.filesystem import make_lasting_directory
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import played
from tests.replication.raft.running_quorum import (
    IDS,
    RunningQuorum,
    create,
    directory_id,
    format_controller,
    join,
    name_of,
    quorum,
)

ASKED = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def sign_without_id(world: World, node_id: int) -> None:
    """Leave a directory as an earlier release has, without an id of its own."""
    file_system = world.node(name_of(node_id)).file_system
    make_lasting_directory(file_system, "/controller")
    write_meta_properties(
        file_system, "/controller", MetaProperties(cluster_id="a-quorum", node_id=node_id)
    )


@asynccontextmanager
async def static_voters(
    world: World, *, named: tuple[int, ...] = IDS
) -> AsyncIterator[RunningQuorum]:
    """Three voters that the configuration names, and that have registered."""
    for each in IDS:
        if each in named:
            format_controller(world, each, is_dynamic=False)
        else:
            sign_without_id(world, each)
    async with quorum(world) as opened:
        await until_registered(opened)
        await world.node("client").clock.sleep(3)  # a voter reports once in a fetch timeout
        yield opened


async def until_registered(three: RunningQuorum) -> dict[int, ControllerRegistration]:
    leader = await three.leader()
    clock = leader.seams.clock
    for _ in range(100):
        if leader.image.controllers.keys() == set(IDS):
            break
        await clock.sleep(0.05)
    return dict(leader.image.controllers)


async def update(
    controller: Controller, level: int = 1, kind: int = UPGRADE, *, validate_only: bool = False
) -> UpdateFeaturesResponse:
    asked = FeatureUpdate(feature=KRAFT_VERSION, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[asked], validate_only=validate_only)
    answer: UpdateFeaturesResponse = await controller.answer_client(request)
    return answer


@played
async def test_the_voters_move_into_the_log_and_can_be_changed_then(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        await join(leader)
        removing = RemoveRaftVoterRequest(
            cluster_id="a-quorum", voter_id=IDS[0], voter_directory_id=directory_id(IDS[0])
        )
        refused = await leader.node.change_voters(removing)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await update(leader, validate_only=True)).error_code == ErrorCode.NONE
        assert leader.log.voters.kraft_version == 0
        assert (await update(leader)).error_code == ErrorCode.NONE
        assert await create(leader, "after") is ErrorCode.NONE
        await three.until_equal()
        for each in three.running.values():
            assert each.log.voters.kraft_version == 1
            keys = each.node.quorum.voters.keys
            assert {(key.id, key.directory_id) for key in keys} == {
                (node_id, directory_id(node_id)) for node_id in IDS
            }
        removed = await leader.node.change_voters(removing)
        assert removed.error_code == ErrorCode.NONE


@played
async def test_the_level_outlives_a_restart_of_all(world: World) -> None:
    async with static_voters(world) as three:
        assert (await update(await three.leader())).error_code == ErrorCode.NONE
        for each in IDS:
            three.kill(each)
            world.crash_disk(name_of(each))
        for each in IDS:
            await three.start(each)
        leader = await three.leader()
        assert leader.node.quorum.kraft_version == 1
        assert leader.node.quorum.voters_offset is not None
        again = await update(leader)
        assert again.error_code == ErrorCode.NONE, "it has that level"


@played
async def test_a_level_that_was_not_committed_is_taken_back(world: World) -> None:
    """The leader restarts with it in its log, and follows another one that never had it."""
    async with static_voters(world) as three:
        old = await three.leader()
        cut_off = old.config.node_id
        world.network.isolate(name_of(cut_off))
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await update(old)
        assert old.log.voters.kraft_version == 1
        three.kill(cut_off)
        others = tuple(each for each in IDS if each != cut_off)
        new = await three.leader(among=others)
        back = await three.start(cut_off)
        assert back.log.voters.kraft_version == 1
        world.network.heal_all()
        await join(new)
        assert await create(new, "after") is ErrorCode.NONE
        await three.until_equal()
        assert back.node.quorum.kraft_version == 0
        assert back.node.quorum.is_voter
        assert back.node.quorum.voters.ids == set(IDS)


@played
async def test_the_level_does_not_go_down(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        assert (await update(leader)).error_code == ErrorCode.NONE
        for kind, why in (
            (UPGRADE, "without setting the upgrade type to either safe or unsafe downgrade."),
            (SAFE_DOWNGRADE, "Can't downgrade the version of this feature."),
        ):
            refused = await update(leader, 0, kind)
            assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert (refused.error_message or "").endswith(why)
        too_high = await update(leader, 2)
        assert too_high.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "only supports versions 0-1" in (too_high.error_message or "")


@played
async def test_every_voter_has_to_support_it(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        old = next(each for each in IDS if each != leader.config.node_id)
        where = leader.node.quorum.voters.endpoints(old).addresses[0]
        report = UpdateRaftVoterRequest(
            cluster_id="a-quorum",
            current_leader_epoch=leader.node.quorum.leader_epoch,
            voter_id=old,
            voter_directory_id=directory_id(old),
            listeners=[VoterEndpoint(name=where.listener, host=where.host, port=where.port)],
        )
        assert (await leader.node.change_voters(report)).error_code == ErrorCode.NONE
        refused = await update(leader)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"voters [{old}] do not support it" in (refused.error_message or "")
        assert leader.log.voters.kraft_version == 0


@played
async def test_every_voter_has_to_have_named_its_directory(world: World) -> None:
    async with static_voters(world, named=IDS[:2]) as three:
        leader = await three.leader()
        refused = await update(leader)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert str(IDS[2]) in (refused.error_message or "")
        assert leader.log.voters.kraft_version == 0


@played
async def test_every_registered_controller_has_to_support_it(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        absent = next(each for each in IDS if each != leader.config.node_id)
        three.kill(absent)
        stale = ControllerRegistrationRequest(
            controller_id=absent,
            incarnation_id=bytes(16),
            features=[each for each in named_features() if each.name != KRAFT_VERSION],
        )
        client = Client(world.node("client"))
        address = f"{name_of(leader.config.node_id)}:9093"
        assert (await client.ask(address, stale)).error_code == ErrorCode.NONE
        refused = await update(leader)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Controller {absent} does not support this feature." in (
            refused.error_message or ""
        )


@played
async def test_a_registration_is_tried_again_where_nothing_can_be_written_now(world: World) -> None:
    refusals = [PeerUnavailableError("no file can be opened"), PeerUnavailableError("again")]

    async def decide(_: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        await trio.lowlevel.checkpoint()
        raise refusals.pop() if refusals else KafkaError(ErrorCode.NOT_CONTROLLER, "a standby")

    async with static_voters(world) as three, trio.open_nursery() as nursery:
        leader = await three.leader()
        standby = next(each for each in three.running.values() if each is not leader)
        node_id = standby.config.node_id
        before = leader.image.controllers[node_id].incarnation_id
        registration = OwnRegistration(node=standby.node, decide=decide)
        nursery.start_soon(registration.run)
        while leader.image.controllers[node_id].incarnation_id == before:
            await leader.log.wait_for_movement()
        assert refusals == []
        nursery.cancel_scope.cancel()


@played
async def test_controllers_show_the_features_and_register_them(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        registered = await until_registered(three)
        assert {each.name for each in registered[IDS[0]].features} >= {
            KRAFT_VERSION,
            METADATA_VERSION,
        }
        assert (await update(leader)).error_code == ErrorCode.NONE
        await world.node("client").clock.sleep(1)
        client = Client(world.node("client"))
        for each in IDS:
            shown = await client.ask(f"{name_of(each)}:9093", ASKED)
            levels = {each.name: each.max_version_level for each in shown.finalized_features}
            assert levels[KRAFT_VERSION] == 1
            assert levels[METADATA_VERSION] == 33


@played
async def test_a_controller_that_lacks_a_level_is_not_registered(world: World) -> None:
    async with static_voters(world) as three:
        leader = await three.leader()
        old = ControllerRegistrationRequest(
            controller_id=9, incarnation_id=bytes(16), features=[Feature(METADATA_VERSION, 7, 30)]
        )
        client = Client(world.node("client"))
        answer = await client.ask(f"{name_of(leader.config.node_id)}:9093", old)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "does not support finalized version" in (answer.error_message or "")
        assert 9 not in leader.image.controllers
