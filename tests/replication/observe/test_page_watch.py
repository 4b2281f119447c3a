"""Kills, freezes and cuts are found by comparing two states, and added to the timeline."""

from functools import partial

from replication.faults.impairments import Impairments
from replication.observe.nodes_source import reader_of_nodes
from replication.observe.page import Board, PageWatch, Timeline
from replication.observe.state_reader import IsrReasons
from scenarios.world.world import World
from tests.replication.broker.stage import played, seams_in, staged


@played
async def test_a_kill_a_freeze_and_a_cut_are_on_the_timeline(world: World) -> None:
    impairments = Impairments(partial(seams_in, world))
    async with staged(world, impairments) as stage:
        clock = stage.cluster.clock
        timeline = Timeline(clock.wall_ms)
        reader = reader_of_nodes(stage.cluster, IsrReasons(clock.now_ms))
        watch = PageWatch(reader=reader, board=Board(timeline), clock=clock)
        await watch.read()
        assert timeline.count == 0
        await stage.cluster.kill_broker(1)
        await stage.cluster.freeze_node(2)
        await stage.cluster.cut([2], [3])
        await stage.cluster.cut([0], [1], one_way=True)
        await watch.read()
        stage.cluster.let_go()
        await stage.cluster.start_broker(1)
        await watch.read()
        assert [(each.kind, each.text) for each in timeline.since(0)] == [
            ("fault", "b1 is down"),
            ("fault", "b2 is frozen: it answers no request, and closes no connection"),
            ("fault", "nothing passes from controller to b1"),
            ("fault", "nothing passes between b2 and b3"),
            ("news", "b1 is up"),
            ("news", "b2 is up"),
            ("news", "controller reaches b1 again"),
            ("news", "b2 and b3 reach each other again"),
        ]
