"""The answers of a broker about metadata, topics, configurations, offsets, coordinators, ids.

The file is long because it has a few cases for each of many requests.
"""

import attrs
import pytest
import trio

from replication.broker.handlers.legacy_offsets import as_a_consumer_sees
from replication.broker.handlers.metadata import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from replication.config import ConfigSource
from replication.errors import ErrorCode
from replication.events import FetchSessionClosed, FetchSessionOpened
from replication.metadata.rules.records import MAX_RECORDS
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
)
from replication.wire.describe_cluster import CONTROLLERS, DescribeClusterRequest
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from replication.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from replication.wire.find_coordinator import TRANSACTION, FindCoordinatorRequest
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.metadata import LeaderIdAndEpoch, MetadataRequest, MetadataRequestTopic
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from scenarios.world.world import World
from storage.types import NO_TOPIC_ID
from tests.replication.broker.stage import Stage, played_in, staged

UNKNOWN_ID = b"no topic's own id"[:16]


# Metadata.


@played_in(staged)
async def test_a_topic_is_described_by_name_and_by_id(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t", partitions=2)
    by_name = await stage.client.metadata(stage.address(1), "t")
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    by_id = await stage.client.ask(stage.address(1), request, version=12)
    assert by_id.topics == by_name.topics
    (topic,) = by_name.topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("t", topic_id, 0)
    for partition in topic.partitions:
        assert sorted(partition.replica_nodes) == [1, 2, 3]
        assert partition.leader_id in partition.isr_nodes
        assert (partition.leader_epoch, partition.offline_replicas) == (0, [])


@played_in(staged)
async def test_what_does_not_exist_is_unknown_by_name_or_by_id(stage: Stage) -> None:
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(name="nothing"),
            MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None),
        ],
        allow_auto_topic_creation=False,
    )
    answer = await stage.client.ask(stage.address(1), request, version=12)
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in answer.topics] == [
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC_ID),
        (None, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID),
    ]


@played_in(staged)
async def test_a_topic_asked_for_twice_is_answered_once_and_its_id_wins_over_its_name(
    stage: Stage,
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(name="t"),
            MetadataRequestTopic(name="t"),
            MetadataRequestTopic(name="t", topic_id=UNKNOWN_ID),
        ]
    )
    answer = await stage.client.ask(stage.address(1), request, version=12)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["", "..", "a b"])
@played_in(staged, brokers=1)
async def test_a_name_that_no_topic_can_have_is_refused_as_such(
    stage: Stage, name: str, create: bool
) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create
    )
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    resource = DescribeConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=name)
    described = await stage.client.ask(
        stage.address(1), DescribeConfigsRequest(resources=[resource])
    )
    assert described.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("version", "name"), [(10, None), (10, "t"), (11, None), (11, "t")])
@played_in(staged, brokers=1)
async def test_ids_are_not_served_in_the_two_versions_that_only_carry_them(
    stage: Stage, version: int, name: str | None
) -> None:
    asked = MetadataRequestTopic(topic_id=UNKNOWN_ID, name=name)
    answer = await stage.client.ask(
        stage.address(1), MetadataRequest(topics=[asked]), version=version
    )
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, name or "")
    assert answer.brokers == []


@played_in(staged)
async def test_whoever_asks_what_it_may_do_is_told_that_it_may_do_everything(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await stage.client.ask(stage.address(1), request, version=10)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    described = await stage.client.ask(stage.address(1), cluster)
    assert described.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9, 12])
@played_in(staged)
async def test_all_topics_are_asked_for_by_null_and_at_version_0_by_nothing(
    stage: Stage, version: int
) -> None:
    await stage.client.create_topic(stage.address(1), "a")
    await stage.client.create_topic(stage.address(1), "b")
    request = MetadataRequest(topics=[] if version == 0 else None)
    answer = await stage.client.ask(stage.address(1), request, version=version)
    assert [topic.name for topic in answer.topics] == ["a", "b"]
    nothing = MetadataRequest(topics=[])
    if version > 0:
        answer = await stage.client.ask(stage.address(1), nothing, version=version)
        assert answer.topics == []


@played_in(staged)
async def test_only_kafkas_own_topics_are_internal(stage: Stage) -> None:
    """Clients hide internal topics, so `__mine` must not be one."""
    await stage.client.create_topic(stage.address(1), "__consumer_offsets")
    await stage.client.create_topic(stage.address(1), "__mine")
    answer = await stage.client.metadata(stage.address(1))
    assert [(topic.name, topic.is_internal) for topic in answer.topics] == [
        ("__consumer_offsets", True),
        ("__mine", False),
    ]


async def ask_for(stage: Stage, name: str, *, allowed: bool = True) -> int:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allowed
    )
    answer = await stage.client.ask(stage.address(2), request, version=9)
    return ErrorCode.of(answer.topics[0].error_code)


@played_in(staged, num_partitions="4")
async def test_asking_for_a_topic_makes_it_where_both_sides_allow_that(stage: Stage) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await ask_for(stage, "t", allowed=False) == unknown
    assert await ask_for(stage, "t") == ErrorCode.NONE
    assert len(stage.cluster.image.topics["t"].partitions) == 4
    assert await ask_for(stage, "not/a name") == ErrorCode.INVALID_TOPIC_EXCEPTION


@played_in(staged, brokers=1)
async def test_asking_for_more_topics_than_a_request_may_make_makes_none(stage: Stage) -> None:
    names = [f"t-{number}" for number in range(MAX_RECORDS // 2 + 1)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answer = await stage.client.ask(stage.address(1), request, version=9)
    codes = {ErrorCode.of(topic.error_code) for topic in answer.topics}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert stage.cluster.image.topics == {}


@played_in(staged, brokers=2)
async def test_a_topic_that_two_ask_for_at_once_is_asked_of_the_controller_once(
    stage: Stage,
) -> None:
    errors: list[int] = []

    async def ask() -> None:
        errors.append(await ask_for(stage, "t"))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert errors == [ErrorCode.NONE] * 3
    node = stage.cluster.controller
    assert node is not None
    asked = {
        dict(name.tags).get("request"): count
        for name, count in node.metrics.snapshot()
        if name.name == "RequestsPerSec"
    }
    assert asked["CreateTopics"] == 1


@played_in(staged, auto_create_topics_enable="false")
async def test_asking_for_a_topic_does_not_make_it_where_the_broker_forbids_it(
    stage: Stage,
) -> None:
    assert await ask_for(stage, "t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.cluster.image.topics == {}


@played_in(staged)
async def test_a_dead_broker_is_not_named_and_its_replicas_are_offline(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1, partitions=3)
    await stage.cluster.kill_broker(3)
    await stage.cluster.until(lambda: not stage.cluster.image.is_alive(3))
    answer = await stage.client.metadata(stage.address(1), "t")
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    (dead,) = [each for each in answer.topics[0].partitions if each.replica_nodes == [3]]
    assert dead.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (dead.leader_id, dead.offline_replicas) == (-1, [3])


@played_in(staged)
async def test_the_cluster_is_described_by_any_broker_and_controllers_elsewhere(
    stage: Stage,
) -> None:
    answer = await stage.client.ask(stage.address(2), DescribeClusterRequest())
    assert (answer.cluster_id, answer.controller_id) == ("understudy", 2)
    assert [broker.broker_id for broker in answer.brokers] == [1, 2, 3]
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    refused = await stage.client.ask(stage.address(2), request)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    request = DescribeClusterRequest(endpoint_type=0)
    refused = await stage.client.ask(stage.address(2), request)
    assert refused.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@played_in(staged)
async def test_a_fenced_broker_is_described_to_those_who_include_fenced_brokers(
    stage: Stage,
) -> None:
    """KIP-1073."""
    await stage.cluster.kill_broker(3)
    await stage.cluster.until(
        lambda: not stage.cluster.brokers[1].metadata.image.is_alive(3), what="3 is fenced"
    )
    answer = await stage.client.ask(stage.address(1), DescribeClusterRequest())
    assert [each.broker_id for each in answer.brokers] == [1, 2]
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = await stage.client.ask(stage.address(1), request)
    fenced = {each.broker_id: each.is_fenced for each in answer.brokers}
    assert fenced == {1: False, 2: False, 3: True}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        pytest.param([], ErrorCode.NONE, id="every quota"),
        pytest.param([("user", EXACT, "a")], ErrorCode.NONE, id="one user's"),
        pytest.param([("client-id", DEFAULT, None)], ErrorCode.NONE, id="the default"),
        pytest.param([("", EXACT, "a")], ErrorCode.INVALID_REQUEST, id="no type"),
        pytest.param([("topic", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION, id="another type"),
        pytest.param([("user", 3, "a")], ErrorCode.INVALID_REQUEST, id="another match type"),
        pytest.param([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, id="no name"),
        pytest.param([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST, id="a name too many"),
        pytest.param([("user", EXACT, "a")] * 2, ErrorCode.INVALID_REQUEST, id="a type twice"),
        pytest.param(
            [("user", EXACT, "a"), ("ip", DEFAULT, None)],
            ErrorCode.INVALID_REQUEST,
            id="an address and a user",
        ),
    ],
)
@played_in(staged, brokers=1)
async def test_no_client_quotas_are_found(
    stage: Stage, components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    """`kafka-configs.sh --describe --entity-type users` asks for them first (KIP-546)."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ]
    )
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.error_code == error
    assert answer.entries == (None if error else [])
    assert (answer.error_message is None) == (not error)


# Topics.


@played_in(staged)
async def test_a_topic_that_was_created_is_known_to_the_broker_that_was_asked(stage: Stage) -> None:
    for broker_id in (1, 2, 3):
        await stage.client.create_topic(stage.address(broker_id), f"t{broker_id}")
        answer = await stage.client.metadata(stage.address(broker_id), f"t{broker_id}")
        assert answer.topics[0].partitions[0].leader_id > 0


@played_in(staged)
async def test_a_topic_that_is_only_validated_is_not_made_and_one_twice_is_refused(
    stage: Stage,
) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], validate_only=True)
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert stage.cluster.image.topics == {}
    await stage.client.create_topic(stage.address(1), "t")
    answer = await stage.client.ask(stage.address(1), CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", [1, 5, 6])
@played_in(staged)
async def test_a_topic_is_deleted_everywhere_and_may_be_made_again(
    stage: Stage, version: int
) -> None:
    first = await stage.client.create_topic(stage.address(1), "t")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=5000
    )
    answer = await stage.client.ask(stage.address(1), request, version=version)
    assert [(each.name, each.error_code) for each in answer.responses] == [("t", 0)]
    assert (await stage.client.metadata(stage.address(1))).topics == []
    second = await stage.client.create_topic(stage.address(1), "t")
    assert first != second
    leader = await stage.leader("t")
    produced = await stage.client.produce(stage.address(leader), "t", b"anew")
    assert (produced.error_code, produced.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)],
)
@played_in(staged, delete_topic_enable="false")
async def test_nothing_is_deleted_where_the_configuration_forbids_it(
    stage: Stage, version: int, error: ErrorCode
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=1000
    )
    answer = await stage.client.ask(stage.address(1), request, version=version)
    assert [(each.name, each.error_code) for each in answer.responses] == [("t", error)]
    assert stage.cluster.image.topics.keys() == {"t"}


# Offsets.


async def offset_for(
    stage: Stage, address: str, timestamp: int, *, version: int = 9
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    response = await stage.client.ask(address, request, version=version)
    answer = response.topics[0].partitions[0]
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


@played_in(staged)
async def test_offsets_are_found_by_their_ends_and_by_time(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = stage.address(await stage.leader("t"))
    await stage.client.produce(leader, "t", b"a", b"b", b"c")  # at 1000, 1001, 1002
    assert (await offset_for(stage, leader, EARLIEST)).offset == 0
    assert (await offset_for(stage, leader, LATEST)).offset == 3
    found = await offset_for(stage, leader, 1001)
    assert (found.offset, found.timestamp, found.leader_epoch) == (1, 1001, 0)
    assert (await offset_for(stage, leader, 5000)).offset == -1
    assert (await offset_for(stage, leader, MAX_TIMESTAMP)).offset == 2
    too_old = await offset_for(stage, leader, MAX_TIMESTAMP, version=6)
    assert too_old.error_code == ErrorCode.UNSUPPORTED_VERSION


@played_in(staged, brokers=1)
async def test_version_0_is_told_where_segments_begin_and_no_more_than_the_high_watermark(
    stage: Stage,
) -> None:
    await stage.client.create_topic(
        stage.address(1), "t", replicas=1, segment_bytes="100", retention_ms="-1"
    )
    for value in (b"a", b"b", b"c"):  # one batch fills a segment
        await stage.client.produce(stage.address(1), "t", value)
        await stage.cluster.clock.sleep(10)

    async def ask(timestamp: int, count: int) -> list[int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        response = await stage.client.ask(stage.address(1), request, version=0)
        answer = response.topics[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        offsets: list[int] = answer.old_style_offsets
        return offsets

    assert await ask(LATEST, 10) == [3, 2, 1, 0]
    assert await ask(LATEST, 2) == [3, 2]
    assert await ask(EARLIEST, 10) == [0]
    now = stage.world.clock("b1").wall_ms()
    assert await ask(now - 15_000, 10) == [1, 0]
    assert await ask(0, 10) == []


def test_offsets_above_the_high_watermark_are_not_for_consumers() -> None:
    assert as_a_consumer_sees([30, 20, 10, 0], 30) == [30, 20, 10, 0]
    assert as_a_consumer_sees([30, 20, 10, 0], 15) == [15, 10, 0]


@played_in(staged)
async def test_a_partition_asked_about_twice_is_an_invalid_request(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    asked = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    answer = await stage.client.ask(stage.address(1), request)
    errors = [each.error_code for each in answer.topics[0].partitions]
    assert errors == [ErrorCode.INVALID_REQUEST] * 2


@played_in(staged)
async def test_only_the_leader_says_where_an_epoch_ends(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", b"a")
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    answers = {
        broker_id: (await stage.client.ask(stage.address(broker_id), request))
        .topics[0]
        .partitions[0]
        for broker_id in stage.cluster.broker_ids
    }
    end = answers.pop(leader)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, 0, 1)
    errors = {each.error_code for each in answers.values()}
    assert errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


# Fetches.


@played_in(staged)
async def test_a_fetch_at_the_wrong_broker_is_told_where_the_leader_is(stage: Stage) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    other = next(each for each in stage.cluster.broker_ids if each != leader)
    topics = [
        FetchTopic(
            topic_id=each,
            partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
        )
        for each in (topic_id, UNKNOWN_ID)
    ]
    # A follower's: only a leader answers it.
    follower = ReplicaState(replica_id=next(iter({1, 2, 3} - {leader, other})))
    request = FetchRequest(replica_state=follower, topics=topics)
    response = await stage.client.ask(stage.address(other), request, version=16)
    moved, unknown = (topic.partitions[0] for topic in response.responses)
    assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert moved.current_leader == LeaderIdAndEpoch(leader_id=leader, leader_epoch=0)
    (endpoint,) = response.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == stage.address(leader)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@played_in(staged, brokers=1)
async def test_a_fetch_session_is_told_of_when_it_begins_and_when_it_ends(
    stage: Stage, world: World
) -> None:
    topic_id = await stage.client.create_topic(stage.address(1), "t", replicas=1)
    partition = FetchPartition(partition=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    opening = FetchRequest(session_epoch=0, topics=topics)
    opened = await stage.client.ask(stage.address(1), opening)
    idle = FetchRequest(session_id=opened.session_id, session_epoch=1)
    answer = await stage.client.ask(stage.address(1), idle)
    assert (answer.session_id, answer.responses) == (opened.session_id, [])
    closing = FetchRequest(session_id=opened.session_id, session_epoch=-1)
    await stage.client.ask(stage.address(1), closing)
    events = [
        entry.event
        for entry in world.trace.entries
        if isinstance(entry.event, FetchSessionOpened | FetchSessionClosed)
    ]
    assert events == [
        FetchSessionOpened(session_id=opened.session_id, partitions=1, privileged=False),
        FetchSessionClosed(session_id=opened.session_id),
    ]


# Configurations, coordinators, producer ids.


@played_in(staged)
async def test_a_topic_and_a_broker_are_described_with_every_key_and_its_source(
    stage: Stage,
) -> None:
    await stage.client.create_topic(stage.address(1), "t", segment_bytes="4096")
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in (
            (ConfigResourceType.TOPIC, "t", ["segment.bytes", "min.insync.replicas"]),
            (ConfigResourceType.BROKER, "1", ["broker.session.timeout.ms"]),
            (ConfigResourceType.BROKER, "2", None),
            (ConfigResourceType.TOPIC, "nothing", None),
            (ConfigResourceType.BROKER_LOGGER, "1", None),
        )
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
    answer = await stage.client.ask(stage.address(1), request)
    topic, broker, *refused = answer.results
    assert {each.name: (each.value, each.config_source) for each in topic.configs} == {
        "segment.bytes": ("4096", ConfigSource.TOPIC_CONFIG),
        "min.insync.replicas": ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    }
    assert [(each.name, each.value, each.config_source) for each in broker.configs] == [
        ("broker.session.timeout.ms", "1000", ConfigSource.STATIC_BROKER_CONFIG)
    ]
    assert [each.error_code for each in refused] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]


@played_in(staged, brokers=1)
async def test_naming_no_key_at_all_asks_for_every_one(stage: Stage) -> None:
    every_key = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="1", configuration_keys=None
    )
    described = []
    for resource in (every_key, attrs.evolve(every_key, configuration_keys=[])):
        request = DescribeConfigsRequest(resources=[resource])
        described.append(await stage.client.ask(stage.address(1), request))
    (every,), (none,) = (answer.results for answer in described)
    assert every.configs
    assert none.configs == every.configs


@pytest.mark.parametrize("version", [1, 4, 6])
@played_in(staged, brokers=1)
async def test_a_key_that_is_neither_a_groups_nor_a_transactions_is_refused(
    stage: Stage, version: int
) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=9)
    answer = await stage.client.ask(stage.address(1), request, version=version)
    found = answer if version < 4 else answer.coordinators[0]
    assert found.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(InitProducerIdRequest(transactional_id=""), id="an empty transactional id"),
        pytest.param(InitProducerIdRequest(producer_id=5), id="an id without its epoch"),
        pytest.param(InitProducerIdRequest(producer_epoch=5), id="an epoch without its id"),
    ],
)
@played_in(staged, brokers=1)
async def test_a_producer_that_says_half_of_who_it_is_gets_no_id(
    stage: Stage, request_: InitProducerIdRequest
) -> None:
    answer = await stage.client.ask(stage.address(1), request_)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@played_in(staged, brokers=1)
async def test_a_transactional_id_has_a_coordinator(stage: Stage, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=TRANSACTION)
    answer = await stage.client.ask(stage.address(1), request, version=version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)


@played_in(staged)
async def test_no_two_producers_have_an_id_in_common_whichever_broker_gave_it(stage: Stage) -> None:
    ids = []
    for broker_id in (1, 2, 3, 1, 2, 3):
        request = InitProducerIdRequest()
        answer = await stage.client.ask(stage.address(broker_id), request)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        ids.append(answer.producer_id)
    assert len(set(ids)) == len(ids)
    transactional = InitProducerIdRequest(transactional_id="tx")
    answer = await stage.client.ask(stage.address(1), transactional)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@played_in(staged)
async def test_a_topic_may_be_asked_for_while_the_controller_is_away(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "before")
    await stage.cluster.kill_controller()
    async with trio.open_nursery() as nursery:
        # Its connection to the controller is from before the controller died.
        nursery.start_soon(stage.client.create_topic, stage.address(1), "meanwhile")
        await stage.cluster.clock.sleep(3)
        assert "meanwhile" not in stage.cluster.image.topics
        await stage.cluster.start_controller()
    assert "meanwhile" in stage.cluster.image.topics
