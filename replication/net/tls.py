"""TLS over any other connection: a socket, or memory in a simulation.

    send_buffers ─> records of at most 16 KiB ─> outgoing ─┐          ┌─> wire
    receive_into <─ plain bytes <─────────────── incoming <┴─ the same connection <─ wire

Rule 1: the first task that sends or receives shakes hands, and so `accept` returns at once: a
peer that connects and sends nothing delays no other.

Rule 2: bytes are encrypted and sent `PIECE_BYTES` at a time, also those of a file region. There is
no sendfile here, and a region of a gigabyte costs one piece.

Rule 3: a receiver may have to answer (TLS 1.3 renews keys in mid-stream), so bytes go out one
task at a time, in the order in which they were encrypted.

Rule 4: as over TCP, a send that did not finish closes its connection.

A refused certificate, the peer's or ours, is an AuthenticationError with the reason in one line.
(Kafka: SslTransportLayer.)

The context of connections is made from configuration keys. A missing file, a key that does not fit
its certificate, or a wrong password is a ConfigError of one line that names the configuration key,
when a node starts.
"""

import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import attrs
import trio

from replication.config.tls import TlsKeys, check_tls, how_to_convert
from replication.errors import AuthenticationError, ConfigError, PeerUnavailableError
from replication.net.regions import region_chunks
from replication.net.seams import Transport
from replication.net.wrapped import WrappedConnection, WrappedListener
from storage.attributes import define
from storage.log.file_region import FileRegion
from storage.types import Buffer

RECORD_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MAGIC = {"JKS": b"\xfe\xed\xfe\xed", "PKCS12": b"\x30\x82"}  # the latter begins a DER sequence
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@define(eq=False)
class TlsConnection(WrappedConnection):
    """A `Connection` over `inner`, under `context`; `host` is the peer that a client expects."""

    context: ssl.SSLContext
    host: str | None = None
    """The expected name of the peer; None at the side that accepted."""
    _incoming: ssl.MemoryBIO = attrs.field(init=False, factory=ssl.MemoryBIO)
    _outgoing: ssl.MemoryBIO = attrs.field(init=False, factory=ssl.MemoryBIO)
    _tls: ssl.SSLObject = attrs.field(init=False)
    _room: memoryview = attrs.field(init=False)
    _shaken: bool = attrs.field(init=False, default=False)
    _shaking: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _flushing: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _sending: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._room = memoryview(bytearray(PIECE_BYTES))
        self._tls = self.context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self.host is None,
            server_hostname=self.host,
        )

    @property
    def peer_subject(self) -> tuple[tuple[tuple[str, str], ...], ...] | None:
        """The subject of the peer's certificate, as `ssl` returns it."""
        certificate = self._tls.getpeercert() if self._shaken else None
        subject: tuple[tuple[tuple[str, str], ...], ...] | None
        subject = certificate.get("subject") if certificate else None  # type: ignore[assignment] # typeshed's union
        return subject

    async def shake_hands(self) -> None:
        """Shake hands, once; AuthenticationError if either side refuses the other."""
        async with self._shaking:
            if self._shaken:
                return
            with self._whole_or_closed():
                await self._until_shaken()
            self._shaken = True

    async def receive_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0, "an empty buffer would make waiting look like the end"
        await trio.lowlevel.checkpoint()
        if not self._shaken:
            await self.shake_hands()
        while True:
            try:
                return self._filled(buffer, self._read(buffer))
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0  # a frame says how long it is: one that is cut short is seen above
            except ssl.SSLError as error:
                self.close()
                raise self._refused(error) from error

    def _filled(self, buffer: memoryview, count: int) -> int:
        """Read what else has been decrypted: a record holds 16 KiB at most."""
        while 0 < count < len(buffer):
            try:
                more = self._read(buffer[count:])
            except ssl.SSLError:
                break  # said again when the next bytes are asked for
            if more == 0:
                break  # the peer has said that this was all, and says it again
            count += more
        return count

    def _read(self, buffer: memoryview) -> int:
        # Into a buffer it says how many; typeshed knows the other way of asking alone.
        return cast("int", self._tls.read(len(buffer), buffer))

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        with self._one_sender():
            if not self._shaken:
                await self.shake_hands()
            for piece in _pieces(buffers):
                await self._send_piece(piece)
            await self._flush()

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return buffers  # encrypted bytes of a receiver may be on their way

    async def send_region(self, region: FileRegion) -> None:
        with self._one_sender():
            if not self._shaken:
                await self.shake_hands()
            for chunk in region_chunks(region, PIECE_BYTES):
                await self._send_piece(chunk)
            await self._flush()

    async def _send_piece(self, piece: Buffer) -> None:
        try:
            self._tls.write(piece)
        except ssl.SSLError as error:  # a receiving task has seen the end
            raise PeerUnavailableError(f"{self.peer} has closed the connection") from error
        if self._outgoing.pending >= PIECE_BYTES:
            await self._flush()

    async def _until_shaken(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except ssl.SSLError as error:
                await self._tell_why()
                raise self._refused(error) from error
            else:
                break
        await self._flush()

    async def _tell_why(self) -> None:
        """Send the peer the reason of our refusal, if it still listens."""
        with suppress(PeerUnavailableError):
            await self._flush()

    async def _flush(self) -> None:
        if not self._outgoing.pending:
            return
        async with self._flushing:
            if encrypted := self._outgoing.read():
                await self.inner.send_buffers([encrypted])

    async def _feed(self) -> None:
        count = await self.inner.receive_into(self._room)
        if count:
            self._incoming.write(self._room[:count])
        else:
            self._incoming.write_eof()

    def _refused(self, error: ssl.SSLError) -> PeerUnavailableError:
        return refusal(self.peer, error)

    @contextmanager
    def _one_sender(self) -> Iterator[None]:
        assert not self._sending, "two tasks may not send on one connection at once"
        self._sending = True
        try:
            with self._whole_or_closed():
                yield
        finally:
            self._sending = False

    @contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def refusal(peer: str, error: ssl.SSLError) -> PeerUnavailableError:
    """Return the error of a failed handshake, for the caller that connects."""
    if isinstance(error, ssl.SSLEOFError):
        return PeerUnavailableError(f"{peer} closed the connection inside a TLS handshake")
    return AuthenticationError(f"no TLS with {peer}: {_in_words(error)}")


def _in_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Join small buffers, since each write makes a record, and cut large ones into pieces."""
    joined = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        if joined and len(joined) + len(view) > RECORD_BYTES:
            yield joined
            joined = bytearray()
        if len(view) < RECORD_BYTES:
            joined += view
            continue
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]
    if joined:
        yield joined


@define(eq=False)
class TlsListener(WrappedListener):
    """A `Listener` whose connections use TLS; each shakes hands when it is first used."""

    context: ssl.SSLContext

    async def accept(self) -> TlsConnection:
        return TlsConnection(await self.inner.accept(), self.context)


@define(eq=False)
class TlsTransport:
    """A `Transport` with TLS, over another one."""

    inner: Transport
    connecting: ssl.SSLContext
    accepting: ssl.SSLContext | None = None
    """The context of accepted connections; None if it only connects."""

    async def listen(self, host: str, port: int) -> TlsListener:
        assert self.accepting is not None, "who listens has a certificate to show"
        return TlsListener(await self.inner.listen(host, port), self.accepting)

    async def connect(self, host: str, port: int) -> TlsConnection:
        connection = TlsConnection(await self.inner.connect(host, port), self.connecting, host)
        try:
            await connection.shake_hands()
        except BaseException:  # it may have been cancelled before it began
            connection.close()
            raise
        return connection


def client_context(keys: TlsKeys) -> ssl.SSLContext:
    """Return the context of connections that we make; a peer may ask for our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = keys.ssl_endpoint_identification_algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    _prepare(context, keys, purpose=ssl.Purpose.SERVER_AUTH)
    return context


def server_context(keys: TlsKeys, *, client_auth: str = "none") -> ssl.SSLContext:
    """Return the context of accepted connections; `client_auth` as in `ssl.client.auth`."""
    check_tls(keys)
    if keys.ssl_keystore_location is None and keys.ssl_keystore_key is None:
        raise ConfigError("ssl.keystore.location is missing: a listener with TLS has a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_AUTH[client_auth]
    context.num_tickets = 0  # sessions are not resumed
    _prepare(context, keys, purpose=ssl.Purpose.CLIENT_AUTH)
    return context


def _prepare(context: ssl.SSLContext, keys: TlsKeys, *, purpose: ssl.Purpose) -> None:
    check_tls(keys)
    spoken = [_VERSIONS[name] for name in keys.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(spoken), max(spoken)
    if context.verify_mode != ssl.CERT_NONE:
        _load_trusted(context, keys, purpose)
    with _own_certificates(keys) as path:
        if path is not None:
            _load_own(context, path, keys)


def _load_trusted(context: ssl.SSLContext, keys: TlsKeys, purpose: ssl.Purpose) -> None:
    try:
        if keys.ssl_truststore_certificates is not None:
            context.load_verify_locations(cadata=keys.ssl_truststore_certificates)
        elif keys.ssl_truststore_location is not None:
            context.load_verify_locations(cafile=keys.ssl_truststore_location)
        else:
            context.load_default_certs(purpose)
    except (OSError, ValueError) as error:
        where = keys.ssl_truststore_location
        name = "certificates" if where is None else f"location={where}"
        why = _of_java(where, trusted=True) or _why(error)
        raise ConfigError(f"ssl.truststore.{name}: {why}") from error


@contextmanager
def _own_certificates(keys: TlsKeys) -> Iterator[str | None]:
    """Provide a file with our key and certificates, from which alone `ssl` reads them."""
    if keys.ssl_keystore_key is None:
        yield keys.ssl_keystore_location
        return
    assert keys.ssl_keystore_certificate_chain is not None, "checked before"
    # Readable by this user alone, and gone before anything is served.
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(keys.ssl_keystore_key.strip() + "\n" + keys.ssl_keystore_certificate_chain)
    try:
        yield file.name
    finally:
        with suppress(OSError):
            Path(file.name).unlink()


def _load_own(context: ssl.SSLContext, path: str, keys: TlsKeys) -> None:
    password = keys.ssl_key_password
    try:
        # Without a password `ssl` would ask the terminal for one.
        context.load_cert_chain(path, password=lambda: password or "")
    except (OSError, ValueError) as error:
        where = keys.ssl_keystore_location
        name = "key" if where is None else f"location={where}"
        why = _of_java(where, trusted=False) or _why(error)
        raise ConfigError(f"ssl.keystore.{name}: {why}") from error


def _of_java(path: str | None, *, trusted: bool) -> str | None:
    """Return the reason for a refused Java store; None if the file is none by its first bytes."""
    try:
        begin = b"" if path is None else Path(path).read_bytes()[:4]
    except OSError:
        return None
    form = next((form for form, magic in _MAGIC.items() if begin.startswith(magic)), None)
    if path is None or form is None:
        return None
    command = how_to_convert(form, path, trusted=trusted)
    return f"it is {form}, and only PEM is read here; make it with `{command}`"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason:
            return error.reason.lower().replace("_", " ")
    elif isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "expected PEM, a private key with its certificates, and its password if it has one"
