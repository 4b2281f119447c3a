"""One connection to one broker for a thread that may wait: a Spark task, or a command.

    connect, log in ── send ──> (the broker works) ──> receive       one request under way at a time

The framing, the login and the requests are those of every connection (`replication.net`). Their
coroutines are driven to the end here by `_finish`: they wait for nothing but the socket, and the
socket blocks. So no trio loop is needed: Spark starts its executors' Python processes itself, and
runs tasks in their main threads.

Rule 1: an error on a connection closes it. A response without a caller would be taken for
the next request's.

Rule 2: a login may be good for a while only (`connections.max.reauth.ms`, KIP-368). It is not
renewed here: when it nears its end, the next request makes a new connection.
"""

import secrets
import socket
import ssl
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Final, Self, TypeVar

import attrs

from replication.client.requests import ClientRequest
from replication.config.security import Introduction, Login, uses_tls
from replication.errors import PeerUnavailableError
from replication.net.exchange import Exchange, SentRequest, Versions, ask_versions
from replication.net.framing import FrameReader, send_parts
from replication.net.regions import region_bytes
from replication.net.sasl import NONCE_BYTES, VERSION as LOGIN_VERSION, LogIn, LoginRequest
from replication.net.tls import client_context, refusal
from storage.attributes import define, frozen
from storage.log.file_region import FileRegion
from storage.types import Buffer

_USED_OF_LIFETIME: Final = 0.9

_T = TypeVar("_T")


@frozen(eq=False)
class Credentials:
    """The TLS context and the login of all connections to one cluster; neither by default."""

    context: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, introduction: Introduction) -> Self:
        """Read the files of keys; raise ConfigError if they cannot be used."""
        context = client_context(introduction.tls) if uses_tls(introduction.protocol) else None
        return cls(context, introduction.login)


@frozen(eq=False)
class _SocketConnection:
    """A `Connection` whose methods return when the blocking socket has done its work."""

    peer: str
    socket: socket.socket
    moved: int = 0
    gathers_up_to: int = 0

    async def receive_into(self, buffer: memoryview) -> int:
        return self.socket.recv_into(buffer)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.socket.sendall(b"".join(buffers))

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        self.socket.sendall(b"".join(buffers))
        return ()

    async def send_region(self, region: FileRegion) -> None:
        self.socket.sendall(region_bytes(region))

    def close(self) -> None:
        self.socket.close()


@define(eq=False)
class _Opened:
    """The state of one socket, dropped with it."""

    connection: _SocketConnection
    frames: FrameReader
    exchange: Exchange
    login_ends: float = inf
    waiting: SentRequest | None = None


@define(eq=False)
class BlockingConnection:
    """Sends requests and receives responses, one at a time; it connects when it is first used.

    PeerUnavailableError and ProtocolError close it; the next request connects again.
    """

    host: str
    port: int
    client_id: str = attrs.field(kw_only=True)
    connect_timeout_ms: int = attrs.field(kw_only=True)
    request_timeout_ms: int = attrs.field(kw_only=True)
    credentials: Credentials = attrs.field(factory=Credentials, kw_only=True)
    versions: Versions = attrs.field(init=False, factory=dict)
    _opened: _Opened | None = attrs.field(init=False, default=None)

    @property
    def is_busy(self) -> bool:
        """Whether a response is awaited."""
        return self._opened is not None and self._opened.waiting is not None

    def call(self, request: ClientRequest) -> Any:
        self.send(request)
        return self.receive()

    def send(self, request: ClientRequest) -> None:
        """Send `request` in the newest version that the broker serves.

        UnsupportedVersionError if it serves no version that can carry the request.
        """
        opened = self._opened
        if opened is not None and opened.waiting is None and time.monotonic() > opened.login_ends:
            self.close()
        if self._opened is None:
            self._connect()
            with self._closing_on_error():
                self.versions, _ = _finish(ask_versions(str(self), self._exchange))
        version = request.version_for(self.versions.get(request.api_key))
        self._send(request.build(version), version)

    def receive(self) -> Any:
        opened = self._opened
        assert opened is not None, "a request was sent first"
        assert opened.waiting is not None, "a request was sent first"
        with self._closing_on_error():
            frame = _finish(opened.frames.receive_frame())
            if frame is None:
                raise PeerUnavailableError(f"{self} closed the connection")
            response = opened.exchange.read(opened.waiting, frame)
        opened.waiting = None
        return response

    def ask_in(self, version: int, message: object) -> Any:
        """Return the response to `message` in `version`, whatever versions the broker serves."""
        if self._opened is None:
            self._connect()
        self._send(message, version)
        return self.receive()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.connection.close()
        self._opened = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def _connect(self) -> None:
        with self._closing_on_error():
            timeout = self.connect_timeout_ms / 1000
            connected = socket.create_connection((self.host, self.port), timeout)
            if self.credentials.context is not None:
                connected = self.credentials.context.wrap_socket(
                    connected, server_hostname=self.host
                )
            connected.settimeout(self.request_timeout_ms / 1000)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _SocketConnection(str(self), connected)
        self._opened = _Opened(
            connection, FrameReader(connection), Exchange(str(self), self.client_id)
        )
        self._opened.login_ends = self._log_in(self.credentials.login)

    def _log_in(self, login: Login | None) -> float:
        """Return the moment until which the login is used; AuthenticationError if it is refused."""
        if login is None:
            return inf

        async def ask(request: LoginRequest) -> object:
            return await self._exchange(request, LOGIN_VERSION)

        nonce = secrets.token_hex(NONCE_BYTES)
        with self._closing_on_error():
            lifetime_ms = _finish(LogIn(str(self), login, ask, nonce, again=False).run())
        return time.monotonic() + lifetime_ms / 1000 * _USED_OF_LIFETIME if lifetime_ms > 0 else inf

    async def _exchange(self, message: object, version: int) -> object:
        self._send(message, version)
        return self.receive()

    def _send(self, message: object, version: int) -> None:
        opened = self._opened
        assert opened is not None, "connected first"
        assert opened.waiting is None, "one request at a time"
        call = opened.exchange.number(message, version)
        parts = opened.exchange.frame(call, message)
        with self._closing_on_error():
            _finish(send_parts(opened.connection, parts))
        opened.waiting = call

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """Close the connection if the block raises (rule 1)."""
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


def _finish(steps: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("only the socket is waited for, and it blocks")
