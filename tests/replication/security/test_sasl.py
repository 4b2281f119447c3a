"""The order of a login, and PLAIN."""

import pytest

from replication.security.rules.sasl import (
    PLAIN,
    PlainClient,
    PlainServer,
    SaslServer,
    SaslState,
    client_mechanism,
    server_mechanisms,
)
from replication.security.rules.scram import SHA_256, LoginFailedError, ScramCredential

CREDENTIAL = ScramCredential.of(SHA_256, password="sesame", salt=b"salt")


def sasl() -> SaslServer:
    mechanisms = server_mechanisms(
        (PLAIN, SHA_256),
        plain_users={"alice": "sesame", "bob": "open"},
        credential_of=lambda name, _: CREDENTIAL if name == "alice" else None,
        new_nonce=lambda: "server",
    )
    return SaslServer(mechanisms)


def log_in(server: SaslServer, mechanism: str, name: str, password: str) -> None:
    assert server.handshake(mechanism)
    client = client_mechanism(mechanism, username=name, password=password, nonce="client")
    token = client.first()
    while not client.done:
        token = client.respond(server.authenticate(token))


@pytest.mark.parametrize("mechanism", [PLAIN, SHA_256])
def test_a_login_ends_with_a_name(mechanism: str) -> None:
    server = sasl()
    log_in(server, mechanism, "alice", "sesame")
    assert server.username == "alice"
    assert server.state is SaslState.DONE


@pytest.mark.parametrize("mechanism", [PLAIN, SHA_256])
@pytest.mark.parametrize(("name", "password"), [("alice", "x"), ("carol", "sesame")])
def test_a_wrong_password_and_a_wrong_name_have_the_same_answer(
    mechanism: str, name: str, password: str
) -> None:
    server = sasl()
    with pytest.raises(LoginFailedError, match=r"[Ii]nvalid") as failed:
        log_in(server, mechanism, name, password)
    assert name not in str(failed.value)
    assert server.state is SaslState.FAILED
    assert server.username is None


def test_a_mechanism_that_is_not_offered_is_the_end() -> None:
    server = sasl()
    assert not server.handshake("GSSAPI")
    assert server.state is SaslState.FAILED


def test_a_second_handshake_inside_a_login_is_the_end() -> None:
    server = sasl()
    server.handshake(PLAIN)
    assert not server.handshake(PLAIN)
    assert server.state is SaslState.FAILED


def test_a_login_is_renewed_by_the_same_user_and_mechanism_alone() -> None:
    server = sasl()
    log_in(server, PLAIN, "alice", "sesame")
    log_in(server, PLAIN, "alice", "sesame")
    assert server.state is SaslState.DONE
    assert not server.handshake(SHA_256)
    other = sasl()
    log_in(other, PLAIN, "alice", "sesame")
    with pytest.raises(LoginFailedError, match="Cannot change principals"):
        log_in(other, PLAIN, "bob", "open")
    assert other.state is SaslState.FAILED
    assert other.username == "alice"


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0alice\0", b"\0\0sesame", b"\xff\0a\0b", b"a\0b\0c\0d"]
)
def test_plain_takes_a_name_and_a_password_and_nothing_else(token: bytes) -> None:
    with pytest.raises(LoginFailedError):
        PlainServer({"alice": "sesame", "": ""}).respond(token)


def test_plain_refuses_another_authorization_id() -> None:
    with pytest.raises(LoginFailedError, match="authorization id"):
        PlainServer({"alice": "sesame"}).respond(b"bob\0alice\0sesame")
    assert PlainServer({"alice": "sesame"}).respond(b"alice\0alice\0sesame") == b""
    assert PlainClient("alice", "sesame").first() == b"\0alice\0sesame"
