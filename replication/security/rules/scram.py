"""SCRAM-SHA-256 and -512: a client proves its password without sending it (RFC 5802, 7677).

    client                                                        server
    n,,n=alice,r=ABC                 ── client-first ──>          knows alice's credential
                                     <── server-first ──          r=ABCXYZ,s=salt,i=4096
    c=biws,r=ABCXYZ,p=proof          ── client-final ──>          H(proof ^ signature) = stored key?
                                     <── server-final ──          v=signature of the server

    salted password = PBKDF2(password, salt, iterations)
    stored key      = H(HMAC(salted password, "Client Key"))      all that a server keeps:
    server key      = HMAC(salted password, "Server Key")         neither gives the password

Rule 1: each side checks the other's messages strictly. The login fails if a message does not have
the form of the RFC, does not continue the own nonce, or has fewer than 4096 iterations.

Rule 2: names and passwords are plain UTF-8 without SASLprep, as in Kafka (ScramFormatter).
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

import attrs

from storage.attributes import define, frozen

SHA_256 = "SCRAM-SHA-256"
SHA_512 = "SCRAM-SHA-512"
SCRAM_NUMBERS = {1: SHA_256, 2: SHA_512}
"""The mechanisms by their numbers in messages and records (clients.admin.ScramMechanism)."""
_HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
SALT_BYTES = 20
MINIMUM_ITERATIONS = 4096
MAXIMUM_ITERATIONS = 16384
"""The most iterations of a credential (ScramMechanism, KIP-554)."""
_MOST_ITERATIONS_OF_A_SERVER = 10_000_000  # a larger number would only occupy the client

_CLIENT_FIRST = re.compile(
    r"n,(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+))((?:,[^,]+=[^,]*)*)"
)
_SERVER_FIRST = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9]\d{0,8})(?:,.*)?"
)
_CLIENT_FINAL = re.compile(
    r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[^,]+)*),p=([A-Za-z0-9+/=]+)"
)
_SERVER_FINAL = re.compile(r"(?:e=([^,]+)|v=([A-Za-z0-9+/=]+))(?:,.*)?")


class LoginFailedError(Exception):
    """A login has failed; the message may be shown to the peer."""


@frozen
class ScramCredential:
    """The data that a server keeps instead of a password."""

    salt: bytes
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: str, *, salt: bytes, salted_password: bytes, iterations: int
    ) -> "ScramCredential":
        client_key = _hmac(mechanism, salted_password, b"Client Key")
        return cls(
            salt=salt,
            stored_key=_hash(mechanism, client_key),
            server_key=_hmac(mechanism, salted_password, b"Server Key"),
            iterations=iterations,
        )

    @classmethod
    def of(
        cls, mechanism: str, *, password: str, salt: bytes, iterations: int = MINIMUM_ITERATIONS
    ) -> "ScramCredential":
        salted = salted_password(mechanism, password=password, salt=salt, iterations=iterations)
        return cls.of_salted(mechanism, salt=salt, salted_password=salted, iterations=iterations)


def salted_password(mechanism: str, *, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


@define
class ScramServer:
    """The side that knows a credential; `respond` to each token until `username` is proved."""

    mechanism: str
    credential_of: Callable[[str], ScramCredential | None]
    nonce: str
    username: str = attrs.field(init=False, default="")
    proved: bool = attrs.field(init=False, default=False)
    _credential: ScramCredential | None = attrs.field(init=False, default=None, repr=False)
    _messages: str = attrs.field(init=False, default="")
    _header: str = attrs.field(init=False, default="")
    _whole_nonce: str = attrs.field(init=False, default="")

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a token; raise LoginFailedError if the login has failed."""
        assert not self.proved, "the login is complete"
        message = _text(token)
        if self._credential is None:
            return self._first(message).encode()
        return self._final(message, self._credential).encode()

    def _first(self, message: str) -> str:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise LoginFailedError(f"{self.mechanism}: expected a client's first message")
        authorization, bare, name, nonce, extensions = found.groups()
        self.username = _unescaped(name)
        if authorization and _unescaped(authorization) != self.username:
            raise LoginFailedError("Client requested an authorization id that is not its username")
        if "tokenauth=true" in (extensions or ""):
            raise LoginFailedError("there are no delegation tokens here")
        credential = self.credential_of(self.username)
        if credential is None:
            raise self._wrong()
        self._credential = credential
        self._header = message[: found.start(2)]
        self._whole_nonce = nonce + self.nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._whole_nonce},s={salt},i={credential.iterations}"
        self._messages = f"{bare}{extensions or ''},{answer}"
        return answer

    def _final(self, message: str, credential: ScramCredential) -> str:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise LoginFailedError(f"{self.mechanism}: expected a client's final message")
        without_proof, binding, nonce, proof = found.groups()
        if nonce != self._whole_nonce or _bytes(binding) != self._header.encode():
            raise LoginFailedError(f"{self.mechanism}: this answers another server's message")
        spoken = f"{self._messages},{without_proof}".encode()
        signature = _hmac(self.mechanism, credential.stored_key, spoken)
        client_key = _xor(_bytes(proof), signature)
        if not hmac.compare_digest(_hash(self.mechanism, client_key), credential.stored_key):
            raise self._wrong()
        self.proved = True
        return (
            "v=" + base64.b64encode(_hmac(self.mechanism, credential.server_key, spoken)).decode()
        )

    def _wrong(self) -> LoginFailedError:
        return LoginFailedError(
            f"Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self.mechanism}"
        )


@define
class ScramClient:
    """The side that knows a password: `first`, then `respond` to each token until `done`."""

    mechanism: str
    username: str
    password: str = attrs.field(repr=False)
    nonce: str
    done: bool = attrs.field(init=False, default=False)
    _signature: bytes = attrs.field(init=False, default=b"", repr=False)

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a token; b"" once the server has proved itself, which sets `done`."""
        assert not self.done, "the login is complete"
        message = _text(token)
        return self._check(message) if self._signature else self._final(message)

    @property
    def _bare(self) -> str:
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    def _final(self, message: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(message)
        if found is None:
            raise LoginFailedError(f"{self.mechanism}: expected a server's first message")
        nonce, salt, iterations = found[1], _bytes(found[2]), int(found[3])
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise LoginFailedError(f"{self.mechanism}: the server answers another client")
        if not MINIMUM_ITERATIONS <= iterations <= _MOST_ITERATIONS_OF_A_SERVER:
            raise LoginFailedError(
                f"{self.mechanism}: the server asks for {iterations} iterations;"
                f" expected at least {MINIMUM_ITERATIONS}"
            )
        salted = salted_password(
            self.mechanism, password=self.password, salt=salt, iterations=iterations
        )
        credential = ScramCredential.of_salted(
            self.mechanism, salt=salt, salted_password=salted, iterations=iterations
        )
        without_proof = f"c=biws,r={nonce}"
        spoken = f"{self._bare},{message},{without_proof}".encode()
        client_key = _hmac(self.mechanism, salted, b"Client Key")
        proof = _xor(client_key, _hmac(self.mechanism, credential.stored_key, spoken))
        self._signature = _hmac(self.mechanism, credential.server_key, spoken)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, message: str) -> bytes:
        found = _SERVER_FINAL.fullmatch(message)
        if found is None:
            raise LoginFailedError(f"{self.mechanism}: expected a server's final message")
        if found[1] is not None:
            raise LoginFailedError(f"{self.mechanism}: {found[1]}")
        if not hmac.compare_digest(_bytes(found[2]), self._signature):
            raise LoginFailedError(f"{self.mechanism}: the server does not know the password")
        self.done = True
        return b""


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise LoginFailedError("expected UTF-8") from error


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise LoginFailedError("expected base64") from error


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise LoginFailedError("expected =2C and =3D for a comma and an equals sign in a name")
    return name.replace("=2C", ",").replace("=3D", "=")


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(_HASHES[mechanism], data).digest()


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, _HASHES[mechanism])


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise LoginFailedError("the proof has another length")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
