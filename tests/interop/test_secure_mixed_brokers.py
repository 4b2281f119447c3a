"""A broker of Apache Kafka and one of ours that log in at each other, and at a controller of either kind.

Between the nodes is TLS; ACLs are in the metadata log, and both brokers refuse the same.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from replication.client.admin import Acl, NewTopic, Operation
from replication.config.security import STANDARD_AUTHORIZER
from replication.errors import ErrorCode
from replication.net import production_seams
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import ApiKey
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop import tools
from tests.interop.kafka import CONTROLLER_ALONE, Kafka
from tests.interop.own_clients import (
    admin_of,
    check_equal,
    producer_of,
    read_all,
    wait_for_isr,
)
from tests.interop.test_answers import TO_SEE, about_shut
from tests.interop.twins import CLOSED, TOPICS, Side, Twins
from tests.replication.broker.clients import Client
from tests.replication.net.certificates import broker_keys, in_files, in_pkcs8
from tests.replication.server.test_acls import allow, asking

pytestmark = [pytest.mark.interop, pytest.mark.slow]

THEIRS, OURS = 1, 2
SCRAM = "SCRAM-SHA-512"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
MANY = 150
"""Fewer than the APIs that both brokers serve, each in all its versions."""
ADMIN = 'required username="admin" password="top"'
PLAIN_LOGIN = (
    f"org.apache.kafka.common.security.plain.PlainLoginModule {ADMIN}"
    ' user_admin="top" user_alice="a";'
)
SCRAM_LOGIN = f"org.apache.kafka.common.security.scram.ScramLoginModule {ADMIN};"


def in_tls(directory: Path) -> dict[str, str]:
    """Return the keys of every node, which has one certificate with all others."""
    own = directory / "broker.pem"
    chain = broker_keys().ssl_keystore_certificate_chain or ""
    own.write_text(in_pkcs8(broker_keys().ssl_keystore_key or "") + chain)
    _, trusted = in_files(broker_keys(), directory, "ignored")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
    }


def logging_in(brokers: str, controllers: str) -> dict[str, str]:
    """Return the mechanisms by which nodes log in at brokers and at controllers."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT,"
        "INSIDE:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "sasl.mechanism.inter.broker.protocol": brokers,
        "sasl.mechanism.controller.protocol": controllers,
        **{
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": login
            for listener in ("outside", "inside", "controller")
            for mechanism, login in (("PLAIN", PLAIN_LOGIN), (SCRAM, SCRAM_LOGIN))
        },
    }


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(({OURS, CONTROLLER_ALONE}, "PLAIN", SCRAM), id="our controller by SCRAM"),
        pytest.param(({OURS, CONTROLLER_ALONE}, SCRAM, "PLAIN"), id="our controller by PLAIN"),
        pytest.param(({OURS}, "PLAIN", SCRAM), id="Kafka's controller by SCRAM"),
        pytest.param(({OURS}, SCRAM, "PLAIN"), id="Kafka's controller by PLAIN"),
    ],
)
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    ours, brokers, controllers = request.param
    directory = tmp_path_factory.mktemp("secure")
    inside = {"inter.broker.listener.name": "INSIDE"}
    properties = {
        **in_tls(directory),
        **logging_in(brokers, controllers),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    with Kafka(
        data_dir=directory / "kafka",
        brokers=2,
        ours=ours,
        listeners={"OUTSIDE": "SASL_PLAINTEXT", "INSIDE": "SASL_SSL"},
        properties=properties,
        node_properties={THEIRS: inside, OURS: inside},
        format_arguments=("--add-scram", f"{SCRAM}=[name=admin,password=top]"),
    ) as running:
        trio.run(make_topics, running)
        yield running


async def make_topics(kafka: Kafka) -> None:
    async with admin_of(kafka) as admin:
        both = ((THEIRS, OURS),)
        await admin.create_topics([NewTopic(name=name, replicas=both) for name in TOPICS])
        for name in TOPICS:
            await wait_for_isr(admin, name, THEIRS, OURS)


async def test_each_kind_follows_the_other_over_tls(secure: Kafka) -> None:
    async with admin_of(secure) as admin, producer_of(secure) as producer:
        for leader, follower in ((THEIRS, OURS), (OURS, THEIRS)):
            topic = f"led-by-{leader}"
            await admin.create_topics([NewTopic(name=topic, replicas=((leader, follower),))])
            await wait_for_isr(admin, topic, THEIRS, OURS)
            for number in range(20):
                await producer.send(topic, b"%d" % number * 100)
            await wait_for_isr(admin, topic, THEIRS, OURS, leader=leader)
            await admin.alter_partition_reassignments(
                {TopicPartition(topic, 0): (follower, leader)}
            )
            await admin.elect_leaders([TopicPartition(topic, 0)])
            await wait_for_isr(admin, topic, THEIRS, OURS, leader=follower)
            assert len(await read_all(secure, topic, 20)) == 20
            await check_equal(secure, topic)


@pytest.mark.parametrize("rights", [(), TO_SEE], ids=["none", "to see"])
async def test_every_api_refuses_alike_at_both(secure: Kafka, rights: tuple[Acl, ...]) -> None:
    async with admin_of(secure) as admin:
        await admin.create_acls(rights)
        ids = {name: each.topic_id for name, each in (await admin.describe_topics(TOPICS)).items()}
    boss = Client(production_seams())

    def side(broker: int) -> Side:
        return Side(
            alice=asking("alice", "a"),
            boss=boss,
            address=secure.address(broker, "OUTSIDE"),
            boss_address=secure.address(broker),
            topic_ids=ids,
        )

    asks = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    served = await boss.ask(secure.address(THEIRS), asks, version=3)
    versions = {
        each.api_key: range(each.min_version, each.max_version + 1) for each in served.api_keys
    }
    both = Twins(side(THEIRS), side(OURS), versions)
    different = {}
    answered = 0
    for key, version in both.every_api():
        if rights and key is ApiKey.LIST_OFFSETS:
            continue  # alice may ask now, and only the leader has an answer
        theirs, ours = await both.ask(partial(about_shut, key, version), version)
        answered += theirs != CLOSED
        if theirs != ours:
            different[key.name, version] = (theirs, ours)
    assert different == {}, next(iter(different.items()))
    assert answered > MANY


async def test_a_delegation_token_of_kafkas_does_not_end_ours(
    secure: Kafka, tmp_path: Path
) -> None:
    """Ours reads it from the controller, and again after a restart; a controller of ours makes none."""
    login = tmp_path / "login.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule {ADMIN};\n"
    )

    def command(*arguments: str) -> tools.ToolResult:
        where = ("--bootstrap-server", secure.address(THEIRS, "OUTSIDE"))
        return tools.try_tool(TOKENS, *where, "--command-config", str(login), *arguments)

    # The tool would ask any broker, and ours does not make tokens.
    await in_thread(secure.kill, OURS)
    made = await in_thread(command, "--create", "--max-life-time-period=-1")
    await in_thread(secure.start, OURS)
    assert (made.exit_code == 0) == (CONTROLLER_ALONE not in secure.ours), made.errors
    topic = "after-the-token"
    async with admin_of(secure) as admin:
        await admin.create_topics([NewTopic(name=topic, replicas=((THEIRS, OURS),))])
        await in_thread(secure.kill, OURS)
        await in_thread(secure.start, OURS)
        await wait_for_isr(admin, topic, THEIRS, OURS)


def changes(name: str) -> list[tuple[object, str]]:
    """Return requests to change the topics `name` and `shut`, and the array of each answer."""
    names = (name, "shut")
    config = IncrementalAlterableConfig(name="retention.ms", value="1000")
    return [
        (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=each, num_partitions=1, replication_factor=2)
                    for each in names
                ],
                timeout_ms=10_000,
            ),
            "topics",
        ),
        (
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=each, count=2, assignments=None) for each in names
                ],
                timeout_ms=10_000,
            ),
            "results",
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=ConfigResourceType.TOPIC, resource_name=each, configs=[config]
                    )
                    for each in names
                ]
            ),
            "responses",
        ),
        (
            DeleteTopicsRequest(
                topics=[DeleteTopicState(name=each) for each in names], timeout_ms=10_000
            ),
            "responses",
        ),
    ]


async def test_alice_changes_what_is_hers_by_either(secure: Kafka) -> None:
    """Their broker leaves it to our controller to know alice, and from where she comes."""
    operations = (Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.DELETE)
    hers = [allow(each, "hers", prefixed=True) for each in operations]
    here, there = "127.0.0.1", "10.9.9.9"
    elsewhere = [allow(each, "theirs", prefixed=True) for each in operations]
    async with admin_of(secure) as admin:
        await admin.create_acls(attrs.evolve(each, host=here) for each in hers)
        await admin.create_acls(attrs.evolve(each, host=there) for each in elsewhere)
    alice = asking("alice", "a")
    for broker in (THEIRS, OURS):
        address = secure.address(broker, "OUTSIDE")
        for name, code in (
            (f"hers-{broker}", ErrorCode.NONE),
            (f"theirs-{broker}", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ):
            for request, answered in changes(name):
                answer = await alice.ask(address, request)
                codes = [each.error_code for each in getattr(answer, answered)]
                wanted = sorted([code, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
                assert sorted(codes) == wanted, (broker, request, answer)
