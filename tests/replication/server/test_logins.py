"""A cluster whose nodes and clients log in."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from replication.client import Admin, Consumer, Producer
from replication.client.admin import (
    NewTopic,
    ScramCredentialInfo,
    SomeFailedError,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from replication.client.errors import KafkaTimeoutError
from replication.cluster.cluster import Cluster, open_cluster
from replication.config.tls import TlsKeys
from replication.errors import AuthenticationError, ErrorCode
from replication.events import ConnectionRefused, Event
from tests.replication.broker.stage import QUICK
from tests.replication.net.certificates import broker_keys, certificates

ADMIN = 'ScramLoginModule required username="admin" password="top";'
PLAIN_USERS = 'PlainLoginModule required user_alice="sesame";'
PROPERTIES = QUICK | {
    "listener.security.protocol.map": (
        "CONTROLLER:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
    "listener.name.inside.scram-sha-256.sasl.jaas.config": ADMIN,
    "listener.name.controller.scram-sha-256.sasl.jaas.config": ADMIN,
    "listener.name.outside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.outside.plain.sasl.jaas.config": PLAIN_USERS,
    "understudy.add.scram": "SCRAM-SHA-256=[name=admin,password=top]",
    "connection.failed.authentication.delay.ms": "10",
}


def key_properties(keys: TlsKeys) -> dict[str, str]:
    assert keys.ssl_keystore_key is not None
    assert keys.ssl_keystore_certificate_chain is not None
    return {
        "ssl.keystore.key": keys.ssl_keystore_key,
        "ssl.keystore.certificate.chain": keys.ssl_keystore_certificate_chain,
    }


@asynccontextmanager
async def guarded_cluster(
    brokers: int = 1,
    sink: Callable[[Event], None] = lambda _: None,
    keys: TlsKeys | None = None,
    **more: str,
) -> AsyncIterator[Cluster]:
    properties = PROPERTIES | key_properties(keys or broker_keys())
    properties |= {key.replace("_", "."): value for key, value in more.items()}
    async with open_cluster(
        brokers=brokers,
        listeners=["INSIDE", "OUTSIDE"],
        properties=properties,
        make_sink=lambda _: sink,
    ) as cluster:
        yield cluster


def outside(cluster: Cluster, mechanism: str, name: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.addresses("OUTSIDE"),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_certificates": certificates().trusted,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


async def test_nodes_log_in_to_each_other_and_clients_by_what_their_listener_offers() -> None:
    async with guarded_cluster(brokers=2) as cluster:
        alice = outside(cluster, "PLAIN", "alice", "sesame")
        async with Admin(**alice) as admin:
            await admin.create_topics([NewTopic(name="t", replication_factor=2)])
            for upsertion in (
                UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", "open", iterations=5000),
                UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", "open"),
            ):
                await admin.alter_user_scram_credentials([upsertion])
            await cluster.until(
                lambda: all(
                    ("bob", "SCRAM-SHA-256") in broker.metadata.image.security.credentials
                    for broker in cluster.brokers.values()
                )
            )
            assert await admin.describe_user_scram_credentials(["bob"]) == {
                "bob": (
                    ScramCredentialInfo("SCRAM-SHA-256", 4096),
                    ScramCredentialInfo("SCRAM-SHA-512", 5000),
                )
            }
        await cluster.until(lambda: cluster.leader("t", 0) is not None)
        bob = outside(cluster, "SCRAM-SHA-512", "bob", "open")
        async with Producer(**bob) as producer:
            await producer.send("t", b"sealed")
        async with Consumer(**bob, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            assert (await consumer.getone()).value == b"sealed"


async def test_a_refused_client_gets_one_answer_at_once() -> None:
    refused: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, ConnectionRefused):
            refused.append(event.cause)

    async with guarded_cluster(sink=note) as cluster:
        for mechanism, name, password, why in [
            ("PLAIN", "alice", "wrong", "Invalid username or password"),
            ("PLAIN", "nobody", "sesame", "Invalid username or password"),
            ("SCRAM-SHA-256", "admin", "wrong", "invalid credentials with SASL mechanism SCRAM"),
        ]:
            async with Admin(**outside(cluster, mechanism, name, password)) as admin:
                with pytest.raises(AuthenticationError, match=why) as raised:
                    await admin.list_topics()
            assert "\n" not in str(raised.value)
            assert password not in str(raised.value)
        async with Consumer(**outside(cluster, "PLAIN", "alice", "wrong")) as consumer:
            consumer.assign([("t", 0)])
            with pytest.raises(AuthenticationError, match="Invalid username"):
                await consumer.getone()
        async with Producer(**outside(cluster, "PLAIN", "alice", "wrong")) as producer:
            with pytest.raises(AuthenticationError, match="Invalid username"):
                await producer.send("t", b"x")
        inside = outside(cluster, "PLAIN", "alice", "sesame") | {
            "bootstrap_servers": cluster.addresses("INSIDE"),
            "security_protocol": "SASL_PLAINTEXT",
        }
        async with Admin(**inside) as admin:
            with pytest.raises(AuthenticationError, match="PLAIN is not offered; SCRAM-SHA-256 is"):
                await admin.list_topics()
    assert any("a login by PLAIN failed: Authentication failed" in each for each in refused)
    assert any("a login by 'PLAIN' is refused: UNSUPPORTED_SASL" in each for each in refused)


async def test_what_is_asked_before_the_login_costs_the_connection() -> None:
    refused: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, ConnectionRefused):
            refused.append(event.cause)

    async with guarded_cluster(sink=note) as cluster:
        servers = cluster.addresses("INSIDE")
        async with Admin(servers, default_api_timeout_ms=300) as admin:
            with pytest.raises(KafkaTimeoutError):
                await admin.list_topics()
    assert set(refused) == {"MetadataRequest before the login is done"}


async def test_credentials_are_altered_one_by_one_or_refused_one_by_one() -> None:
    async with (
        guarded_cluster() as cluster,
        Admin(**outside(cluster, "PLAIN", "alice", "sesame")) as admin,
    ):
        with pytest.raises(SomeFailedError) as failed:
            await admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion("carol", "SCRAM-SHA-256", "x"),
                    UserScramCredentialUpsertion("few", "SCRAM-SHA-256", "x", iterations=4095),
                    UserScramCredentialDeletion("dora", "SCRAM-SHA-256"),
                    UserScramCredentialUpsertion("twice", "SCRAM-SHA-256", "x"),
                    UserScramCredentialUpsertion("twice", "SCRAM-SHA-256", "y"),
                    UserScramCredentialUpsertion("both", "SCRAM-SHA-256", "x"),
                    UserScramCredentialUpsertion("both", "SCRAM-SHA-512", "x"),
                    UserScramCredentialUpsertion("", "SCRAM-SHA-256", "x"),
                ]
            )
        assert {name: error.code for name, error in failed.value.failed.items()} == {
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "dora": ErrorCode.RESOURCE_NOT_FOUND,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "both": ErrorCode.DUPLICATE_RESOURCE,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        broker = cluster.brokers[1]
        key = ("carol", "SCRAM-SHA-256")
        await cluster.until(lambda: key in broker.metadata.image.security.credentials)
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(*key)])
        await cluster.until(lambda: key not in broker.metadata.image.security.credentials)
        with pytest.raises(SomeFailedError, match="carol"):
            await admin.describe_user_scram_credentials(["carol"])


async def test_a_login_is_good_for_a_while_and_connections_are_made_anew() -> None:
    async with (
        guarded_cluster(connections_max_reauth_ms="200") as cluster,
        Admin(**outside(cluster, "PLAIN", "alice", "sesame")) as admin,
    ):
        for _ in range(4):
            assert await admin.list_topics() == []
            await cluster.clock.sleep(0.1)
