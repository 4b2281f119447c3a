"""TLS: accepted and refused peers, the reasons of a refusal, and the bytes on the wire."""

import shlex
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from replication.config.tls import TlsKeys, check_tls, overridden
from replication.errors import AuthenticationError, ConfigError, PeerUnavailableError
from replication.net.tcp import TcpConnection, TcpTransport
from replication.net.tls import (
    TlsConnection,
    TlsListener,
    TlsTransport,
    client_context,
    server_context,
)
from tests.replication.net.certificates import (
    HOST,
    broker_keys,
    certificates,
    expired_keys,
    in_files,
    stranger,
)


@asynccontextmanager
async def pair(
    server: TlsKeys, client: TlsKeys, *, client_auth: str = "none", host: str = HOST
) -> AsyncIterator[tuple[TlsConnection, TlsConnection]]:
    """Both ends, the one that connected first, before the handshake."""
    listening = await TcpTransport().listen(HOST, 0)
    listener = TlsListener(listening, server_context(server, client_auth=client_auth))
    connected = await TcpTransport().connect(HOST, listener.port)
    here = TlsConnection(connected, client_context(client), host)
    there = await listener.accept()
    listener.close()
    try:
        yield here, there
    finally:
        here.close()
        there.close()


async def said(here: TlsConnection, there: TlsConnection) -> None:
    """Each side says a word to the other; what goes wrong is raised as it is."""

    async def speak(connection: TlsConnection) -> None:
        await connection.send_buffers([b"w", b"ord"])
        room = memoryview(bytearray(4))
        assert await connection.receive_into(room) == 4
        assert bytes(room) == b"word"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak, here)
        nursery.start_soon(speak, there)


async def failures(here: TlsConnection, there: TlsConnection) -> list[str]:
    """Return the errors of both sides of a failed connection, ours first."""
    heard: dict[int, str] = {}

    async def exchange(connection: TlsConnection) -> None:
        await connection.send_buffers([b"word"])
        if not await connection.receive_into(memoryview(bytearray(4))):
            raise PeerUnavailableError("the end")

    async def fail(number: int, connection: TlsConnection) -> None:
        with pytest.raises(PeerUnavailableError) as raised:
            await exchange(connection)
        assert "\n" not in str(raised.value)
        heard[number] = f"{type(raised.value).__name__}: {raised.value}"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail, 0, here)
        nursery.start_soon(fail, 1, there)
    return [heard[0], heard[1]]


async def test_both_sides_hear_each_other() -> None:
    async with pair(broker_keys(), certificates().trusting) as (here, there):
        await said(here, there)
        assert there.peer_subject is None
        assert here.peer_subject is not None
        assert here.peer.startswith(HOST)


async def test_with_client_auth_the_peer_is_known_by_its_certificate() -> None:
    alice = certificates().issued("alice.example", common_name="alice")
    async with pair(broker_keys(), alice, client_auth="required") as (here, there):
        await said(here, there)
        assert there.peer_subject is not None
        assert (("commonName", "alice"),) in there.peer_subject


@pytest.mark.parametrize("client_auth", ["required", "requested"])
async def test_a_client_without_a_required_certificate_is_refused(client_auth: str) -> None:
    keys = certificates().trusting
    async with pair(broker_keys(), keys, client_auth=client_auth) as (here, there):
        if client_auth == "requested":
            await said(here, there)
            return
        ours, theirs = await failures(here, there)
    assert (
        ours == f"AuthenticationError: no TLS with {here.peer}: tlsv13 alert certificate required"
    )
    assert "peer did not return a certificate" in theirs


async def test_a_certificate_of_an_unknown_authority_is_refused() -> None:
    async with pair(stranger().issued(), certificates().trusting) as (here, there):
        ours, theirs = await failures(here, there)
    assert ours.startswith("AuthenticationError: ")
    assert "its certificate is refused: unable to get local issuer certificate" in ours
    assert "alert unknown ca" in theirs


async def test_a_certificate_of_another_host_is_refused_unless_that_is_allowed() -> None:
    elsewhere, trusting = certificates().issued("elsewhere.example"), certificates().trusting
    async with pair(elsewhere, trusting) as (here, there):
        ours, _ = await failures(here, there)
    assert "certificate is not valid for '127.0.0.1'" in ours
    lenient = attrs.evolve(trusting, ssl_endpoint_identification_algorithm="")
    async with pair(elsewhere, lenient) as (here, there):
        await said(here, there)


async def test_an_expired_certificate_is_refused_by_name() -> None:
    async with pair(expired_keys(), certificates().trusting) as (here, there):
        ours, theirs = await failures(here, there)
    assert ours.endswith("its certificate is refused: certificate has expired")
    assert theirs.startswith("AuthenticationError: ")


async def test_a_client_without_tls_is_refused_and_disconnected() -> None:
    listening = await TcpTransport().listen(HOST, 0)
    listener = TlsListener(listening, server_context(broker_keys()))
    plain = await TcpTransport().connect(HOST, listener.port)
    there = await listener.accept()
    await plain.send_buffers([b"\0\0\0\x10 no TLS at all"])
    with pytest.raises(AuthenticationError, match="no TLS with 127"):
        await there.receive_into(memoryview(bytearray(10)))
    with pytest.raises(PeerUnavailableError):
        await there.send_buffers([b"x"])
    plain.close()
    listener.close()


async def test_a_peer_that_leaves_inside_the_handshake_is_a_lost_connection() -> None:
    async with pair(broker_keys(), certificates().trusting) as (here, there):
        here.inner.close()
        with pytest.raises(PeerUnavailableError, match="closed the connection inside") as raised:
            await there.receive_into(memoryview(bytearray(10)))
    assert not isinstance(raised.value, AuthenticationError)


@attrs.frozen
class CancellingTransport(TcpTransport):
    """A transport whose caller is cancelled just when its connection is made."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, kw_only=True)

    async def connect(self, host: str, port: int) -> TcpConnection:
        connected = await TcpTransport.connect(self, host, port)
        self.scope.cancel()
        return connected


async def test_a_connection_that_is_given_up_before_its_handshake_is_closed() -> None:
    listener = await TcpTransport().listen(HOST, 0)
    inner = CancellingTransport()
    transport = TlsTransport(inner, client_context(certificates().trusting))
    with inner.scope:
        await transport.connect(HOST, listener.port)
    assert inner.scope.cancelled_caught
    there = await listener.accept()
    assert await there.receive_into(memoryview(bytearray(10))) == 0
    there.close()
    listener.close()


async def test_a_peer_that_says_goodbye_after_its_last_bytes_is_read_to_the_end() -> None:
    """A broker that refuses a login answers, and closes in TLS's own good order."""
    async with pair(broker_keys(), certificates().trusting) as (here, there):
        await said(here, there)
        await there.send_buffers([b"last"])
        with suppress(ssl.SSLWantReadError):
            there._tls.unwrap()
        await there._flush()
        room = memoryview(bytearray(100))
        with trio.testing.assert_checkpoints():
            assert await here.receive_into(room) == 4
        assert bytes(room[:4]) == b"last"
        assert await here.receive_into(room) == 0


async def test_a_write_after_the_peer_has_left_is_a_lost_connection() -> None:
    """It was seen in a login that was renewed while the other side hung up."""
    async with pair(broker_keys(), certificates().trusting) as (here, there):
        await said(here, there)
        there.close()
        assert await here.receive_into(memoryview(bytearray(4))) == 0
        with pytest.raises(PeerUnavailableError, match=here.peer):
            await here.send_buffers([b"word"])


async def test_a_version_that_one_side_does_not_speak_is_refused() -> None:
    old = attrs.evolve(broker_keys(), ssl_enabled_protocols=("TLSv1.2",))
    new = attrs.evolve(certificates().trusting, ssl_enabled_protocols=("TLSv1.3",))
    async with pair(old, new) as (here, there):
        ours, theirs = await failures(here, there)
    assert "protocol version" in ours
    assert "unsupported protocol" in theirs
    both = certificates().trusting
    async with pair(old, both) as (here, there):
        await said(here, there)


# Keys.


def test_keys_come_from_files_too(tmp_path: Path) -> None:
    own, trusted = in_files(broker_keys(), tmp_path, "broker")
    keys = TlsKeys(ssl_keystore_location=own, ssl_truststore_location=trusted)
    assert server_context(keys, client_auth="required").verify_mode is ssl.CERT_REQUIRED
    assert client_context(keys).check_hostname


def broken(**changes: str | None) -> TlsKeys:
    return attrs.evolve(broker_keys(), **changes)  # type: ignore[arg-type] # text keys alone


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (TlsKeys(), "ssl.keystore.location is missing"),
        (TlsKeys(ssl_keystore_location="/none.pem"), "location=/none.pem: no such file"),
        (lambda: broken(ssl_keystore_key=None), "expected both or neither"),
        (lambda: broken(ssl_keystore_location="/x"), "not both"),
        (
            lambda: broken(ssl_keystore_key=stranger().issued().ssl_keystore_key),
            "ssl.keystore.key: key values mismatch",
        ),
        (lambda: broken(ssl_keystore_key="nonsense"), "ssl.keystore.key: expected PEM"),
        (lambda: broken(ssl_truststore_certificates="x"), "ssl.truststore.certificates: "),
    ],
)
def test_errors_of_keys_are_one_line(keys: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        server_context(keys() if callable(keys) else keys, client_auth="required")  # type: ignore[arg-type] # keys, or made when the test runs
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("named", [True, False], ids=["by its type", "by its bytes"])
def test_a_store_of_javas_is_refused_with_the_command_that_makes_pem_of_it(
    named: bool, tmp_path: Path
) -> None:
    """The suggested command is run; keytool makes PKCS12 (JEP 229)."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to follow the advice with")
    own, trusted = in_files(broker_keys(), tmp_path, "broker")
    form = "PKCS12" if named else "PEM"
    for what, stored in (("keystore", "-inkey"), ("truststore", "-nokeys")):
        source = own if what == "keystore" else trusted
        given = [stored, own] if what == "keystore" else [stored]
        store = str(tmp_path / f"{what}.p12")
        make = [openssl, "pkcs12", "-export", "-in", source, *given, "-out", store]
        subprocess.run([*make, "-passout", "pass:x"], check=True, capture_output=True)
        files: dict[str, Any] = {"ssl_keystore_location": own, "ssl_truststore_location": trusted}
        given_form = {f"ssl_{what}_type": form}
        keys = TlsKeys(**files | given_form | {f"ssl_{what}_location": store})
        with pytest.raises(ConfigError, match=f"ssl.{what}.*PKCS12.*only PEM") as refused:
            server_context(keys, client_auth="required")
        assert "\n" not in str(refused.value)
        command = shlex.split(str(refused.value).split("`")[1])
        subprocess.run([*command, "-passin", "pass:x"], check=True, capture_output=True)
        made = TlsKeys(**files | {f"ssl_{what}_location": f"{store[:-4]}.pem"})
        assert server_context(made, client_auth="required").get_ca_certs()


def test_javas_older_store_takes_two_commands() -> None:
    keys = TlsKeys(ssl_keystore_type="JKS", ssl_keystore_location="/etc/kafka/server.jks")
    with pytest.raises(ConfigError) as refused:
        check_tls(keys)
    assert str(refused.value).split("`")[1] == (
        "keytool -importkeystore -srckeystore /etc/kafka/server.jks"
        " -destkeystore /etc/kafka/server.p12 -deststoretype PKCS12"
        " && openssl pkcs12 -in /etc/kafka/server.p12 -out /etc/kafka/server.pem -nodes"
    )


def test_keys_of_one_listener_precede_those_of_all() -> None:
    said_of_all = TlsKeys(ssl_keystore_location="a")
    keys = overridden(said_of_all, TlsKeys, {"ssl.keystore.location": "b", "x": "y"})
    assert keys == TlsKeys(ssl_keystore_location="b")
    check_tls(keys)


def test_secrets_are_not_shown() -> None:
    assert "sesame" not in repr(TlsKeys(ssl_key_password="sesame", ssl_keystore_key="sesame"))
