"""Which replica a consumer is sent to (KIP-392)."""

from typing import Final

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ConfigError, ErrorCode
from replication.leader.rules.fetch_data import NO_REPLICA, ClientMetadata, FetchInfo, FetchParams
from replication.leader.rules.replica_selector import (
    SELECTORS,
    PartitionView,
    ReplicaView,
    leader_selector,
    rack_aware_selector,
)
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    Broker,
    append,
    broker,
    consumer_params,
    fetch,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, Node

ALL = (LOCAL, REMOTE, OTHER)
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
WEST = ClientMetadata("west")


def replica(broker_id: int, rack: str | None, end: int = 10, lag_ms: int = 0) -> ReplicaView:
    return ReplicaView(
        broker_id=broker_id, rack=rack, log_end_offset=end, ms_since_caught_up=lag_ms
    )


# The rule.


@pytest.mark.parametrize(
    ("client_rack", "others", "chosen"),
    [
        pytest.param("", [replica(2, "west")], 1, id="no rack"),
        pytest.param("north", [replica(2, "west")], 1, id="nobody in it"),
        pytest.param("east", [replica(2, "east", 20)], 1, id="the leader is in it"),
        pytest.param("west", [replica(2, "west"), replica(3, None, 20)], 2, id="one in it"),
        pytest.param("west", [replica(2, "west", 8), replica(3, "west", 9)], 3, id="the furthest"),
        pytest.param(
            "west", [replica(2, "west", 9, 5), replica(3, "west", 9, 50)], 2, id="the latest"
        ),
        pytest.param("west", [replica(2, "west"), replica(3, "west")], 3, id="the greatest id"),
    ],
)
def test_a_client_is_sent_to_its_own_rack(
    client_rack: str, others: list[ReplicaView], chosen: int
) -> None:
    leader = replica(1, "east")
    view = PartitionView(leader=leader, replicas=(leader, *others))
    assert rack_aware_selector(ClientMetadata(client_rack), view).broker_id == chosen
    assert leader_selector(ClientMetadata(client_rack), view) is leader


@pytest.mark.conformance("RM-34")
def test_a_selector_of_no_known_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"replica.selector.class=com.example.Mine: expected one"):
        BrokerConfig(node_id=1, replica_selector_class="com.example.Mine")


def test_every_class_that_the_configuration_takes_is_there() -> None:
    for name in SELECTORS:
        assert BrokerConfig(node_id=1, replica_selector_class=name).replica_selector_class == name


@pytest.mark.conformance("RM-35")
@pytest.mark.conformance("RM-28")
async def test_without_a_selector_consumers_stay_at_the_leader(autojump_clock: MockClock) -> None:
    assert BrokerConfig(node_id=1).replica_selector_class is None
    async with Node().running() as node:
        await lead_in_racks(node)
        partition = node.manager.hosted.get(TP)
        assert partition.around.selector is None
        assert partition.leadership is not None
        assert partition.leadership.preferred_replica(WEST, 0) == NO_REPLICA


# The leader's part.


TP: Final = Broker().partition().topic_partition


@attrs.define
class Chooses:
    """A selector that notes what it is shown, and chooses one broker where it can."""

    broker_id: int
    shown: list[PartitionView] = attrs.field(factory=list)

    def __call__(self, _: ClientMetadata, view: PartitionView) -> ReplicaView:
        self.shown.append(view)
        ids = {each.broker_id: each for each in view.replicas}
        return ids.get(self.broker_id, view.leader)


def choosing(broker_id: int) -> tuple[Broker, Chooses]:
    side, chooses = Broker(), Chooses(broker_id)
    side.around = attrs.evolve(side.around, selector=chooses)
    return side, chooses


def read(params: FetchParams, side: Broker, offset: int = 0) -> int:
    partition = side.leader((LOCAL, REMOTE, OTHER), records=3)
    fetch(partition, 3, replica=REMOTE)
    fetch(partition, 1, replica=OTHER)
    info = FetchInfo(offset)
    answer = partition.fetch(params, info, max_bytes=1 << 20, min_one=True, note=True)
    assert answer.records is None or answer.preferred_read_replica == NO_REPLICA
    return answer.preferred_read_replica


@pytest.mark.conformance("RM-31")
def test_only_members_of_the_isr_that_hold_the_offset_may_be_chosen() -> None:
    side, chooses = choosing(OTHER)
    assert read(consumer_params(), side) == OTHER
    assert [each.broker_id for each in chooses.shown[-1].replicas] == [LOCAL, REMOTE, OTHER]
    assert read(consumer_params(), side, offset=2) == NO_REPLICA
    assert [each.broker_id for each in chooses.shown[-1].replicas] == [LOCAL, REMOTE]
    side.set_broker(OTHER, fenced=True)
    partition = side.leader((LOCAL, REMOTE), replicas=ALL, records=3)
    fetch(partition, 3, replica=OTHER)  # holds everything, and may not join
    partition.fetch(consumer_params(), FetchInfo(0), max_bytes=1, min_one=True, note=True)
    assert OTHER not in [each.broker_id for each in chooses.shown[-1].replicas]


def test_old_clients_and_followers_are_sent_nowhere() -> None:
    side, chooses = choosing(REMOTE)
    assert read(consumer_params(knows_followers=False), side) == NO_REPLICA
    assert chooses.shown == []


@pytest.mark.conformance("RM-32")
def test_a_follower_never_chooses() -> None:
    side, chooses = choosing(REMOTE)
    partition = side.leader(records=1)
    partition.make_follower(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
    answer = partition.fetch(consumer_params(), FetchInfo(0), max_bytes=1, min_one=True, note=True)
    assert answer.preferred_read_replica == NO_REPLICA
    assert chooses.shown == []


async def lead_in_racks(node: Node) -> None:
    """This broker in the east, the other in the west, and both hold what is committed."""
    racks = {LOCAL: "east", REMOTE: "west", OTHER: None}
    await node.learn(
        registration(), brokers=[attrs.evolve(broker(each), rack=racks[each]) for each in racks]
    )
    await node.produce(2)
    await node.follow(2)
    assert node.state().high_watermark == 2


def rack_aware() -> Node:
    return Node(config=BrokerConfig(node_id=LOCAL, replica_selector_class=RACK_AWARE))


def from_rack(rack: str, *, min_bytes: int = 1, max_wait_ms: int = 0) -> FetchParams:
    params = consumer_params(min_bytes=min_bytes, max_wait_ms=max_wait_ms)
    return attrs.evolve(params, client_metadata=ClientMetadata(rack))


@pytest.mark.conformance("RM-33")
async def test_a_fetch_that_belongs_elsewhere_is_answered_at_once(
    autojump_clock: MockClock,
) -> None:
    async with rack_aware().running() as node:
        await lead_in_racks(node)
        started = CLOCK.now()
        params = from_rack("west", min_bytes=100_000, max_wait_ms=10_000)
        [(_, answer)] = await node.fetch(params, p0=FetchInfo(2))
        assert CLOCK.now() == started
        assert node.manager.purgatories.fetch.expired == 0
        assert answer.preferred_read_replica == REMOTE
        assert answer.records is None
        assert (answer.error, answer.high_watermark) == (ErrorCode.NONE, 2)


async def test_a_fetch_from_the_leaders_own_rack_is_answered_by_it(
    autojump_clock: MockClock,
) -> None:
    async with rack_aware().running() as node:
        await lead_in_racks(node)
        for rack in ("east", "north", ""):
            [(_, answer)] = await node.fetch(from_rack(rack), p0=FetchInfo(0))
            assert answer.preferred_read_replica == NO_REPLICA
            assert answer.records is not None


@pytest.mark.conformance("RM-30")
async def test_without_a_selector_the_leader_answers_everybody(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await lead_in_racks(node)
        [(_, answer)] = await node.fetch(from_rack("west"), p0=FetchInfo(0))
        assert answer.preferred_read_replica == NO_REPLICA
        assert answer.records is not None


async def test_the_leader_epoch_is_checked_before_a_replica_is_chosen(
    autojump_clock: MockClock,
) -> None:
    async with rack_aware().running() as node:
        await lead_in_racks(node)
        info = FetchInfo(0, current_leader_epoch=7)
        [(_, answer)] = await node.fetch(from_rack("west"), p0=info)
        assert answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_fenced_follower_is_in_no_rack(autojump_clock: MockClock) -> None:
    async with rack_aware().running() as node:
        await lead_in_racks(node)
        await node.learn(
            registration(), brokers=[attrs.evolve(broker(REMOTE, fenced=True), rack="west")]
        )
        [(_, answer)] = await node.fetch(from_rack("west"), p0=FetchInfo(0))
        assert answer.preferred_read_replica == NO_REPLICA


def test_followers_positions_decide() -> None:
    side, chooses = choosing(REMOTE)
    partition = side.leader(records=2)
    append(partition)
    fetch(partition, 2)
    side.now_ms += 500
    partition.fetch(consumer_params(), FetchInfo(0), max_bytes=1, min_one=True, note=True)
    [leader, follower] = chooses.shown[-1].replicas
    assert (leader.log_end_offset, leader.ms_since_caught_up) == (3, 0)
    assert (follower.log_end_offset, follower.ms_since_caught_up) == (2, 500)
