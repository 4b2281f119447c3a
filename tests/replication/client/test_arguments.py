"""What a program gives a client by mistake is named at the call; the client goes on."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from replication.client import Admin, Consumer, Producer
from replication.client.admin import NewTopic, SomeFailedError
from replication.client.errors import InvalidTopicError
from replication.errors import ErrorCode, KafkaError
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from replication.wire.misfits import misfit
from scenarios.world.world import World
from tests.replication.client.scene import played, scene

Call = Callable[[Any], Awaitable[object]]


async def raised(call: Awaitable[object], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        await call


OF_AN_ADMIN: list[tuple[Call, str]] = [
    (lambda a: a.delete_topics("t"), "'t' is one name: give a list, ['t']"),
    (lambda a: a.describe_topics("t"), "'t' is one name: give a list, ['t']"),
    (lambda a: a.describe_topics([5]), "5 is not a name"),
    (lambda a: a.delete_groups("g"), "'g' is one name: give a list, ['g']"),
    (
        lambda a: a.create_topics([NewTopic(name="q", partitions="3")]),  # type: ignore[arg-type]
        "CreateTopicsRequest cannot have topics[0].num_partitions='3'",
    ),
    (
        lambda a: a.create_topics([NewTopic(name="q", configs={"retention.ms": 5})]),  # type: ignore[dict-item]
        "CreateTopicsRequest cannot have topics[0].configs[0].value=5",
    ),
    (
        lambda a: a.create_partitions({"t": "3"}),
        "CreatePartitionsRequest cannot have topics[0].count='3'",
    ),
]


@played
async def test_an_admin_client_names_a_wrong_argument_and_goes_on(world: World) -> None:
    async with (
        scene(world) as stage,
        Admin(stage.bootstrap_servers, seams=world.node("admin")) as admin,
    ):
        for call, said in OF_AN_ADMIN:
            await raised(call(admin), TypeError, said)
        assert "t" in await admin.list_topics()


OF_A_PRODUCER: list[tuple[Call, type[Exception], str]] = [
    (lambda p: p.send(5, b"x"), TypeError, "5 is not the name of a topic"),
    (lambda p: p.send("", b"x"), InvalidTopicError, "INVALID_TOPIC_EXCEPTION"),
    (lambda p: p.send("t", b"x", timestamp_ms="1"), TypeError, "timestamp_ms='1': expected a"),
    (lambda p: p.send_many("t", [b"x"], timestamp_ms=1.5), TypeError, "timestamp_ms=1.5"),
    (lambda p: p.send("t", b"x", headers={"name": b"1"}), TypeError, "'name' is not a header"),
    (lambda p: p.send("t", b"x", headers=[("a", "1")]), TypeError, "('a', '1') is not a header"),
]


@played
async def test_a_producer_names_a_wrong_argument_and_goes_on(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        for call, kind, said in OF_A_PRODUCER:
            await raised(call(producer), kind, said)
        assert (await producer.send("t", b"one", headers=[("h", None)])).offset == 0


def test_a_consumer_names_a_wrong_argument() -> None:
    consumer = Consumer(bootstrap_servers="b1:9092", group_id="g")
    with pytest.raises(TypeError, match=re.escape("'t' is one name: give a list, ['t']")):
        consumer.subscribe("t")
    with pytest.raises(TypeError, match="5 is not a name"):
        Consumer(5, bootstrap_servers="b1:9092", group_id="g")  # type: ignore[arg-type]
    for given, said in [
        ("t", "'t' is not a list of partitions: give [('t', 0)]"),
        (["t"], "'t' is not a partition: give a topic and a number"),
        ([("t", "0")], "('t', '0') is not a partition"),
        ([(5, 0)], "(5, 0) is not a partition"),
    ]:
        with pytest.raises(TypeError, match=re.escape(said)):
            consumer.assign(given)  # type: ignore[arg-type]


def test_an_error_of_several_things_says_its_code_once() -> None:
    code = ErrorCode.GROUP_ID_NOT_FOUND
    cases = [(KafkaError(code), "g"), (KafkaError(code, "GROUP_ID_NOT_FOUND: none"), "g: none")]
    for error, said in cases:
        assert str(SomeFailedError({"g": error})) == f"GROUP_ID_NOT_FOUND: {said}"


def test_a_client_can_be_shown_before_it_is_opened() -> None:
    assert "Producer" in repr(Producer("b1:9092"))
    assert "Admin" in repr(Admin("b1:9092"))


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (CreatableTopic(name="t"), ""),
        (CreatableTopic(name=None), "topics[0].name=None"),  # type: ignore[arg-type]
        (CreatableTopic(name="t", num_partitions=2**40), f"topics[0].num_partitions={2**40}"),
        (CreatableTopic(name="t", configs="a=b"), "topics[0].configs='a=b'"),  # type: ignore[arg-type]
        (CreatableTopic(name="t", configs=[7]), "topics[0].configs[0]=7"),  # type: ignore[list-item]
        (
            CreatableTopic(name="t", configs=[CreatableTopicConfig(name="k", value=None)]),
            "",
        ),
    ],
)
def test_the_first_value_that_does_not_fit_is_found(topic: CreatableTopic, said: str) -> None:
    assert misfit(CreateTopicsRequest(topics=[topic], timeout_ms=1), 7) == said
