"""A cluster in a thread: called from plain functions, and from inside another trio loop."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from replication.client import Producer
from replication.cluster.interface import NotInTimeError, NotPossibleError
from replication.errors import ConfigError, KafkaError
from replication.faults import FaultRule, FaultRuleError, times
from replication.faults.node_faults import NotHitError
from replication.testing import KafkaContainer, ThreadedCluster
from replication.testing.portal import ClusterStoppedError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=1)
        yield cluster


@pytest.fixture
def cluster(shared: ThreadedCluster) -> Iterator[ThreadedCluster]:
    yield shared
    shared.reset()
    shared.until(lambda: len(shared.isr("orders")) == 3)


def leader_of(cluster: ThreadedCluster) -> int:
    leader = cluster.leader("orders")
    assert leader is not None
    return leader


def produce(cluster: ThreadedCluster, topic: str) -> None:
    async def one() -> None:
        async with Producer[bytes, bytes](
            cluster.bootstrap_servers, acks=1, enable_idempotence=False
        ) as producer:
            await producer.send(topic, b"one")

    trio.run(one)


def test_a_killed_leader_is_replaced_and_comes_back(cluster: ThreadedCluster) -> None:
    leader = leader_of(cluster)
    cluster.kill_broker(leader)
    assert leader not in cluster.brokers
    cluster.until(lambda: cluster.leader("orders") not in (None, leader))
    cluster.start_broker(leader)
    cluster.until(lambda: leader in cluster.isr("orders"))


@pytest.mark.deep
def test_the_leader_of_a_partition_is_killed_by_its_topic(cluster: ThreadedCluster) -> None:
    leader = leader_of(cluster)
    assert cluster.kill_leader("orders") == leader
    assert leader not in cluster.brokers
    with pytest.raises(NotPossibleError, match=r"^nowhere-2 has no leader$"):
        cluster.kill_leader("nowhere", 2)


def test_a_cluster_is_shown_by_the_arguments_that_make_it() -> None:
    for cluster in (ThreadedCluster(), ThreadedCluster(brokers=1, config={"a": 1}, base_port=9)):
        assert repr(eval(repr(cluster))) == repr(cluster)
    assert repr(ThreadedCluster()) == "ThreadedCluster(brokers=3, controllers=1)"


def test_an_error_has_no_frames_of_the_loop(cluster: ThreadedCluster) -> None:
    with pytest.raises(KafkaError) as caught:
        cluster.create_topic("orders")
    assert {Path(each.path).name for each in caught.traceback} <= {
        Path(__file__).name,
        "threaded.py",
        "portal.py",
    }
    assert [Path(each.path).name for each in caught.traceback.filter(caught)] == [
        Path(__file__).name
    ]


def test_a_frozen_leader_is_replaced_and_thaws(cluster: ThreadedCluster) -> None:
    leader = leader_of(cluster)
    cluster.freeze_broker(leader)
    cluster.until(lambda: cluster.leader("orders") not in (None, leader))
    assert leader in cluster.brokers
    cluster.thaw_broker(leader)
    cluster.until(lambda: leader in cluster.isr("orders"))


@pytest.mark.deep
def test_a_leader_that_is_cut_off_is_replaced_and_joins_again(cluster: ThreadedCluster) -> None:
    leader = leader_of(cluster)
    cluster.partition_network([leader])
    cluster.until(lambda: cluster.leader("orders") not in (None, leader))
    cluster.heal_network()
    cluster.until(lambda: leader in cluster.isr("orders"))


def test_a_follower_that_hears_nothing_of_its_leader_leaves_the_isr() -> None:
    config = {"replica.lag.time.max.ms": 1000}
    with ThreadedCluster(brokers=2, config=config) as cluster:
        cluster.create_topic("orders")
        leader = leader_of(cluster)
        cluster.partition_network([leader], [3 - leader], one_way=True)
        produce(cluster, "orders")  # a follower that lacks nothing is in sync however silent
        cluster.until(lambda: cluster.isr("orders") == [leader])
        assert cluster.leader("orders") == leader
        cluster.heal_network()
        cluster.until(lambda: cluster.isr("orders") == [1, 2])


def test_reset_makes_it_whole_again(cluster: ThreadedCluster) -> None:
    cluster.kill_broker(1)
    cluster.freeze_broker(2)
    cluster.partition_network([3])
    cluster.kill_controller()
    cluster.reset()
    assert cluster.brokers == [1, 2, 3]


async def test_it_can_be_asked_inside_a_trio_loop(cluster: ThreadedCluster) -> None:
    await trio.lowlevel.checkpoint()
    assert cluster.replicas("orders") == cluster.replicas("orders", 0) != []


def test_a_condition_that_never_holds_ends_its_wait(cluster: ThreadedCluster) -> None:
    with pytest.raises(NotInTimeError, match="a fourth broker"):
        cluster.until(lambda: 4 in cluster.brokers, timeout=0.05, what="a fourth broker")


def test_an_error_of_a_broker_is_raised(cluster: ThreadedCluster) -> None:
    with pytest.raises(KafkaError):
        cluster.create_topic("orders")


def test_the_trace_says_what_happened(cluster: ThreadedCluster) -> None:
    mark = cluster.trace.mark
    cluster.stop_broker(1)
    said = "\n".join(cluster.trace.lines(mark))
    assert "b1" in said
    assert "broker_stopped" in said
    assert "topic_created" not in said


def test_a_cluster_that_has_ended_says_so() -> None:
    cluster = ThreadedCluster(brokers=1)
    with pytest.raises(ClusterStoppedError, match="not been started"):
        cluster.brokers  # noqa: B018 - asked for
    with cluster:
        assert cluster.brokers == [1]
    with pytest.raises(ClusterStoppedError, match="stopped"):
        cluster.brokers  # noqa: B018 - asked for


def test_a_cluster_is_started_once() -> None:
    cluster = ThreadedCluster(brokers=1, config={"auto.create.topics.enable": False})
    with cluster, pytest.raises(ClusterStoppedError, match="started once"):
        cluster.start()
    with pytest.raises(ClusterStoppedError, match="started once"):
        cluster.start()


@pytest.mark.parametrize("brokers", [0, -1, "3", True])
def test_a_number_of_brokers_that_cannot_be_is_named(brokers: Any) -> None:
    with pytest.raises(ConfigError, match=f"brokers={brokers!r}: expected a whole number"):
        ThreadedCluster(brokers=brokers).start()


def test_a_node_that_there_is_not_is_named(cluster: ThreadedCluster) -> None:
    said = r"there is no node 9; those of this cluster: 0, 1, 2, 3"
    for nodes in ([[9]], [[1], [9]]):
        with pytest.raises(NotPossibleError, match=said):
            cluster.partition_network(*nodes)
    with pytest.raises(
        FaultRuleError, match=r"^broker: 9 is not a node of this cluster; the nodes are 0, 1, 2, 3"
    ):
        cluster.faults.add(api="PRODUCE", error=6, broker=9)
    assert cluster.faults.rules == []


@pytest.mark.parametrize(
    ("given", "named"),
    [(9, "9"), (0, r"0 \(0 is a controller\)"), (True, "True"), ("1", "'1'"), (None, "None")],
)
def test_an_unknown_broker_is_named(cluster: ThreadedCluster, given: Any, named: str) -> None:
    for call in (
        cluster.kill_broker,
        cluster.stop_broker,
        cluster.start_broker,
        cluster.freeze_broker,
        cluster.thaw_broker,
    ):
        with pytest.raises(
            NotPossibleError, match=rf"no broker {named}; those of this cluster: 1, 2, 3$"
        ):
            call(given)
    assert cluster.brokers == [1, 2, 3]


@pytest.mark.deep
def test_a_frozen_broker_does_not_keep_topics_from_being_made_and_deleted(
    cluster: ThreadedCluster,
) -> None:
    cluster.freeze_broker(3)
    cluster.create_topic("meanwhile", replication_factor=2)
    cluster.delete_topic("meanwhile")
    assert cluster.leader("meanwhile") is None


@pytest.mark.parametrize("who", [1, None])
def test_nodes_to_cut_off_are_given_as_several(cluster: ThreadedCluster, who: Any) -> None:
    with pytest.raises(
        NotPossibleError, match=rf"^{who} is not a list of node ids, such as \[1, 2\]$"
    ):
        cluster.partition_network(who)


def test_a_single_other_node_is_no_list_of_them(cluster: ThreadedCluster) -> None:
    one: Any = 2
    with pytest.raises(NotPossibleError, match=r"^2 is not a list"):
        cluster.partition_network([1], one)


def test_a_config_that_cannot_be_is_raised_by_the_start() -> None:
    with pytest.raises(ConfigError, match=r"min\.insync\.replicas"):
        ThreadedCluster(brokers=1, config={"min.insync.replicas": "many"}).start()


def test_the_shape_of_testcontainers() -> None:
    container = KafkaContainer().with_kraft().with_env("KAFKA_NUM_PARTITIONS", "4")
    assert container.config == {"num.partitions": "4"}
    with container as kafka:
        host, _, port = kafka.get_bootstrap_server().partition(":")
    assert (host, port.isdigit()) == ("127.0.0.1", True)


def test_fault_rules_are_added_from_outside_and_gone_with_a_reset(
    cluster: ThreadedCluster,
) -> None:
    rule = cluster.faults.add(api="PRODUCE", topic="orders", error=6, trigger=times(2))
    watching = cluster.faults.add(FaultRule(api="PRODUCE", effect="observe"))
    mark = cluster.trace.mark
    produce(cluster, "orders")
    rule.wait_for_hits(2)
    assert [hit.answer for hit in watching.observed] == ["NOT_LEADER_OR_FOLLOWER"] * 2 + ["NONE"]
    assert (rule.calls, rule.hits, watching.hits) == (3, 2, 3)
    with pytest.raises(NotHitError, match="was hit 2 of 3 times"):
        rule.wait_for_hits(3, timeout=0.01)
    assert [each.rule for each in cluster.faults.rules] == [rule.rule, watching.rule]
    events = [line for line in cluster.trace.lines(mark) if "fault_applied" in line]
    assert len(events) == 2
    assert "fault=NOT_LEADER_OR_FOLLOWER" in events[0]
    rule.remove()
    assert [each.added.number for each in cluster.faults.rules] == [watching.added.number]
    cluster.reset()
    assert cluster.faults.rules == []
    with pytest.raises(FaultRuleError, match=r"^rule: 'PRODUCE' is not a FaultRule"):
        cluster.faults.add("PRODUCE")  # type: ignore[arg-type]
    with pytest.raises(FaultRuleError, match=r"^error: "):
        cluster.faults.add(api="PRODUCE", error="NO_SUCH")


def test_nothing_is_collected_while_brokers_start() -> None:
    """With a collection due at every hundredth object, a start would see hundreds."""
    seen: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    before, (threshold, *others) = gc.isenabled(), gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(100, *others)
    try:
        with ThreadedCluster(brokers=1):
            assert gc.isenabled() is before
            during = len(seen)
    finally:
        gc.set_threshold(threshold, *others)
        gc.callbacks.remove(note)
    assert during < 50


def test_an_error_names_its_topic_once(cluster: ThreadedCluster) -> None:
    with pytest.raises(KafkaError, match=r"^TOPIC_ALREADY_EXISTS: topic 'orders' already exists$"):
        cluster.create_topic("orders")
    with pytest.raises(KafkaError, match=r"^UNKNOWN_TOPIC_OR_PARTITION: nowhere\b"):
        cluster.delete_topic("nowhere")
