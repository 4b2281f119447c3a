"""ACLs over the wire, in a cluster whose brokers log in."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from replication.broker.handlers import broker_handlers
from replication.client import Admin
from replication.client.admin import (
    Acl,
    AclFilter,
    NewTopic,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from replication.client.offsets import OffsetAndMetadata
from replication.cluster.cluster import Cluster, open_cluster
from replication.config.security import Introduction, Login
from replication.errors import ErrorCode, KafkaError
from replication.net import production_seams
from replication.net.secure import introduced
from replication.security.rules.acls import CLUSTER_NAME, SUPPORTED, as_bits
from replication.server.guards.access import RULES
from replication.server.guards.special import SPECIAL
from replication.wire.alter_partition import AlterPartitionRequest
from replication.wire.apis import API, ApiKey
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest
from replication.wire.describe_cluster import DescribeClusterRequest
from replication.wire.describe_groups import DescribeGroupsRequest
from replication.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from replication.wire.init_producer_id import InitProducerIdRequest
from replication.wire.join_group import JoinGroupRequest
from replication.wire.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from replication.wire.metadata import (
    UNKNOWN_OPERATIONS as UNKNOWN,
    MetadataRequest,
    MetadataRequestTopic,
)
from replication.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replication.wire.refusals import refused
from storage.types import TopicPartition
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK
from tests.replication.server.attacked import WITH_AUTHORIZER, with_logins

PROPERTIES = QUICK | with_logins(alice="a") | WITH_AUTHORIZER
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@asynccontextmanager
async def governed(
    brokers: int = 1, properties: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Cluster, Admin]]:
    """A cluster with two topics, and an admin client that may do everything."""
    async with (
        open_cluster(
            brokers=brokers, listeners=["INSIDE"], properties=PROPERTIES | dict(properties or {})
        ) as cluster,
        Admin(**login(cluster, "admin", "top")) as admin,
    ):
        topics = [NewTopic(name=name, replication_factor=brokers) for name in ("open", "shut")]
        await admin.create_topics(topics)
        await cluster.until(lambda: cluster.leader("shut", 0) is not None)
        yield cluster, admin


def login(cluster: Cluster, name: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def asking(name: str, password: str) -> Client:
    """Return a client that speaks the protocol itself."""
    entry = Introduction(protocol="SASL_PLAINTEXT", login=Login("PLAIN", name, password))
    return Client(introduced(production_seams(), entry))


def allow(
    operation: Operation, name: str, *, kind: ResourceType = TOPIC, prefixed: bool = False
) -> Acl:
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal="User:alice",
        operation=operation,
        permission=Permission.ALLOW,
    )


async def make(cluster: Cluster, admin: Admin, *acls: Acl) -> None:
    await admin.create_acls(acls)
    await known(cluster, *acls)


async def known(cluster: Cluster, *acls: Acl) -> None:
    await cluster.until(
        lambda: all(
            set(acls) <= set(broker.metadata.image.security.acls.values())
            for broker in cluster.brokers.values()
        )
    )


def fetch_of(*topic_ids: bytes, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=each, partitions=[asked]) for each in topic_ids],
    )


def test_every_api_of_a_broker_says_what_it_needs() -> None:
    known_apis = {*RULES, *SPECIAL, ApiKey.FETCH}
    served = set(broker_handlers(None))  # type: ignore[arg-type] # its table is all we look at
    assert served <= known_apis
    assert not RULES.keys() & SPECIAL.keys()


@pytest.mark.parametrize("key", [key for key in RULES if key in API])
def test_any_request_can_be_refused(key: ApiKey) -> None:
    answer = refused(API[key].response, API[key].request(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert isinstance(answer, API[key].response)


async def test_a_client_may_not_act_as_a_broker() -> None:
    async with governed() as (cluster, _):
        alice = asking("alice", "a")
        address = cluster.bootstrap_list[0]
        topic_id = cluster.image.topic_id("open")
        assert topic_id is not None
        pretending = fetch_of(topic_id, epoch=-1)
        pretending.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
        answer = await alice.ask(address, pretending, version=17)
        (topic,) = answer.responses
        assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not topic.partitions[0].records
        epochs = await alice.ask(address, OffsetForLeaderEpochRequest(replica_id=1))
        assert not epochs.topics
        assert cluster.controller is not None
        controller = f"127.0.0.1:{cluster.controller.port}"
        before = cluster.image
        for request in [
            BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, want_shut_down=True),
            AlterPartitionRequest(broker_id=1, broker_epoch=1),
        ]:
            refusal = await alice.ask(controller, request)
            assert refusal.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        metadata_fetch = await alice.ask(controller, fetch_of(b"understudy-meta\x01", epoch=-1))
        assert metadata_fetch.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not any(each.records for t in metadata_fetch.responses for each in t.partitions)
        admin = await asking("admin", "top").ask(controller, AlterPartitionRequest(broker_id=9))
        assert admin.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster.image.brokers == before.brokers


async def test_what_may_be_done_is_done_and_the_rest_is_refused_each_by_itself() -> None:
    async with governed() as (cluster, admin):
        await make(cluster, admin, allow(Operation.READ, "op", prefixed=True))
        alice, address = asking("alice", "a"), cluster.bootstrap_list[0]
        ids = {name: cluster.image.topics[name].topic_id for name in ("open", "shut")}
        fetched = await alice.ask(address, fetch_of(*ids.values()), version=17)
        errors = {each.topic_id: each.partitions[0].error_code for each in fetched.responses}
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert errors == {ids["open"]: ErrorCode.NONE, ids["shut"]: denied}
        assert fetched.session_id == 0
        asked = [
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
            for name in ids
        ]
        listed = await alice.ask(address, ListOffsetsRequest(topics=asked))
        assert {t.name: t.partitions[0].error_code for t in listed.topics} == {
            "open": ErrorCode.NONE,
            "shut": denied,
        }
        every = await alice.ask(address, MetadataRequest(topics=None))
        assert [each.name for each in every.topics] == ["open"]
        named = [MetadataRequestTopic(name=name) for name in ("open", "shut", "new")]
        some = await alice.ask(address, MetadataRequest(topics=named))
        assert {each.name: each.error_code for each in some.topics} == {
            "open": ErrorCode.NONE,
            "shut": denied,
            "new": denied,
        }
        data = [PartitionProduceData(index=0, records=b"x")]
        written = await alice.ask(
            address,
            ProduceRequest(
                acks=-1, topic_data=[TopicProduceData(name="open", partition_data=data)]
            ),
        )
        assert written.responses[0].partition_responses[0].error_code == denied
        for request, error in [
            (JoinGroupRequest(group_id="g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
            (InitProducerIdRequest(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            (
                InitProducerIdRequest(transactional_id="t"),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ),
        ]:
            assert (await alice.ask(address, request)).error_code == error
        groups = await alice.ask(address, DescribeGroupsRequest(groups=["g", "h"]))
        assert {each.group_id: each.error_code for each in groups.groups} == dict.fromkeys(
            ("g", "h"), ErrorCode.GROUP_AUTHORIZATION_FAILED
        )


async def test_a_fetch_session_ends_with_the_right_to_read() -> None:
    async with governed() as (cluster, admin):
        reading = allow(Operation.READ, "open")
        await make(cluster, admin, reading)
        topic_id = cluster.image.topics["open"].topic_id
        async with asking("alice", "a").connected(cluster.bootstrap_list[0]) as alice:
            opened = await alice.call(fetch_of(topic_id), version=17, timeout_ms=5000)
            assert opened.session_id
            again = fetch_of(session_id=opened.session_id, epoch=1)
            answer = await alice.call(again, version=17, timeout_ms=5000)
            assert answer.error_code == ErrorCode.NONE
            assert await admin.delete_acls([AclFilter(principal="User:alice")]) == [reading]
            await cluster.until(lambda: not cluster.image.security.acls)
            later = fetch_of(session_id=opened.session_id, epoch=2)
            answer = await alice.call(later, version=17, timeout_ms=5000)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            answer = await alice.call(fetch_of(topic_id), version=17, timeout_ms=5000)
            refusal = answer.responses[0].partitions[0]
            assert refusal.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_acls_are_created_described_and_deleted() -> None:
    async with governed() as (cluster, admin):
        acls = [
            allow(Operation.READ, "open"),
            allow(Operation.WRITE, "o", prefixed=True),
            allow(Operation.DESCRIBE, "g", kind=GROUP),
        ]
        await make(cluster, admin, *acls, acls[0])
        assert set(await admin.describe_acls()) == set(acls)
        match = AclFilter(resource_type=TOPIC, resource_name="open", pattern_type=PatternType.MATCH)
        assert set(await admin.describe_acls(match)) == set(acls[:2])
        with pytest.raises(KafkaError, match="expected Type:name"):
            await admin.create_acls([attrs.evolve(acls[0], principal="alice")])
        async with Admin(**login(cluster, "alice", "a")) as alice:
            with pytest.raises(KafkaError) as refusal:
                await alice.describe_acls()
            assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await alice.create_topics([NewTopic(name="mine")])
            await make(cluster, admin, allow(Operation.CREATE, CLUSTER_NAME, kind=CLUSTER))
            await alice.create_topics([NewTopic(name="mine")])
        await cluster.kill_controller()
        await cluster.start_controller()
        assert len(await admin.delete_acls([AclFilter(operation=Operation.READ)])) == 1


async def test_without_an_authorizer_acls_are_refused() -> None:
    async with open_cluster(brokers=1, properties=QUICK) as cluster, cluster.admin() as admin:
        for call in (admin.describe_acls(), admin.create_acls([allow(Operation.READ, "t")])):
            with pytest.raises(KafkaError) as refusal:
                await call
            assert refusal.value.code is ErrorCode.SECURITY_DISABLED


async def test_what_is_described_says_what_may_be_done_with_it() -> None:
    """KIP-430: the client's operations, with those that they imply."""
    groups = DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True)
    topics = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("open", "shut")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    about_cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    async with governed() as (cluster, admin):
        (address,) = cluster.bootstrap_list
        await make(
            cluster,
            admin,
            allow(Operation.READ, "open"),
            allow(Operation.ALTER_CONFIGS, "open"),
            allow(Operation.ALL, "g", kind=GROUP),
        )
        alice, boss = asking("alice", "a"), asking("admin", "top")
        seen = await alice.ask(address, topics, version=10)
        # READ implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
        assert bits_by_topic(seen) == {"open": 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11, "shut": UNKNOWN}
        assert seen.cluster_authorized_operations == 0
        await admin.alter_group_offsets("g", {TopicPartition("open", 0): OffsetAndMetadata(0)})
        described = await alice.ask(address, groups, version=5)
        assert [(each.error_code, each.authorized_operations) for each in described.groups] == [
            (ErrorCode.NONE, as_bits(SUPPORTED[GROUP])),
            (ErrorCode.GROUP_AUTHORIZATION_FAILED, UNKNOWN),
        ]
        assert (
            await alice.ask(address, about_cluster, version=0)
        ).cluster_authorized_operations == 0
        assert bits_by_topic(await boss.ask(address, topics, version=10)) == dict.fromkeys(
            ("open", "shut"), as_bits(SUPPORTED[TOPIC])
        )
        await make(cluster, admin, allow(Operation.ALTER, CLUSTER_NAME, kind=CLUSTER))
        answer = await alice.ask(address, about_cluster, version=0)
        assert answer.cluster_authorized_operations == 1 << 7 | 1 << 8
        unasked = attrs.evolve(topics, include_topic_authorized_operations=False)
        assert bits_by_topic(await boss.ask(address, unasked, version=12)) == dict.fromkeys(
            ("open", "shut"), UNKNOWN
        )


def bits_by_topic(answer: Any) -> dict[str, int]:
    return {each.name: each.topic_authorized_operations for each in answer.topics}


async def test_all_topics_page_by_page_are_those_that_may_be_seen() -> None:
    async with governed() as (cluster, admin):
        (address,) = cluster.bootstrap_list
        alice = asking("alice", "a")
        everything = DescribeTopicPartitionsRequest(response_partition_limit=1)
        answer = await alice.ask(address, everything, version=0)
        assert (answer.topics, answer.next_cursor) == ([], None)
        await make(cluster, admin, allow(Operation.WRITE, "open"))
        answer = await alice.ask(address, everything, version=0)
        assert bits_by_topic(answer) == {"open": 1 << 4 | 1 << 8}
        assert answer.next_cursor is None
        named = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="shut")])
        answer = await alice.ask(address, named, version=0)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await make(cluster, admin, allow(Operation.DESCRIBE, "shut"))
        lost = attrs.evolve(everything, cursor=Cursor(topic_name="pa", partition_index=0))
        answer = await alice.ask(address, lost, version=0)
        assert bits_by_topic(answer) == {"shut": 1 << 8}
