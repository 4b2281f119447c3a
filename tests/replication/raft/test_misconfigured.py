"""Controllers that cannot work with each other, as somebody configured them: one line, no damage."""

import attrs
import trio

from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.errors import ErrorCode
from replication.events import PeerContradicted, QuorumMisconfigured
from replication.observe.sentences import FAULT, kind, sentence
from scenarios.world.world import World
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import fail
from tests.replication.raft.running_quorum import (
    IDS,
    config_of,
    create,
    join,
    name_of,
    quorum,
    running,
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


@played
async def test_two_processes_with_one_id_register_less_and_less_often(world: World) -> None:
    async with quorum(world) as three, trio.open_nursery() as nursery:
        leader = await three.leader()
        clock = world.node("client").clock
        await clock.sleep(5)
        second = Controller(
            config=attrs.evolve(
                ordinary(3003),
                listeners=(attrs.evolve(ordinary(3003).listeners[0], host="second"),),
            ),
            seams=world.node("second"),
            sink=world.sink("second"),
            on_bug=fail,
        )
        await nursery.start(second.run)
        before = leader.log.log_end_offset
        await clock.sleep(120)
        assert leader.log.log_end_offset - before < 400
        nursery.cancel_scope.cancel()
    said = "another process registers as controller 3003"
    assert said in causes(world, "second") | causes(world, name_of(3003))


def test_the_sentence_is_an_operator_s() -> None:
    event = QuorumMisconfigured(cause="controller 3 says no", left_out=2)
    assert kind(event) == FAULT
    assert sentence(event) == (
        "cannot work with another controller: controller 3 says no; 2 more such causes before"
    )
