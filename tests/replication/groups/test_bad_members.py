"""Bad requests to a group of consumers, over a real socket: each has Kafka's error, and the group's
members and offsets are as before.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from replication.wire.describe_groups import DescribeGroupsRequest
from replication.wire.find_coordinator import FindCoordinatorRequest
from replication.wire.heartbeat import HeartbeatRequest
from replication.wire.join_group import JoinGroupProtocol, JoinGroupRequest
from replication.wire.leave_group import LeaveGroupRequest, LeavingMember
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.sync_group import SyncGroupRequest
from tests.replication.broker.clients import Client
from tests.replication.broker.members import RETRIED, SUBSCRIPTION
from tests.replication.server.attacked import ADMIN, TOPIC, attacked

GROUPS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
MANY_NAMES = [f"t{number}" for number in range(100_000)]


@attrs.define
class Asked:
    """A group `g` with the member `m` at epoch 1, which reads `TOPIC`; and a client."""

    client: Client
    address: str

    async def ask(self, request: Any, version: int | None = None) -> Any:
        return await self.client.ask(self.address, request, version=version)

    async def beat(self, epoch: int = 1, **fields: Any) -> Any:
        asked: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": epoch} | fields
        return await self.ask(ConsumerGroupHeartbeatRequest(**asked), 1)

    async def join(self, member_id: str, **fields: Any) -> Any:
        asked = {
            "member_id": member_id,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        } | fields
        return await self.beat(0, **asked)

    async def commit(
        self, offset: int, *, member_id: str = "m", epoch: int = 1, version: int = 9
    ) -> ErrorCode:
        partition = OffsetCommitPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitTopic(name=TOPIC, partitions=[partition])],
        )
        answer = await self.ask(request, version)
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    async def state(self) -> tuple[Any, int]:
        """Return the group, and the offset that it has committed."""
        described = await self.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        topic = OffsetFetchTopic(name=TOPIC, partition_indexes=[0])
        asked = OffsetFetchGroup(group_id="g", topics=[topic])
        fetched = await self.ask(OffsetFetchRequest(groups=[asked]), 9)
        return described.groups[0], fetched.groups[0].topics[0].partitions[0].committed_offset


@asynccontextmanager
async def a_group() -> AsyncIterator[Asked]:
    async with attacked(properties=GROUPS) as stage:
        asked = Asked(Client(stage.seams(ADMIN)), stage.address)
        await asked.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
        while (answer := await asked.join("m")).error_code in RETRIED:
            await stage.cluster.until(lambda: True, what="a moment")
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1)
        assert await asked.commit(5) is ErrorCode.NONE
        yield asked


Bad = tuple[str, ErrorCode, Callable[[Asked], Any]]

BAD: list[Bad] = [
    ("an unknown member", ErrorCode.UNKNOWN_MEMBER_ID, lambda a: a.beat(member_id="x")),
    ("an unknown group", ErrorCode.GROUP_ID_NOT_FOUND, lambda a: a.beat(group_id="h")),
    ("a group without a name", ErrorCode.INVALID_REQUEST, lambda a: a.join("x", group_id="")),
    ("a member without an id", ErrorCode.INVALID_REQUEST, lambda a: a.join("")),
    ("an epoch of the future", ErrorCode.FENCED_MEMBER_EPOCH, lambda a: a.beat(7)),
    ("an epoch that is none", ErrorCode.INVALID_REQUEST, lambda a: a.beat(-3)),
    (
        "a leave of an unknown member",
        ErrorCode.UNKNOWN_MEMBER_ID,
        lambda a: a.beat(-1, member_id="x"),
    ),
    ("an unknown instance", ErrorCode.UNKNOWN_MEMBER_ID, lambda a: a.beat(instance_id="i")),
    (
        "an invalid regular expression",
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        lambda a: a.join("x", subscribed_topic_names=None, subscribed_topic_regex="(t"),
    ),
    (
        "an expensive regular expression that is invalid",
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        lambda a: a.join("x", subscribed_topic_names=None, subscribed_topic_regex="(" * 30_000),
    ),
    (
        "an unknown assignor",
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        lambda a: a.join("x", server_assignor="sticky"),
    ),
    (
        "a join with partitions",
        ErrorCode.INVALID_REQUEST,
        lambda a: a.join("x", topic_partitions=[HeartbeatTopicPartitions(partitions=[0])]),
    ),
    (
        "100,000 names in a request that is too late",
        ErrorCode.FENCED_MEMBER_EPOCH,
        lambda a: a.beat(7, subscribed_topic_names=MANY_NAMES),
    ),
    (
        "100,000 names that do not fit into one batch",
        ErrorCode.UNKNOWN_SERVER_ERROR,
        lambda a: a.join("x", subscribed_topic_names=[f"topic-{each}" for each in MANY_NAMES]),
    ),
    (
        "a name that does not fit",
        ErrorCode.INVALID_REQUEST,
        lambda a: a.join("x", subscribed_topic_names=["t" * 40_000]),
    ),
    (
        "a classic member with another protocol",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        lambda a: a.ask(classic_join(protocol_type="connect")),
    ),
    (
        "a classic member that says nothing",
        ErrorCode.UNKNOWN_SERVER_ERROR,
        lambda a: a.ask(classic_join(subscription=b"\0"), 3),
    ),
    (
        "a classic heartbeat of a consumer",
        ErrorCode.UNKNOWN_MEMBER_ID,
        lambda a: a.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1)),
    ),
    (
        "a sync of a consumer",
        ErrorCode.UNKNOWN_MEMBER_ID,
        lambda a: a.ask(
            SyncGroupRequest(
                group_id="g",
                member_id="m",
                generation_id=1,
                protocol_type="consumer",
                protocol_name="range",
            )
        ),
    ),
    (
        "a classic description",
        ErrorCode.GROUP_ID_NOT_FOUND,
        lambda a: first(a.ask(DescribeGroupsRequest(groups=["g"]), 6), "groups"),
    ),
    (
        "a leave of somebody else",
        ErrorCode.UNKNOWN_MEMBER_ID,
        lambda a: first(
            a.ask(LeaveGroupRequest(group_id="g", members=[LeavingMember(member_id="x")])),
            "members",
        ),
    ),
]


def classic_join(
    *, protocol_type: str = "consumer", subscription: bytes = SUBSCRIPTION
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupProtocol(name="range", metadata=subscription)],
    )


async def first(answer: Any, name: str) -> Any:
    return getattr(await answer, name)[0]


async def test_bad_requests_have_their_error_and_change_nothing() -> None:
    async with a_group() as asked:
        before = await asked.state()
        found = {what: ErrorCode.of((await send(asked)).error_code) for what, _, send in BAD}
        assert found == {what: error for what, error, _ in BAD}
        assert await asked.commit(9, epoch=2) is ErrorCode.STALE_MEMBER_EPOCH
        assert await asked.commit(9, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await asked.commit(9, member_id="", epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await asked.commit(9, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert await asked.state() == before
        assert (await asked.beat()).error_code == ErrorCode.NONE


async def test_a_member_that_was_fenced_loses_nothing_of_the_others() -> None:
    async with a_group() as asked:
        assert (await asked.beat(-1)).error_code == ErrorCode.NONE
        assert (await asked.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await asked.commit(9) is ErrorCode.UNKNOWN_MEMBER_ID
        group, offset = await asked.state()
        assert (group.group_state, offset) == ("Empty", 5)


async def test_a_subscription_to_100_000_names_is_served() -> None:
    async with a_group() as asked:
        answer = await asked.join("n", subscribed_topic_names=[TOPIC, *MANY_NAMES[1:]])
        assert answer.error_code == ErrorCode.NONE
        group, offset = await asked.state()
        assert (len(group.members), offset) == (2, 5)
        names = max(len(each.subscribed_topic_names) for each in group.members)
        assert names == len(MANY_NAMES)
