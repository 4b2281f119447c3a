"""A cluster that speaks TLS among its nodes and to its clients."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from replication.client import Admin, Consumer, Producer
from replication.client.admin import NewTopic
from replication.cluster.cluster import open_cluster
from replication.config.tls import TlsKeys
from replication.errors import AuthenticationError
from tests.replication.cluster.stage import QUICK
from tests.replication.net.certificates import broker_keys, certificates, stranger


def in_kafkas_words(keys: TlsKeys) -> dict[str, str]:
    return {
        name.replace("_", "."): value
        for name, value in attrs.asdict(keys).items()
        if value is not None and isinstance(value, str) and value != "PEM"
    }


EVERYWHERE: Mapping[str, str] = {
    "listener.security.protocol.map": "CONTROLLER:SSL,INSIDE:SSL,OUTSIDE:SSL",
    "inter.broker.listener.name": "INSIDE",
    "ssl.client.auth": "required",
    "listener.name.outside.ssl.client.auth": "none",
}


async def test_nodes_and_clients_speak_tls_each_on_its_listener() -> None:
    keys = in_kafkas_words(broker_keys())
    trusting: dict[str, Any] = attrs.asdict(certificates().trusting)
    async with open_cluster(
        brokers=2, listeners=["INSIDE", "OUTSIDE"], properties={**QUICK, **EVERYWHERE, **keys}
    ) as cluster:
        outside: dict[str, Any] = {
            "bootstrap_servers": cluster.addresses("OUTSIDE"),
            "security_protocol": "SSL",
        }
        async with Admin(**outside, **trusting) as admin:
            await admin.create_topics([NewTopic(name="t", replication_factor=2)])
            assert len((await admin.describe_cluster()).brokers) == 2
        await cluster.until(lambda: cluster.leader("t", 0) is not None)
        async with Producer(**outside, **trusting) as producer:
            await producer.send("t", b"sealed")
        async with Consumer(**outside, **trusting, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            record = await consumer.getone()
        assert record.value == b"sealed"


async def test_a_client_without_the_certificate_that_is_asked_for_is_told_so() -> None:
    keys = in_kafkas_words(broker_keys())
    async with open_cluster(
        brokers=1, listeners=["INSIDE", "OUTSIDE"], properties={**QUICK, **EVERYWHERE, **keys}
    ) as cluster:
        inside: dict[str, Any] = {
            "bootstrap_servers": cluster.addresses("INSIDE"),
            "security_protocol": "SSL",
        }
        for keys_of_client, message in [
            (certificates().trusting, "certificate required"),
            (stranger().issued(), "its certificate is refused"),
        ]:
            async with Admin(**inside, **attrs.asdict(keys_of_client)) as admin:
                with pytest.raises(AuthenticationError, match=message) as refused:
                    await admin.list_topics()
                assert "\n" not in str(refused.value)
        alice = certificates().issued("alice.example", common_name="alice")
        async with Admin(**inside, **attrs.asdict(alice)) as admin:
            assert await admin.list_topics() == []
