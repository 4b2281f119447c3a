"""SCRAM, against the RFCs' own examples, and against other people's clients."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

from replication.security.rules.scram import (
    SHA_256,
    SHA_512,
    LoginFailedError,
    ScramClient,
    ScramCredential,
    ScramServer,
)

# RFC 7677, section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

CREDENTIAL = ScramCredential.of(SHA_256, password="pencil", salt=SALT)


def server(
    mechanism: str = SHA_256, credential: ScramCredential | None = CREDENTIAL
) -> ScramServer:
    return ScramServer(mechanism, lambda name: credential if name else None, SERVER_NONCE)


def test_a_server_sends_the_messages_of_the_rfc() -> None:
    there = server()
    assert there.respond(CLIENT_FIRST) == SERVER_FIRST
    assert there.respond(CLIENT_FINAL) == SERVER_FINAL
    assert there.proved
    assert there.username == "user"


def test_a_client_sends_the_messages_of_the_rfc() -> None:
    here = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert here.first() == CLIENT_FIRST
    assert here.respond(SERVER_FIRST) == CLIENT_FINAL
    assert here.respond(SERVER_FINAL) == b""
    assert here.done


def run(here: ScramClient, there: ScramServer) -> None:
    token = here.first()
    while not here.done:
        token = here.respond(there.respond(token))


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(
    mechanism=st.sampled_from([SHA_256, SHA_512]),
    name=NAMES,
    password=NAMES,
    other=NAMES,
    salt=st.binary(min_size=1, max_size=20),
)
def test_a_login_needs_the_password(
    mechanism: str, name: str, password: str, other: str, salt: bytes
) -> None:
    credential = ScramCredential.of(mechanism, password=password, salt=salt)
    known = {name: credential}
    there = ScramServer(mechanism, known.get, "server")
    run(ScramClient(mechanism, name, password, "client"), there)
    assert there.username == name
    guess = ScramServer(mechanism, known.get, "server")
    if other != password:
        with pytest.raises(LoginFailedError, match="invalid credentials"):
            run(ScramClient(mechanism, name, other, "client"), guess)
        assert not guess.proved
    if other != name:
        with pytest.raises(LoginFailedError, match="invalid credentials"):
            run(
                ScramClient(mechanism, other, password, "client"),
                ScramServer(mechanism, known.get, "s"),
            )


@settings(max_examples=10, deadline=None)
@given(mechanism=st.sampled_from([SHA_256, SHA_512]), password=NAMES)
def test_kafka_pythons_client_is_understood(mechanism: str, password: str) -> None:
    credential = ScramCredential.of(mechanism, password=password, salt=b"salt")
    there = server(mechanism, credential)
    theirs = KafkaPythonClient("alice", password, mechanism)
    theirs.process_server_first_message(there.respond(theirs.first_message()))
    theirs.process_server_final_message(there.respond(theirs.final_message()))
    assert there.username == "alice"


def changed(message: bytes, old: bytes, new: bytes) -> bytes:
    assert old in message
    return message.replace(old, new)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "expected a client's first message"),
        (b"\xff", "expected UTF-8"),
        (b"y,,n=user,r=x", "expected a client's first message"),
        (b"p=tls-unique,,n=user,r=x", "expected a client's first message"),
        (b"n,,n=us=er,r=x", "expected =2C and =3D"),
        (b"n,a=other,n=user,r=x", "authorization id"),
        (b"n,,n=user,r=x,tokenauth=true", "no delegation tokens"),
    ],
)
def test_a_first_message_that_is_not_one_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(LoginFailedError, match=why):
        server().respond(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"x", "expected a client's final message"),
        (changed(CLIENT_FINAL, b"biws", b"eSws"), "another server's"),
        (changed(CLIENT_FINAL, b"r=rOpr", b"r=xOpr"), "another server's"),
        (changed(CLIENT_FINAL, b"p=dHz", b"p=dHy"), "invalid credentials"),
        (changed(CLIENT_FINAL, b"AndVQ=", b"An"), "another length"),
        (changed(CLIENT_FINAL, b"AndVQ=", b"AndV"), "expected base64"),
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(message: bytes, why: str) -> None:
    there = server()
    there.respond(CLIENT_FIRST)
    with pytest.raises(LoginFailedError, match=why):
        there.respond(message)
    assert not there.proved


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda _: b"x", "expected a server's first message"),
        (lambda first: changed(first, b"r=rOpr", b"r=xOpr"), "another client"),
        (lambda first: changed(first, b"i=4096", b"i=1"), "asks for 1 iterations"),
        (lambda first: changed(first, b"i=4096", b"i=999999999"), "asks for 999999999"),
    ],
)
def test_a_client_refuses_a_server_with_few_iterations(
    spoil: Callable[[bytes], bytes], why: str
) -> None:
    here = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    with pytest.raises(LoginFailedError, match=why):
        here.respond(spoil(SERVER_FIRST))


def test_a_client_believes_no_server_that_does_not_know_its_password() -> None:
    for final, why in [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"e=other-error", "other-error"),
        (b"", "final message"),
    ]:
        here = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
        here.respond(SERVER_FIRST)
        with pytest.raises(LoginFailedError, match=why):
            here.respond(final)
        assert not here.done


def test_keys_and_passwords_are_not_shown() -> None:
    shown = repr(CREDENTIAL) + repr(ScramClient(SHA_256, "u", "pencil", "n"))
    assert "pencil" not in shown
    assert "stored_key" not in shown
