"""One connection to one broker, for code that waits: a Spark task has a thread to itself.

    connect, log in ── send ──> (the broker works) ──> receive       one request under way at a time

Rule 1: what goes wrong on a connection ends it. An answer that nobody waited for would be
taken for the next one's.

Rule 2: a login that nears its end costs the connection, and the next request makes a new one
(`pipeline.source.entrance`).

Rule 3: nothing is believed of a peer's lengths but within `MOST_FRAME_BYTES`.

The protocol is `replication.wire`, as in the client for trio (`replication.client.connection`).
"""

import contextlib
import socket
import ssl
import struct
import time
from math import inf
from typing import Any, Final

import attrs

from pipeline.source.entrance import Entrance
from replication.client.connection import SOFTWARE_NAME, SOFTWARE_VERSION
from replication.client.requests import ClientRequest
from replication.errors import ErrorCode, PeerUnavailableError, ProtocolError
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES
from replication.net.sasl import VERSION as LOGIN_VERSION, LoginRequest
from replication.net.tls import refusal
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import API, ApiKey, api_of
from replication.wire.frames import decode_response, encode_request

MOST_FRAME_BYTES: Final = DEFAULT_MAX_FRAME_BYTES
_LENGTH: Final = struct.Struct(">i")


@attrs.define(eq=False)
class Link:
    """See the module's docstring. PeerUnavailableError and ProtocolError close it."""

    host: str
    port: int
    client_id: str
    connect_timeout_ms: int
    request_timeout_ms: int
    entrance: Entrance = attrs.field(factory=Entrance)
    versions: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict)
    _socket: socket.socket | None = attrs.field(init=False, default=None)
    _waiting: tuple[ApiKey, int, int] | None = attrs.field(init=False, default=None)
    _correlation_id: int = attrs.field(init=False, default=0)
    _login_ends: float = attrs.field(init=False, default=inf)

    def call(self, request: ClientRequest) -> Any:
        self.send(request)
        return self.receive()

    def send(self, request: ClientRequest) -> None:
        """UnsupportedVersionError where the broker serves no version that could say it."""
        if time.monotonic() > self._login_ends and not self.is_busy:
            self.close()
        if self._socket is None:
            self._connect()
        version = request.version_for(self.versions.get(request.api_key))
        self._send(request.api_key, request.build(version), version)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is under way."""
        return self._waiting is not None

    def receive(self) -> Any:
        assert self._waiting is not None, "somebody has asked"
        key, version, asked = self._waiting
        with self._ending():
            frame = self._read_exactly(self._read_length())
            correlation_id, response = decode_response(frame, api_key=key, version=version)
            if correlation_id != asked:
                raise ProtocolError(f"{self} answered request {correlation_id}, not {asked}")
        self._waiting = None
        return response

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._waiting = None, None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def _connect(self) -> None:
        with self._ending():
            timeout = self.connect_timeout_ms / 1000
            self._socket = socket.create_connection((self.host, self.port), timeout)
            self._socket = self.entrance.shake_hands(self._socket, self.host, self.port)
            self._socket.settimeout(self.request_timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._login_ends = time.monotonic() + self.entrance.log_in(
                str(self), self._ask_to_log_in
            )
        self._ask_versions()

    def _ask_to_log_in(self, request: LoginRequest) -> object:
        self._send(api_of(type(request)).key, request, LOGIN_VERSION)
        return self.receive()

    def _ask_versions(self) -> None:
        """KIP-511: the newest question first; a broker too old for it says what it knows."""
        version = API[ApiKey.API_VERSIONS].max_version
        response = self._versions_at(version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
            older = known[0].max_version if known else 0
            response = self._versions_at(max(0, min(older, version - 1)))
        if response.error_code != ErrorCode.NONE:
            self.close()
            error = ErrorCode.of(response.error_code).name
            raise ProtocolError(f"{self} does not say what it serves: {error}")
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def _versions_at(self, version: int) -> Any:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        self._send(ApiKey.API_VERSIONS, request, version)
        return self.receive()

    def _send(self, key: ApiKey, message: object, version: int) -> None:
        assert self._waiting is None, "one request at a time"
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        parts = encode_request(
            message, version=version, correlation_id=self._correlation_id, client_id=self.client_id
        )
        with self._ending():
            assert self._socket is not None, "connected first"
            self._socket.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type] # what consumers ask holds no file regions
        self._waiting = key, version, self._correlation_id

    def _read_length(self) -> int:
        (length,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size))
        if not 0 < length <= MOST_FRAME_BYTES:
            raise ProtocolError(f"{self} announces a response of {length} bytes")
        return int(length)

    def _read_exactly(self, size: int) -> memoryview:
        assert self._socket is not None, "connected first"
        data = memoryview(bytearray(size))
        done = 0
        while done < size:
            count = self._socket.recv_into(data[done:])
            if count == 0:
                raise PeerUnavailableError(f"{self} closed the connection")
            done += count
        return data

    @contextlib.contextmanager
    def _ending(self) -> Any:
        """Rule 1."""
        try:
            yield
        except ssl.SSLError as error:
            # Under TLS 1.3 a broker refuses our certificate when we have shaken hands.
            self.close()
            raise refusal(str(self), error) from error
        except OSError as error:
            self.close()
            raise PeerUnavailableError(f"{self}: {error}") from error
        except BaseException:
            self.close()
            raise
