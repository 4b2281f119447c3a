"""Our clients log in to Apache Kafka, and show it a certificate."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from replication.client import Admin, Consumer, Producer
from replication.client.admin import NewTopic, ScramCredentialInfo, UserScramCredentialUpsertion
from replication.client.config import ClientConfig
from replication.errors import AuthenticationError
from replication.mirror import Mirror, MirrorOptions
from replication.net import production_seams
from replication.net.raising import raising_only_one
from tests.interop.kafka import Kafka
from tests.interop.own_clients import SECONDS, asked_until, leaders_of
from tests.replication.net.certificates import (
    broker_keys,
    certificates,
    in_files,
    in_pkcs8,
    stranger,
)
from tests.replication.net.counting import Counting

pytestmark = pytest.mark.interop

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="x" password="x" user_bob="sesame";'
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A node that asks for logins at one listener, and for certificates at another."""
    directory = tmp_path_factory.mktemp("guarded")
    own = directory / "broker.pem"
    own.write_text(in_pkcs8(broker_keys().ssl_keystore_key or ""))
    with own.open("a") as file:
        file.write(broker_keys().ssl_keystore_certificate_chain or "")
    _, trusted = in_files(broker_keys(), directory, "ignored")
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM,
        "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM,
        "listener.name.login.plain.sasl.jaas.config": PLAIN,
        "listener.name.mutual.ssl.client.auth": "required",
        "connections.max.reauth.ms": "4000",
    }
    with Kafka(
        data_dir=directory / "kafka",
        properties=properties,
        listeners={"LOGIN": "SASL_SSL", "MUTUAL": "SSL"},
        format_arguments=("--add-scram", "SCRAM-SHA-256=[name=alice,password=sesame]"),
    ) as running:
        yield running


def login(kafka: Kafka, mechanism: str, name: str, password: str = "sesame") -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.servers("LOGIN"),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_certificates": certificates().trusted,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def by_certificate(kafka: Kafka) -> dict[str, Any]:
    carol = certificates().issued("carol.example", common_name="carol")
    return {
        "bootstrap_servers": kafka.servers("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_truststore_certificates": certificates().trusted,
        "ssl_keystore_key": carol.ssl_keystore_key,
        "ssl_keystore_certificate_chain": carol.ssl_keystore_certificate_chain,
    }


async def write_and_read(config: dict[str, Any], topic: str) -> None:
    async with Admin(**config) as admin:
        await admin.create_topics([NewTopic(name=topic)])
        await asked_until(lambda: leaders_of(admin, topic), lambda leaders: min(leaders) >= 0)
    async with Producer(**config) as producer:
        await producer.send(topic, b"sealed")
    with trio.fail_after(SECONDS):
        async with Consumer(**config, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            assert (await consumer.getone()).value == b"sealed"


async def test_by_scram_by_plain_and_by_certificate(guarded: Kafka) -> None:
    alice = login(guarded, "SCRAM-SHA-256", "alice")
    await write_and_read(alice, "by-scram")
    await write_and_read(login(guarded, "PLAIN", "bob"), "by-plain")
    await write_and_read(by_certificate(guarded), "by-certificate")


async def test_a_user_that_our_admin_makes_gets_in(guarded: Kafka) -> None:
    async with Admin(**login(guarded, "SCRAM-SHA-256", "alice")) as admin:
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("dora", "SCRAM-SHA-512", "open", iterations=5000)]
        )
        info = (ScramCredentialInfo("SCRAM-SHA-512", 5000),)
        await asked_until(
            admin.describe_user_scram_credentials, lambda known: known.get("dora") == info
        )
    await write_and_read(login(guarded, "SCRAM-SHA-512", "dora", "open"), "by-dora")


async def test_a_refused_client_gets_the_reason_at_once(guarded: Kafka) -> None:
    for config, why in [
        (login(guarded, "SCRAM-SHA-256", "alice", "wrong"), "invalid credentials"),
        (login(guarded, "PLAIN", "bob", "wrong"), "Invalid username or password"),
        (
            login(guarded, "PLAIN", "bob") | {"ssl_truststore_certificates": stranger().trusted},
            "its certificate is refused",
        ),
    ]:
        with trio.fail_after(SECONDS):
            async with Admin(**config) as admin:
                with pytest.raises(AuthenticationError, match=why):
                    await admin.list_topics()


class Earliest(random.Random):
    """Renews a login as early as it may, which leaves a busy machine the most time."""

    def random(self) -> float:
        return 0.0


async def test_a_login_that_ends_is_renewed_on_its_connection(guarded: Kafka) -> None:
    seams = production_seams()
    counting = Counting(seams.transport)
    seams = attrs.evolve(seams, transport=counting, chance=Earliest())
    async with Admin(**login(guarded, "SCRAM-SHA-256", "alice"), seams=seams) as admin:
        for _ in range(3):  # by the bootstrap address, and by the node's own
            await admin.list_topics()
        connections = counting.made
        for _ in range(30):  # more than twice as long as connections.max.reauth.ms
            await admin.list_topics()
            await trio.sleep(0.3)
    assert counting.made == connections


@pytest.mark.parametrize("way", ["SCRAM-SHA-256", "PLAIN", "certificate"])
async def test_it_is_followed_by_a_mirror_that_comes_in(
    guarded: Kafka, way: str, tmp_path: Path
) -> None:
    config = {
        "SCRAM-SHA-256": lambda: login(guarded, "SCRAM-SHA-256", "alice"),
        "PLAIN": lambda: login(guarded, "PLAIN", "bob"),
        "certificate": lambda: by_certificate(guarded),
    }[way]()
    topic = f"followed-by-{way.lower()}"
    await write_and_read(config, topic)
    mirror = Mirror(
        source_config=ClientConfig.of(**config),
        options=MirrorOptions(topics=(topic,)),
        directory=str(tmp_path / "copy"),
        seams=production_seams(),
    )

    async def ends() -> list[int]:
        return [each.log_end_offset for each in mirror.progress()]

    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.run)
            await asked_until(ends, lambda found: found == [1])
            mirror.stop()
