"""The quorum of controllers, by the copies of the metadata log on the nodes' disks."""

from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")

from pipeline.journals.quorum import QuorumStanding, quorum_at
from scenarios.world.cluster import SimulatedCluster, node_id_of, open_simulated_cluster
from scenarios.world.world import World

VOTERS = (3001, 3002, 3003)


def played(
    story: Callable[[SimulatedCluster], Awaitable[QuorumStanding | None]],
) -> QuorumStanding:
    async def run(world: World) -> QuorumStanding | None:
        async with open_simulated_cluster(world, brokers=1, controllers=3) as cluster:
            return await story(cluster)

    found = World(1).run(run)
    assert found is not None
    return found


def homes(cluster: SimulatedCluster) -> list[str]:
    return [f"/{name}" for name in cluster.names]


def test_it_names_who_leads_who_votes_and_who_observes() -> None:
    leaders: list[int] = []

    async def story(cluster: SimulatedCluster) -> QuorumStanding | None:
        assert cluster.deciding is not None
        leaders.append(node_id_of(cluster.deciding))
        await cluster.clock.sleep(10)
        return quorum_at(cluster.disks(), homes(cluster))

    quorum = played(story)
    assert quorum.newest.leader_id == leaders[0]
    assert quorum.newest.voters == VOTERS
    roles = {each.node_id: quorum.role_of(each) for each in quorum.copies}
    assert roles == {1: "observes", **dict.fromkeys(VOTERS, "votes"), leaders[0]: "leads"}
    assert {quorum.lag_of(each) for each in quorum.copies} == {0}
    assert f"Controller {leaders[0]} leads the metadata in leader epoch" in str(quorum)


def test_after_an_election_the_one_that_died_lags() -> None:
    dead: list[int] = []

    async def story(cluster: SimulatedCluster) -> QuorumStanding | None:
        first = cluster.deciding
        assert first is not None
        dead.append(node_id_of(first))
        await cluster.kill(first)
        await cluster.until(
            lambda: cluster.deciding not in (None, first), what="another controller decides"
        )
        await cluster.clock.sleep(10)
        return quorum_at(cluster.disks(), homes(cluster))

    quorum = played(story)
    assert quorum.newest.leader_id not in dead
    lags = {each.node_id: quorum.lag_of(each) for each in quorum.copies}
    assert [node for node, lag in lags.items() if lag] == dead


def test_a_directory_of_a_whole_cluster_is_looked_through() -> None:
    found: list[QuorumStanding | None] = []

    async def run(world: World) -> None:
        async with open_simulated_cluster(world, brokers=1) as cluster:
            found.extend(quorum_at(cluster.disks(), [path]) for path in ("/", "/nowhere"))

    World(1).run(run)
    whole, nothing = found
    assert whole is not None
    assert [each.node_id for each in whole.copies] == [0, 1]
    assert nothing is None
