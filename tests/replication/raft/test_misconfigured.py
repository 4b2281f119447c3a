"""Controllers that cannot work with each other, as somebody configured them: one line, no damage."""

import attrs
import trio

from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.errors import ErrorCode
from replication.events import PeerContradicted, QuorumMisconfigured
from replication.observe.sentences import FAULT, kind, sentence
from replication.raft.rules.voters import VoterSet
from scenarios.world.world import World
from storage.checkpoint import read_meta_properties, write_meta_properties
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import fail
from tests.replication.raft.running_quorum import (
    IDS,
    config_of,
    create,
    dynamic_config,
    format_controller,
    join,
    name_of,
    quorum,
    running,
    voter,
)

STRANGER = 3003


def causes(world: World, node: str) -> set[str]:
    return {
        each.event.cause
        for each in world.trace.entries
        if each.node == node and isinstance(each.event, QuorumMisconfigured)
    }


def ordinary(node_id: int) -> BrokerConfig:
    return config_of(node_id, snapshot_bytes=20 << 20)


@played
async def test_a_voter_of_another_cluster_is_kept_out_and_both_sides_say_so(world: World) -> None:
    def config(node_id: int) -> BrokerConfig:
        cluster_id = "another" if node_id == STRANGER else "a-quorum"
        return attrs.evolve(ordinary(node_id), cluster_id=cluster_id)

    async with running(world, config) as three:
        leader = await three.leader()
        assert leader.config.node_id != STRANGER
        await join(leader)
        epoch = leader.node.quorum.leader_epoch
        assert await create(leader, "t") is ErrorCode.NONE
        await world.node("client").clock.sleep(30)
        stranger = three.running[STRANGER]
        assert stranger.node.quorum.leader_epoch == 0
        assert stranger.log.log_end_offset == 0
        assert leader.is_active
        assert leader.node.quorum.leader_epoch == epoch
    refused = "says that this node is of another cluster"
    assert {f"controller {each} {refused}" for each in IDS if each != STRANGER} <= causes(
        world, name_of(STRANGER)
    )
    assert causes(world, name_of(leader.config.node_id)) >= {f"controller {STRANGER} {refused}"}


@played
async def test_a_voter_at_the_address_of_another_one_is_kept_out(world: World) -> None:
    """Give the process at the address of controller 3003 the id of controller 3002.

    The voter 3001 alone cannot replace 3002: nobody votes in the place of 3003.
    """

    def config(node_id: int) -> BrokerConfig:
        made = ordinary(node_id)
        return attrs.evolve(made, node_id=3002) if node_id == STRANGER else made

    async with running(world, config) as three:
        assert (await three.leader()).config.node_id == 3002
        stranger = three.running[STRANGER]
        await world.node("client").clock.sleep(5)
        assert stranger.log.log_end_offset == 0
        three.kill(3002)
        await world.node("client").clock.sleep(10)
        assert three.active == []
        assert stranger.log.log_end_offset == 0
    first, *_ = (
        each.event.claim
        for each in world.trace.entries
        if each.node == name_of(STRANGER) and isinstance(each.event, PeerContradicted)
    )
    assert first.startswith("a peer says that 3002 leads in epoch 1, but this node is Unattached")
    assert causes(world, name_of(3001)) == {
        f"controller {STRANGER} says that its directory is not the one that the voter set names"
    }


def second_process(world: World) -> Controller:
    """Return another process with the id of controller 3003, on a disk of its own."""
    (listener,) = ordinary(3003).listeners
    config = attrs.evolve(ordinary(3003), listeners=(attrs.evolve(listener, host="second"),))
    return Controller(
        config=config, seams=world.node("second"), sink=world.sink("second"), on_bug=fail
    )


@played
async def test_a_second_process_with_the_id_of_a_controller_gets_no_record(world: World) -> None:
    """It takes the place of the first one only once that is gone."""
    async with quorum(world) as three, trio.open_nursery() as nursery:
        leader = await three.leader()
        if leader.config.node_id == 3003:
            await three.stop(3003)
            leader = await three.leader()
            await three.start(3003)
        await three.until_equal()
        clock, second = world.node("client").clock, second_process(world)
        await nursery.start(second.run)
        await clock.sleep(30)
        assert second.log.log_end_offset == 0
        three.kill(3003)
        await clock.sleep(10)
        assert second.log.log_end_offset == leader.log.log_end_offset
        nursery.cancel_scope.cancel()
    leads = leader.config.node_id
    assert causes(world, "second") == {
        f"the controller {leads}, which leads, says that another process has the node id of this one"
    }
    assert "two processes fetch as controller 3003" in causes(world, name_of(leads))


@played
async def test_two_processes_on_copies_of_one_disk_register_less_and_less_often(
    world: World,
) -> None:
    async with quorum(world) as three, trio.open_nursery() as nursery:
        leader = await three.leader()
        clock = world.node("client").clock
        await clock.sleep(5)
        second, directory = second_process(world), ordinary(3003).metadata_directory
        first = read_meta_properties(world.node(name_of(3003)).file_system, directory)
        assert first is not None
        second.seams.file_system.make_directory(directory)
        write_meta_properties(second.seams.file_system, directory, first)
        await nursery.start(second.run)
        before = leader.log.log_end_offset
        await clock.sleep(120)
        assert leader.log.log_end_offset - before < 400
        nursery.cancel_scope.cancel()
    said = "another process registers as controller 3003"
    assert said in causes(world, "second") | causes(world, name_of(3003))


@played
async def test_a_controller_on_another_disk_than_the_voter_set_names_says_so(world: World) -> None:
    """The leader says so too, and the stranger only observes."""
    voters = VoterSet(tuple(voter(each, disk=4 if each == STRANGER else each) for each in IDS))
    for each in IDS:
        format_controller(world, each, voters if each != STRANGER else None, is_dynamic=True)
    async with running(world, dynamic_config) as three:
        leader = await three.leader()
        await three.until_equal()
        stranger = three.running[STRANGER]
        await world.node("client").clock.sleep(10)
        assert not stranger.node.quorum.is_voter
        assert STRANGER in {each.key.id for each in leader.node.quorum.voters.nodes}
    assert causes(world, name_of(STRANGER)) == {
        f"voter {STRANGER} has another directory than this node, which only observes"
    }
    said = "says that its directory is not the one that the voter set names"
    assert causes(world, name_of(leader.config.node_id)) == {f"controller {STRANGER} {said}"}


def test_the_sentence_is_an_operator_s() -> None:
    event = QuorumMisconfigured(cause="controller 3 says no", left_out=2)
    assert kind(event) == FAULT
    assert sentence(event) == (
        "cannot work with another controller: controller 3 says no; 2 more such causes before"
    )
