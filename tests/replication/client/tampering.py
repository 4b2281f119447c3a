"""A real broker behind a link on which somebody spoils the answers to one API.

    tampering = Tampering(ApiKey.PRODUCE, torn)     the next answers to Produce; then none
    async with Producer(..., seams=tampered(seams, tampering))

    frame from the broker ──> is it one that is to be spoilt? ──> what the client receives

A way to spoil an answer is a function of its frame: what the client is given in its place,
and whether the connection ends after it. `None` in the place of bytes: nothing at all.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import trio

from replication.net.seams import Connection, Listener, Seams, Transport
from replication.net.wrapped import WrappedConnection
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response, encode_response
from storage.log.file_region import FileRegion
from storage.types import Buffer

LENGTH: Final = 4
UNKNOWN_CODE: Final = 9_999
CHANCE: Final = random.Random(11)


@attrs.frozen(kw_only=True)
class Answer:
    """A frame, without its length, and to which request."""

    api_key: ApiKey
    version: int
    frame: bytes

    def changed(self, change: Callable[[Any], None]) -> bytes:
        """The same answer, but for what `change` does to its message."""
        view = memoryview(bytearray(self.frame))
        correlation_id, message = decode_response(view, api_key=self.api_key, version=self.version)
        change(message)
        parts = encode_response(message, version=self.version, correlation_id=correlation_id)
        buffers = [part for part in parts if isinstance(part, bytes | bytearray | memoryview)]
        assert len(buffers) == len(parts), "what was received is in memory"
        return b"".join(buffers)


@attrs.frozen
class Spoilt:
    """The bytes that replace an answer, its length included."""

    data: bytes | None
    then_closes: bool = False


Spoil: TypeAlias = Callable[[Answer], Spoilt]


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH, "big") + frame


def garbage(answer: Answer) -> Spoilt:
    """Return garbage under the right correlation id."""
    return Spoilt(framed(answer.frame[:4] + CHANCE.randbytes(max(len(answer.frame) - 4, 8))))


def torn(answer: Answer) -> Spoilt:
    whole = framed(answer.frame)
    return Spoilt(whole[: len(whole) // 2], then_closes=True)


def cut_short(answer: Answer) -> Spoilt:
    """A frame that ends within its message."""
    return Spoilt(framed(answer.frame[: max(4, len(answer.frame) // 2)]))


def out_of_order(answer: Answer) -> Spoilt:
    """It says that it answers another request."""
    other = int.from_bytes(answer.frame[:4], "big") + 1
    return Spoilt(framed(other.to_bytes(4, "big") + answer.frame[4:]))


def twice(answer: Answer) -> Spoilt:
    return Spoilt(framed(answer.frame) * 2)


def announces_gigabytes(_: Answer) -> Spoilt:
    return Spoilt(b"\x7f\xff\xff\xff")


def silence(_: Answer) -> Spoilt:
    return Spoilt(None)


def hangs_up(_: Answer) -> Spoilt:
    return Spoilt(None, then_closes=True)


def says(code: int) -> Spoil:
    """Every error code of the answer is this one."""

    def spoil(answer: Answer) -> Spoilt:
        return Spoilt(answer.changed(lambda message: _set_codes(message, code)))

    spoil.__name__ = f"says_{code}"
    return spoil


def says_nothing_of_it(answer: Answer) -> Spoilt:
    """Every list of the answer is empty: what was asked about is not in it."""
    return Spoilt(answer.changed(_empty_lists))


def _fields(message: Any) -> list[tuple[str, Any]]:
    return [(each.name, getattr(message, each.name)) for each in attrs.fields(type(message))]


def _set_codes(message: Any, code: int) -> None:
    for name, value in _fields(message):
        if name.endswith("error_code"):
            setattr(message, name, code)
        for each in value if isinstance(value, list) else [value]:
            if attrs.has(type(each)):
                _set_codes(each, code)


def _empty_lists(message: Any) -> None:
    for name, value in _fields(message):
        if isinstance(value, list):
            setattr(message, name, [])


OF_FRAMES: Final[tuple[Spoil, ...]] = (
    garbage,
    torn,
    cut_short,
    out_of_order,
    twice,
    announces_gigabytes,
    silence,
    hangs_up,
)
"""These are no answers: nobody knows what became of the request."""


@attrs.define(eq=False)
class Tampering:
    """The ways of spoiling the next answers to one API; later ones pass."""

    api_key: ApiKey
    coming: list[Spoil]
    for_ever: Spoil | None = None
    spoilt: int = attrs.field(default=0, init=False)

    def of(self, answer: Answer) -> Spoilt:
        if answer.api_key is not self.api_key or not (self.coming or self.for_ever):
            return Spoilt(framed(answer.frame))
        self.spoilt += 1
        spoil = self.coming.pop(0) if self.coming else self.for_ever
        assert spoil is not None, "there is one of the two"
        return spoil(answer)


@attrs.define(eq=False)
class _TamperedConnection(WrappedConnection):
    tampering: Tampering
    _asked: deque[tuple[ApiKey, int]] = attrs.field(factory=deque, init=False)
    _out: bytearray = attrs.field(factory=bytearray, init=False)
    _in: bytearray = attrs.field(factory=bytearray, init=False)
    _ready: bytearray = attrs.field(factory=bytearray, init=False)
    _ends: bool = attrs.field(default=False, init=False)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._out += bytes(buffer)
        while (frame := _take_frame(self._out)) is not None:
            key, version = ApiKey(int.from_bytes(frame[:2], "big")), frame[3]
            self._asked.append((key, version))
        await self.inner.send_buffers(buffers)

    async def send_region(self, region: FileRegion) -> None:
        raise AssertionError("clients send no files")

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._ready and not self._ends:
            room = memoryview(bytearray(1 << 16))
            count = await self.inner.receive_into(room)
            self._ends = not count
            self._in += room[:count]
            self._take_in()
        await trio.lowlevel.checkpoint()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        del self._ready[:count]
        return count

    def _take_in(self) -> None:
        while not self._ends and (frame := _take_frame(self._in)) is not None:
            key, version = self._asked.popleft()
            spoilt = self.tampering.of(Answer(api_key=key, version=version, frame=frame))
            self._ready += spoilt.data or b""
            self._ends = spoilt.then_closes


def _take_frame(stream: bytearray) -> bytes | None:
    if len(stream) < LENGTH:
        return None
    size = int.from_bytes(stream[:LENGTH], "big")
    if len(stream) < LENGTH + size:
        return None
    frame = bytes(stream[LENGTH : LENGTH + size])
    del stream[: LENGTH + size]
    return frame


@attrs.define(eq=False)
class _TamperedTransport:
    inner: Transport
    tampering: Tampering

    async def listen(self, host: str, port: int) -> Listener:
        return await self.inner.listen(host, port)

    async def connect(self, host: str, port: int) -> Connection:
        return _TamperedConnection(await self.inner.connect(host, port), self.tampering)


def tampered(seams: Seams, tampering: Tampering) -> Seams:
    return attrs.evolve(seams, transport=_TamperedTransport(seams.transport, tampering))
