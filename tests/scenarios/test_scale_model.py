"""What docs/scale.md computes of a cluster, counted where one is simulated.

Counts and bytes, and virtual time over links whose delay is known: nothing that a machine
could be slow at.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

import attrs
import pytest

from replication.events import BecameLeader, Event, IsrChanged, LeaderElected
from replication.wire.apis import ApiKey
from scenarios.world.client import AckedBatch, SentRecords, StoryClient
from scenarios.world.cluster import BROKER_PORT, SimulatedCluster, open_simulated_cluster
from scenarios.world.streams import Pipe
from scenarios.world.world import World
from storage.types import TopicPartition

Story = Callable[[World, SimulatedCluster, StoryClient], Awaitable[None]]

SECONDS = 10
ROUNDS_A_SECOND = 2  # replica.fetch.wait.max.ms is 500
REQUEST_BYTES, ANSWER_BYTES = 69, 17  # of the request, 18 are the name of the fetcher
COPIES = 3


@attrs.define
class Meter:
    """Counts what is asked and answered between brokers about Fetch, while it is on."""

    on: bool = False
    requests: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    request_bytes: Counter[int] = attrs.field(factory=Counter)
    answer_bytes: Counter[int] = attrs.field(factory=Counter)
    _asking: set[Pipe] = attrs.field(factory=set)

    def opened(self, requests: Pipe, responses: Pipe) -> None:
        del responses
        self._asking.add(requests)

    def sent(self, pipe: Pipe, chunk: memoryview, now: float) -> None:
        del now
        names = pipe.link.source.name, pipe.link.target.name
        if not self.on or pipe.api != ApiKey.FETCH or "c" in names:
            return
        size = len(chunk) - 4
        assert int.from_bytes(chunk[:4], "big") == size, "an idle round is one chunk each way"
        if pipe in self._asking:
            self.requests[names] += 1
            self.request_bytes[size] += 1
        else:
            self.answer_bytes[size] += 1

    def received(self, pipe: Pipe, size: int, now: float) -> None:
        """When it arrives is no matter here."""


def play(story: Story, *, brokers: int, meter: Meter | None = None) -> World:
    world = World(1)
    if meter is not None:
        world.network.tap = meter

    async def in_world(world: World) -> None:
        async with open_simulated_cluster(world, brokers=brokers) as cluster:
            client = StoryClient(
                name="client",
                seams=world.node("client"),
                bootstrap=[(name, BROKER_PORT) for name in cluster.broker_names],
            )
            await story(world, cluster, client)

    world.run(in_world)
    return world


def spread(brokers: int, partitions: int) -> list[list[int]]:
    """Replicas of each, evenly: everybody follows everybody else."""
    steps = [
        (one, other) for one in range(1, brokers) for other in range(1, brokers) if one != other
    ]
    return [
        [
            1 + number % brokers,
            *(1 + (number + step) % brokers for step in steps[number // brokers % len(steps)]),
        ]
        for number in range(partitions)
    ]


@pytest.mark.parametrize(("brokers", "partitions"), [(3, 6), (3, 60), (4, 12)])
def test_an_idle_pair_of_brokers_costs_two_rounds_a_second_whatever_it_shares(
    brokers: int, partitions: int
) -> None:
    meter = Meter()

    async def idle(world: World, cluster: SimulatedCluster, client: StoryClient) -> None:
        await client.create_topic("t", spread(brokers, partitions))
        await cluster.clock.sleep(5)
        meter.on = True
        await cluster.clock.sleep(SECONDS)
        meter.on = False

    play(idle, brokers=brokers, meter=meter)
    assert len(meter.requests) == brokers * (brokers - 1)
    for rounds in meter.requests.values():
        assert ROUNDS_A_SECOND * SECONDS - 1 <= rounds <= ROUNDS_A_SECOND * SECONDS
    assert set(meter.request_bytes) == {REQUEST_BYTES}
    assert set(meter.answer_bytes) == {ANSWER_BYTES}


def test_a_broker_that_dies_costs_as_many_changes_as_it_had_replicas() -> None:
    brokers = 4
    partitions = brokers * (brokers - 1) * 2
    of_each = partitions // brokers
    events: list[Event] = []

    async def kill_one(world: World, cluster: SimulatedCluster, client: StoryClient) -> None:
        await client.create_topic("t", spread(brokers, partitions))
        await cluster.clock.sleep(5)
        before = len(world.trace.entries)
        await cluster.kill("b1")
        await cluster.clock.sleep(12)  # its session is over after 9
        events.extend(entry.event for entry in world.trace.entries[before:])

    play(kill_one, brokers=brokers)
    elected = [each for each in events if isinstance(each, LeaderElected)]
    assert len(elected) == of_each, "P / N get another leader"
    left = {each.partition for each in events if isinstance(each, IsrChanged)}
    assert len(left | {each.partition for each in elected}) == COPIES * of_each, "3 P / N change"
    took_over = Counter(each.leader for each in elected)
    assert sum(isinstance(each, BecameLeader) for each in events) == of_each
    assert max(took_over.values()) <= -(-of_each // (brokers - 1)) + COPIES
    assert 1 not in took_over


@pytest.mark.parametrize("delay_ms", [1, 20])
def test_a_record_is_committed_four_ways_after_it_is_sent(delay_ms: int) -> None:
    """To the leader; to the follower that waits; back with its next fetch; the ack."""
    sent = SentRecords(TopicPartition("t", 0), ("one",), -1)

    async def send(world: World, cluster: SimulatedCluster, client: StoryClient) -> None:
        await client.create_topic("t", [[1, 2, 3]])
        names = [*cluster.names, "client"]
        for number, name in enumerate(names):
            for other in names[number + 1 :]:
                world.network.set_delay(name, other, least=delay_ms / 1000)
        await cluster.clock.sleep(5)
        await client.send(sent, timeout_ms=30_000)

    play(send, brokers=3)
    assert isinstance(sent.outcome, AckedBatch)
    # Whom to ask: a connection and a question of a broker, a connection to the leader.
    before = 2 + 2 + 2
    took = (sent.answered_at - sent.sent_at) * 1000 / delay_ms
    assert round(took) == before + 4
