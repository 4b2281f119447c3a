"""The configuration of single consumer groups: set, described, and in force."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from replication.config import ConfigOperation, ConfigSource
from replication.errors import ErrorCode
from replication.wire.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from scenarios.world.world import World
from tests.replication.broker.stage import Stage, played_in
from tests.replication.groups.test_consumer_groups import Consumer, reading, settle

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
GROUP = ConfigResourceType.GROUP


def configured(world: World) -> AbstractAsyncContextManager[Stage]:
    return reading(
        world,
        group_consumer_min_session_timeout_ms="2000",
        group_consumer_max_session_timeout_ms="20000",
        group_consumer_min_heartbeat_interval_ms="100",
    )


async def altered(
    stage: Stage,
    *changes: tuple[str, int, str | None],
    group: str = "g",
    kind: ConfigResourceType = GROUP,
) -> ErrorCode:
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=group, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await stage.client.ask(stage.address(1), request)
    return ErrorCode.of(answer.responses[0].error_code)


async def described(stage: Stage, group: str = "g") -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    result = (await stage.client.ask(stage.address(1), request)).results[0]
    assert isinstance(result, DescribeConfigsResult)
    return result


async def values(stage: Stage) -> dict[str, tuple[str | None, int]]:
    return {
        each.name: (each.value, each.config_source) for each in (await described(stage)).configs
    }


@pytest.mark.conformance("CG-119")
@played_in(configured)
async def test_a_group_has_its_own_session_and_heartbeats(stage: Stage) -> None:
    assert await values(stage) == {
        SESSION: ("5000", ConfigSource.STATIC_BROKER_CONFIG),
        HEARTBEAT: ("5000", ConfigSource.DEFAULT_CONFIG),
        ASSIGNMENT: ("0", ConfigSource.STATIC_BROKER_CONFIG),
    }
    changes = {SESSION: "10000", HEARTBEAT: "700", ASSIGNMENT: "2000"}
    assert await altered(stage, *((name, SET, value) for name, value in changes.items())) is (
        ErrorCode.NONE
    )
    assert await values(stage) == {
        name: (value, ConfigSource.GROUP_CONFIG) for name, value in changes.items()
    }
    synonyms = (await described(stage)).configs[0].synonyms
    assert [each.name for each in synonyms] == [
        SESSION,
        "group.consumer.session.timeout.ms",
        "group.consumer.session.timeout.ms",
    ]
    a, other = Consumer(stage, member_id="a"), Consumer(stage, group="h", member_id="o")
    await a.joins("t")
    assert (await a.heartbeat(a.generation)).heartbeat_interval_ms == 700
    await other.joins("t")
    assert (await other.heartbeat(other.generation)).heartbeat_interval_ms == 5000
    await stage.client.seams.clock.sleep(8)
    assert await a.beats() is ErrorCode.NONE
    assert await other.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        await altered(stage, (SESSION, DELETE, None), (HEARTBEAT, DELETE, None)) is ErrorCode.NONE
    )
    assert (await a.heartbeat(a.generation)).heartbeat_interval_ms == 5000
    await stage.client.seams.clock.sleep(8)
    assert await a.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@played_in(configured)
async def test_the_interval_of_assignments_can_be_set_while_brokers_run(stage: Stage) -> None:
    a, b = Consumer(stage, member_id="a"), Consumer(stage, member_id="b")
    await a.joins("t")
    everywhere = partial(altered, stage, group="", kind=ConfigResourceType.BROKER)
    assert (
        await everywhere(("group.consumer.assignment.interval.ms", SET, "3000")) is ErrorCode.NONE
    )
    await stage.client.seams.clock.sleep(1)
    assert (await values(stage))[ASSIGNMENT] == (
        "3000",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    await b.joins("t")
    shown = await a.shown()
    assert shown.assignment_epoch < shown.group_epoch
    await stage.client.seams.clock.sleep(3)
    await settle(a, b)
    assert len(a.has) == len(b.has)


@played_in(configured)
async def test_what_a_group_cannot_have_is_refused(stage: Stage) -> None:
    refused = partial(altered, stage)
    for name, value in (
        (SESSION, "1999"),
        (SESSION, "20001"),
        (SESSION, "soon"),
        (HEARTBEAT, "99"),
        (HEARTBEAT, "15001"),
        (ASSIGNMENT, "-1"),
        (ASSIGNMENT, "15001"),
        (HEARTBEAT, "5000"),  # the session timeout is 5000, too
        ("share.session.timeout.ms", "45000"),
        ("session.timeout.ms", "45000"),
    ):
        assert await refused((name, SET, value)) is ErrorCode.INVALID_CONFIG
    assert await refused((SESSION, APPEND, "9000")) is ErrorCode.INVALID_CONFIG
    assert await refused((SESSION, SET, None)) is ErrorCode.INVALID_REQUEST
    assert await refused((SESSION, SET, "9000"), group="") is ErrorCode.INVALID_REQUEST
    long = "g" * 40_000
    assert await refused((SESSION, SET, "9000"), group=long) is ErrorCode.INVALID_GROUP_ID
    assert (await described(stage, "")).error_code == ErrorCode.INVALID_REQUEST
    both: Any = await refused((SESSION, SET, "9000"), (SESSION, SET, "9001"))
    assert both is ErrorCode.INVALID_REQUEST
    assert {source for _, source in (await values(stage)).values()} == {
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    }


@played_in(configured)
async def test_alter_configs_sets_a_group_as_a_whole(stage: Stage) -> None:
    for configs in ({SESSION: "9000", HEARTBEAT: "300"}, {HEARTBEAT: "400"}):
        named = [AlterableConfig(name=name, value=value) for name, value in configs.items()]
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=named)
        request = AlterConfigsRequest(resources=[resource])
        answer = await stage.client.ask(stage.address(1), request)
        assert answer.responses[0].error_code == ErrorCode.NONE
    assert (await values(stage))[SESSION] == ("5000", ConfigSource.STATIC_BROKER_CONFIG)
    assert (await values(stage))[HEARTBEAT] == ("400", ConfigSource.GROUP_CONFIG)
