"""A broker whose id another process has taken over."""

from replication.broker.lifecycle import BrokerReplacedError
from replication.errors import ErrorCode
from scenarios.world.world import World
from tests.replication.broker.stage import name_of, played, staged
from tests.replication.controller.running_controller import Registered


@played
async def test_a_broker_that_was_replaced_while_it_was_frozen_ends(world: World) -> None:
    async with staged(world) as stage:
        cluster, frozen = stage.cluster, name_of(2)
        assert cluster.controller is not None
        world.pause(frozen)
        other = Registered(cluster.controller, 2, incarnation=7)
        while (await other.register()).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            await cluster.clock.sleep(1)
        assert not cluster.failures
        world.resume(frozen)
        await cluster.until(lambda: bool(cluster.failures), what="the broker has ended")
        (failure,) = cluster.failures.values()
        assert isinstance(failure, BrokerReplacedError)
        assert str(failure) == "another process has registered as broker 2, which this one was"


@played
async def test_a_broker_that_comes_back_replaces_itself(world: World) -> None:
    async with staged(world) as stage:
        for end in (stage.cluster.kill_broker, stage.cluster.stop_broker):
            await end(2)
            await stage.cluster.start_broker(2)
        await stage.cluster.clock.sleep(30)
        assert not stage.cluster.failures
