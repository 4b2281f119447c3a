"""What comes in place of an answer costs a client some time, or one documented exception.

Each case is a thing that a program asks for and the API that is spoilt meanwhile, with a real
broker behind it: once in each way there is, and for ever in some. It never takes longer than
its deadline, raises nothing but a KafkaError, and what it says is so.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import pytest

from replication.client.admin import Admin, NewTopic, OffsetAndMetadata
from replication.client.consumer import Consumer
from replication.client.errors import KafkaTimeoutError
from replication.client.producer import Producer
from replication.client.producer.transactions import worst
from replication.errors import ErrorCode, KafkaError
from replication.wire.apis import ApiKey
from replication.wire.list_offsets import LATEST
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.deep import one_in
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, Scene, now, played, scene
from tests.replication.client.tampering import (
    OF_FRAMES,
    UNKNOWN_CODE,
    Spoil,
    Tampering,
    announces_gigabytes,
    cut_short,
    garbage,
    says,
    says_nothing_of_it,
    silence,
    tampered,
)

NOT_COORDINATOR, UNKNOWN_SERVER_ERROR = 16, -1
T1 = TopicPartition("t", 1)
ONCE = (*OF_FRAMES, says(NOT_COORDINATOR), says_nothing_of_it)
FINAL = (says(UNKNOWN_CODE), says(UNKNOWN_SERVER_ERROR))
FOR_EVER = (garbage, announces_gigabytes, silence, says(NOT_COORDINATOR), *FINAL)
LIMITS: Mapping[str, Any] = {"request_timeout_ms": 1_000}
OF_PRODUCERS: Mapping[str, Any] = {
    **LIMITS,
    "delivery_timeout_ms": 5_000,
    "max_block_ms": 4_000,
    "linger_ms": 0,
}
LONGEST = 25.0
"""Virtual seconds: the deadlines that a case has, one after the other, and a farewell."""


@attrs.define(eq=False)
class Line:
    """The broker, and a line to it on which one API's answers are spoilt."""

    stage: Scene
    tampering: Tampering
    name: str

    @property
    def arguments(self) -> dict[str, Any]:
        seams = self.stage.world.node(f"machine of {self.name}")
        return {
            "bootstrap_servers": self.stage.bootstrap_servers,
            "seams": tampered(seams, self.tampering),
        }


Work: TypeAlias = Callable[[Line], Awaitable[None]]


async def produce(line: Line) -> None:
    values = [f"{line.name} {number}" for number in range(3)]
    producer: Producer[bytes, bytes] = Producer(**line.arguments, **OF_PRODUCERS)
    async with producer:
        sent = [await producer.send_soon("t", value.encode(), partition=0) for value in values]
        offsets = [(await each.wait()).offset for each in sent]
    read = {record.value: record.offset for record in await line.stage.client.read(T0)}
    assert [read[value] for value in values] == offsets == sorted(offsets)


async def transact(line: Line) -> None:
    producer: Producer[bytes, bytes] = Producer(
        **line.arguments, **OF_PRODUCERS, transactional_id=line.name
    )
    async with producer, producer.transaction():
        await producer.send("t", line.name.encode(), partition=0)
        await producer.send_offsets_to_transaction({T0: 7, T1: 8}, line.name)
    assert line.name in await committed_values(line.stage)
    async with Admin(line.stage.bootstrap_servers, seams=line.stage.world.node("admin")) as admin:
        offsets = await admin.list_group_offsets(line.name, [T0, T1], require_stable=True)
        assert {tp: each.offset for tp, each in offsets.items()} == {T0: 7, T1: 8}


async def transact_as_before(line: Line) -> None:
    """Run `transact` in a cluster with version 1 of transactions (KIP-890)."""
    await transact(line)


async def committed_values(stage: Scene) -> list[str]:
    async with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([T0])
        return [(record.value or b"").decode() for record in await consumer.poll(2_000)]


async def consume(line: Line) -> None:
    """All that is there by then, as a member of a group, and commits it."""
    wanted = [(each.partition, each.offset) for each in await there(line.stage)]
    read: list[tuple[int, int]] = []
    consumer = Consumer(
        "t",
        **line.arguments,
        **LIMITS,
        group_id=line.name,
        auto_offset_reset="earliest",
        default_api_timeout_ms=4_000,
        heartbeat_interval_ms=200,
        max_poll_interval_ms=3_000,
    )
    async with consumer:
        with consumer._seams.clock.move_on_after(12):
            while len(read) < len(wanted):
                read += [(each.partition, each.offset) for each in await consumer.poll(500)]
        assert sorted(read) == read or {tp for tp, _ in read} == {0, 1}
        for partition in (0, 1):
            of_it = [at for at in read if at[0] == partition]
            assert of_it == [at for at in wanted if at[0] == partition][: len(of_it)]
        await consumer._seams.clock.sleep(0.5)  # time for heartbeats
        await consumer.commit()
        committed = await consumer.committed(T0)
        position = await consumer.position(T0)
        assert committed is not None
        assert committed.offset == position


async def there(stage: Scene) -> list[Any]:
    async with stage.consumer() as consumer:
        consumer.assign([T0, T1])
        return list(await consumer.poll(1_000))


async def administer(line: Line) -> None:
    """Everything that one asks of an admin client now and then."""
    topic = line.name.replace(" ", "_")
    at = TopicPartition(topic, 0)
    async with Admin(**line.arguments, **LIMITS, default_api_timeout_ms=2_500) as admin:
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: admin.create_topics([NewTopic(name=topic, replicas=((1,),))]),
            lambda: admin.create_partitions({topic: 2}),
            lambda: admin.alter_topic_configs({topic: {"retention.ms": "60000"}}),
            lambda: admin.describe_topic_configs([topic]),
            lambda: admin.describe_topics([topic]),
            lambda: admin.list_offsets({at: LATEST}),
            lambda: admin.delete_records({at: -1}),
            lambda: admin.elect_leaders([at]),
            admin.describe_cluster,
            lambda: admin.describe_log_dirs([1]),
            admin.list_groups,
            lambda: admin.alter_group_offsets("readers", {at: OffsetAndMetadata(0)}),
            lambda: admin.describe_groups(["readers"]),
            lambda: admin.list_group_offsets("readers", [at]),
            lambda: admin.delete_topics([topic]),
        ]
        failures: list[KafkaError] = []
        for ask in asked:
            began = now(line.stage.world)
            try:
                await ask()
            except KafkaError as error:
                failures.append(error)
            assert now(line.stage.world) - began < 4
        if failures:
            raise failures[0]


CASES: Mapping[str, tuple[ApiKey, Work]] = {
    "metadata of a producer": (ApiKey.METADATA, produce),
    "producer id": (ApiKey.INIT_PRODUCER_ID, produce),
    "produce": (ApiKey.PRODUCE, produce),
    "coordinator of an id": (ApiKey.FIND_COORDINATOR, transact),
    "taking over an id": (ApiKey.INIT_PRODUCER_ID, transact),
    "produce in a transaction": (ApiKey.PRODUCE, transact),
    "partitions of a transaction": (ApiKey.ADD_PARTITIONS_TO_TXN, transact_as_before),
    "group of a transaction": (ApiKey.ADD_OFFSETS_TO_TXN, transact_as_before),
    "offsets of a transaction": (ApiKey.TXN_OFFSET_COMMIT, transact),
    "end of a transaction": (ApiKey.END_TXN, transact),
    "end of a transaction as before": (ApiKey.END_TXN, transact_as_before),
    "metadata of a consumer": (ApiKey.METADATA, consume),
    "coordinator of a group": (ApiKey.FIND_COORDINATOR, consume),
    "joining": (ApiKey.JOIN_GROUP, consume),
    "assignment": (ApiKey.SYNC_GROUP, consume),
    "heartbeat": (ApiKey.HEARTBEAT, consume),
    "leaving": (ApiKey.LEAVE_GROUP, consume),
    "what is committed": (ApiKey.OFFSET_FETCH, consume),
    "commit": (ApiKey.OFFSET_COMMIT, consume),
    "where a log begins": (ApiKey.LIST_OFFSETS, consume),
    "fetch": (ApiKey.FETCH, consume),
}
OF_ADMINS = (
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.LIST_OFFSETS,
    ApiKey.DELETE_RECORDS,
    ApiKey.ELECT_LEADERS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.LIST_GROUPS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_FETCH,
    ApiKey.DELETE_TOPICS,
)
ALREADY_DONE = ("TOPIC_ALREADY_EXISTS", "INVALID_PARTITIONS", "UNKNOWN_TOPIC")
"""The errors of a repeated request whose first response was lost."""
SMALL: Mapping[str, Any] = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}


@asynccontextmanager
async def one_broker(world: World, work: Work | None = None) -> AsyncIterator[Scene]:
    version = "1" if work is transact_as_before else "2"
    settings = {**SMALL, "understudy_transaction_version": version}
    async with scene(world, replicas=((1,), (1,)), **settings) as stage:
        for partition in (0, 1):
            await stage.produce("a", "b", "c", partition=partition)
        yield stage


async def outcome(stage: Scene, tampering: Tampering, work: Work, name: str) -> str:
    """The error that it raised; nothing where it has done all that it was asked for."""
    began = now(stage.world)
    try:
        await work(Line(stage, tampering, name))
    except KafkaError as error:
        return f"{name}: {error}"
    finally:
        assert now(stage.world) - began < LONGEST, name
    return ""


async def once(stage: Scene, case: str, spoil: Spoil) -> None:
    key, work = CASES[case]
    if key is ApiKey.JOIN_GROUP and spoil is silence:
        return  # a member that is not answered waits for as long as the group may take
    tampering = Tampering(key, [spoil])
    assert not await outcome(stage, tampering, work, f"{case}, {spoil.__name__}")
    assert tampering.spoilt == 1, (case, spoil)


@pytest.mark.parametrize("work", [produce, transact, transact_as_before, consume])
@played
async def test_a_spoilt_answer_is_requested_again(world: World, work: Work) -> None:
    async with one_broker(world, work) as stage:
        for case in (case for case, (_, of_case) in CASES.items() if of_case is work):
            for spoil in (cut_short, says_nothing_of_it):
                await once(stage, case, spoil)


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(4, CASES))
@played
async def test_every_way_of_spoiling_an_answer_is_survived(world: World, case: str) -> None:
    async with one_broker(world, CASES[case][1]) as stage:
        for spoil in ONCE:
            await once(stage, case, spoil)


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(4, CASES))
@played
async def test_an_answer_spoilt_for_ever_is_an_exception_in_time(world: World, case: str) -> None:
    key, work = CASES[case]
    async with one_broker(world, work) as stage:
        for spoil in FOR_EVER:
            tampering = Tampering(key, [], spoil)
            await outcome(stage, tampering, work, spoil.__name__)
            assert 0 < tampering.spoilt < 500, spoil


@pytest.mark.slow
@pytest.mark.parametrize("key", one_in(4, OF_ADMINS))
@played_in(one_broker)
async def test_an_admin_client_fails_in_time(stage: Scene, key: ApiKey) -> None:
    for spoil in ONCE:
        tampering = Tampering(key, [spoil])
        error = await outcome(stage, tampering, administer, f"{spoil.__name__}")
        assert not error or any(code in error for code in ALREADY_DONE), error
        assert tampering.spoilt == 1, spoil
    for spoil in FOR_EVER:
        tampering = Tampering(key, [], spoil)
        assert await outcome(stage, tampering, administer, f"ever {spoil.__name__}")


@played
async def test_a_topic_that_vanishes_is_an_exception_in_time(world: World) -> None:
    async with one_broker(world) as stage, stage.consumer(request_timeout_ms=1_000) as consumer:
        producer: Producer[bytes, bytes] = Producer(
            stage.bootstrap_servers, seams=world.node("producer"), **OF_PRODUCERS
        )
        async with producer:
            await producer.send("t", b"d", partition=0)
            consumer.assign([T0])
            assert len(await consumer.poll(500)) == 4
            async with Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin:
                await admin.delete_topics(["t"])
            began = now(world)
            with pytest.raises(KafkaError) as raised:
                await producer.send("t", b"e", partition=0)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert now(world) - began < 6
            assert not await consumer.poll(1_000)
            with pytest.raises(KafkaTimeoutError):
                await consumer.end_offsets([T0], timeout_ms=1_000)


def test_the_worst_code_of_a_response_counts() -> None:
    unknown, moved, missing = UNKNOWN_SERVER_ERROR, NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert worst({T0: 0, T1: 0}, of=[T0, T1]) == ErrorCode.NONE
    assert worst({T0: 0, T1: unknown}, of=[T0, T1]) == unknown
    assert worst({T0: moved, T1: unknown}, of=[T0, T1]) == unknown
    assert worst({T0: not_attempted, T1: moved}, of=[T0, T1]) == moved
    assert worst({T0: not_attempted, T1: not_attempted}, of=[T0, T1]) == not_attempted
    assert worst({T0: 0}, of=[T0, T1]) == missing
    assert worst({}, of=[]) == ErrorCode.NONE
