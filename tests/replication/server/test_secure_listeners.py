"""A cluster that speaks TLS among its nodes and to its clients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from replication.client import Admin, Consumer, Producer
from replication.client.admin import ALL_BROKERS, NewTopic, SomeFailedError
from replication.cluster.cluster import open_cluster
from replication.config import ConfigSource
from replication.config.tls import TlsKeys
from replication.errors import AuthenticationError, ErrorCode
from replication.events import CertificatesRead, Event
from tests.replication.broker.stage import QUICK
from tests.replication.net.certificates import (
    HOST,
    Certificates,
    broker_keys,
    certificates,
    in_files,
    stranger,
)

KEYSTORE = "listener.name.outside.ssl.keystore.location"


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


async def test_a_client_without_the_required_certificate_learns_why_it_is_refused() -> None:
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


async def test_certificates_are_exchanged_while_a_broker_runs(tmp_path: Path) -> None:
    """KIP-226: for one listener, under another name or in the same file (KAFKA-14136)."""
    refused: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, CertificatesRead):
            refused.append(event.refused)

    first, second = certificates(), stranger()
    one, _ = in_files(first.issued(HOST, "localhost"), tmp_path, "one")
    other, _ = in_files(second.issued(HOST, "localhost"), tmp_path, "other")
    properties = {
        **QUICK,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:SSL",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.outside.ssl.keystore.location": one,
    }
    async with open_cluster(
        brokers=1, listeners=["INSIDE", "OUTSIDE"], properties=properties, make_sink=lambda _: note
    ) as cluster:

        async def trusts(authority: Certificates) -> bool:
            found: dict[str, Any] = attrs.asdict(authority.trusting)
            outside = cluster.addresses("OUTSIDE")
            try:
                async with Admin(outside, security_protocol="SSL", **found) as admin:
                    await admin.list_topics()
            except AuthenticationError:
                return False
            return True

        async with Admin(cluster.addresses("INSIDE")) as admin:

            async def alter(value: str | None, *, broker: int = 1) -> None:
                read = len(refused)
                await admin.alter_broker_configs({broker: {KEYSTORE: value}})
                await cluster.until(lambda: len(refused) > read)

            assert (await trusts(first), await trusts(second)) == (True, False)
            await alter(other)
            assert (await trusts(first), await trusts(second)) == (False, True)
            described = (await admin.describe_broker_configs([1]))["1"][KEYSTORE]
            assert (described.value, described.source) == (
                other,
                ConfigSource.DYNAMIC_BROKER_CONFIG,
            )
            # The same name, and another file under it.
            await trio.Path(other).write_bytes(await trio.Path(one).read_bytes())
            await alter(other)
            assert (await trusts(first), await trusts(second)) == (True, False)
            for broker, value, message in (
                (1, str(tmp_path / "none.pem"), "no such file"),
                (ALL_BROKERS, one, "broker id must be specified"),
            ):
                with pytest.raises(SomeFailedError, match=message) as caught:
                    await admin.alter_broker_configs({broker: {KEYSTORE: value}})
                assert caught.value.code is ErrorCode.INVALID_REQUEST
            # A file that goes: what was read is in force until there is something else.
            await trio.Path(other).unlink()
            await admin.alter_broker_configs({1: {"log.retention.ms": "5"}})
            await cluster.until(lambda: "no such file" in refused[-1])
            assert await trusts(first)
            await alter(None)
            assert await trusts(first)
        assert refused.count("") == len(refused) - 1
