"""Stock clients that log in, or show a certificate: each writes a record and reads it back."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from replication.client import Admin
from replication.client.admin import NewTopic
from replication.cluster.cluster import Cluster, open_cluster
from replication.config.security import STANDARD_AUTHORIZER
from tests.clients.sample import PATIENCE_SECONDS, in_thread, until
from tests.replication.broker.stage import QUICK
from tests.replication.net.certificates import broker_keys, certificates, in_files

pytestmark = pytest.mark.client

MECHANISM = "SCRAM-SHA-512"
ADMIN = 'ScramLoginModule required username="admin" password="top";'
PROPERTIES = QUICK | {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL",
    "inter.broker.listener.name": "LOGIN",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": MECHANISM,
    "listener.name.login.scram-sha-512.sasl.jaas.config": ADMIN,
    "listener.name.controller.scram-sha-512.sasl.jaas.config": ADMIN,
    "listener.name.login.plain.sasl.jaas.config": 'PlainLoginModule required user_bob="b";',
    "listener.name.controller.plain.sasl.jaas.config": 'PlainLoginModule required user_bob="b";',
    "understudy.add.scram": f"{MECHANISM}=[name=admin,password=top]",
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:carol",
    "offsets.topic.num.partitions": "1",
}


@asynccontextmanager
async def secured_cluster(directory: Path, **more: str) -> AsyncIterator[Cluster]:
    """One broker with a topic; `directory` has carol's files."""
    keys = broker_keys()
    in_files(certificates().issued("carol.example", common_name="carol"), directory, "carol")
    properties = PROPERTIES | {
        "ssl.keystore.key": keys.ssl_keystore_key or "",
        "ssl.keystore.certificate.chain": keys.ssl_keystore_certificate_chain or "",
        "ssl.truststore.certificates": certificates().trusted,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    async with open_cluster(
        brokers=1, listeners=["LOGIN", "MUTUAL"], properties=properties
    ) as cluster:
        async with Admin(
            cluster.addresses("LOGIN"),
            security_protocol="SASL_SSL",
            ssl_cafile=str(directory / "trusted.pem"),
            sasl_mechanism=MECHANISM,
            sasl_plain_username="admin",
            sasl_plain_password="top",
        ) as admin:
            await admin.create_topics([NewTopic(name="t")])
        await cluster.until(lambda: cluster.leader("t", 0) is not None)
        yield cluster


def by_login(cluster: Cluster, files: Path) -> dict[str, Any]:
    """As kafka-python and aiokafka call it."""
    return {
        "bootstrap_servers": cluster.addresses("LOGIN"),
        "security_protocol": "SASL_SSL",
        "ssl_context": context(files),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "admin",
        "sasl_plain_password": "top",
    }


def by_certificate(cluster: Cluster, files: Path) -> dict[str, Any]:
    made = context(files)
    made.load_cert_chain(files / "carol.pem")
    return {
        "bootstrap_servers": cluster.addresses("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_context": made,
    }


def context(files: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files / "trusted.pem"))


def in_librdkafkas_words(config: dict[str, Any], files: Path) -> dict[str, Any]:
    words = {
        "bootstrap.servers": ",".join(config["bootstrap_servers"]),
        "security.protocol": config["security_protocol"],
        "ssl.ca.location": str(files / "trusted.pem"),
    }
    if config["security_protocol"] == "SSL":
        carol = str(files / "carol.pem")
        return words | {"ssl.certificate.location": carol, "ssl.key.location": carol}
    return words | {
        "sasl.mechanisms": config["sasl_mechanism"],
        "sasl.username": config["sasl_plain_username"],
        "sasl.password": config["sasl_plain_password"],
    }


def with_confluent_kafka(config: dict[str, Any], files: Path) -> bytes | None:
    words = in_librdkafkas_words(config, files)
    producer = confluent_kafka.Producer(words)
    producer.produce("t", b"sealed")
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = confluent_kafka.Consumer(words | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(PATIENCE_SECONDS)
    consumer.close()
    assert message is not None
    assert message.error() is None
    value: bytes | None = message.value()
    return value


def with_kafka_python(config: dict[str, Any], _: Path) -> bytes | None:
    producer = kafka.KafkaProducer(**config)
    producer.send("t", b"sealed").get(timeout=PATIENCE_SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "t",
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * PATIENCE_SECONDS,
        **config,
    )
    value: bytes | None = next(consumer).value
    consumer.close()
    return value


def with_aiokafka(config: dict[str, Any], _: Path) -> bytes | None:
    async def both() -> bytes | None:
        async with aiokafka.AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait("t", b"sealed")
        async with aiokafka.AIOKafkaConsumer(
            "t", group_id="g", auto_offset_reset="earliest", **config
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
        value: bytes | None = record.value
        return value

    return asyncio.run(both())


@pytest.mark.parametrize("way", [by_login, by_certificate])
async def test_each_client_gets_in_and_reads_what_it_wrote(
    way: Callable[[Cluster, Path], dict[str, Any]], tmp_path: Path
) -> None:
    async with secured_cluster(tmp_path) as cluster:
        for client in (with_confluent_kafka, with_kafka_python, with_aiokafka):
            assert await in_thread(client, way(cluster, tmp_path), tmp_path) == b"sealed", client


async def test_a_wrong_password_is_the_clients_own_error_for_it(tmp_path: Path) -> None:
    async with secured_cluster(tmp_path) as cluster:
        config = by_login(cluster, tmp_path) | {"sasl_plain_password": "wrong"}

        def ask_librdkafka() -> list[str]:
            said: list[str] = []
            words = in_librdkafkas_words(config, tmp_path) | {
                "error_cb": lambda error: said.append(error.name())
            }
            producer = confluent_kafka.Producer(words)
            until(lambda: producer.poll(0.1) >= 0 and bool(said), lambda: "nothing was said")
            return said

        assert "_AUTHENTICATION" in await in_thread(ask_librdkafka)


async def test_librdkafkas_admin_keeps_users_and_acls(tmp_path: Path) -> None:
    async with secured_cluster(tmp_path) as cluster:
        words = in_librdkafkas_words(by_login(cluster, tmp_path), tmp_path)
        bob = words | {"sasl.mechanisms": "PLAIN", "sasl.username": "bob", "sasl.password": "b"}

        def keep() -> None:
            admin = AdminClient(words)
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            alteration = UserScramCredentialUpsertion("dora", info, b"secret")
            for future in admin.alter_user_scram_credentials([alteration]).values():
                future.result(timeout=PATIENCE_SECONDS)
            pattern = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL)
            who = ("User:bob", "*")
            reading = AclBinding(*pattern, *who, AclOperation.READ, AclPermissionType.ALLOW)
            for future in admin.create_acls([reading]).values():
                future.result(timeout=PATIENCE_SECONDS)
            wanted = AclBindingFilter(*pattern, *who, AclOperation.ANY, AclPermissionType.ANY)
            # The broker has yet to hear of it from the controller.
            until(
                lambda: admin.describe_acls(wanted).result(timeout=PATIENCE_SECONDS) == [reading],
                lambda: "there is no such ACL",
            )
            bobs = AdminClient(bob)
            until(
                lambda: list(bobs.list_topics(timeout=PATIENCE_SECONDS).topics) == ["t"],
                lambda: "bob sees no topic",
            )
            (described,) = bobs.describe_topics(
                TopicCollection(["t"]), include_authorized_operations=True
            ).values()
            may = described.result(timeout=PATIENCE_SECONDS).authorized_operations
            assert {*may} == {AclOperation.READ, AclOperation.DESCRIBE}
            for future in admin.delete_acls([wanted]).values():
                assert future.result(timeout=PATIENCE_SECONDS) == [reading]

        await in_thread(keep)
        broker = cluster.brokers[1]
        await cluster.until(
            lambda: ("dora", "SCRAM-SHA-256") in broker.metadata.image.security.credentials
        )
