"""Standard input and output as bytes, read and written beside a trio program.

A read or a write may block for as long as a person or the other end of a pipe likes: it is done
in a thread, so that heartbeats go on. Nothing is buffered here: what was written is out.
"""

import io
import os
import sys
from typing import BinaryIO

import attrs
import trio

from replication.cli.output import CommandError

CHUNK = 1 << 16


@attrs.define(eq=False)
class Source:
    """Standard input."""

    _descriptor: int | None
    """None where it is an object of this process, as in a test."""

    @classmethod
    def standard(cls) -> "Source":
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return cls(_descriptor_of(sys.stdin.buffer))

    async def read(self) -> bytes:
        """What there is, once there is some; nothing at the end. Can be cancelled."""
        if self._descriptor is None:
            return sys.stdin.buffer.read(CHUNK)
        return await trio.to_thread.run_sync(
            os.read, self._descriptor, CHUNK, abandon_on_cancel=True
        )


@attrs.define(eq=False)
class Sink:
    """Standard output."""

    _descriptor: int | None

    @classmethod
    def standard(cls) -> "Sink":
        if sys.stdout is None:
            raise CommandError("standard output is closed")
        sys.stdout.flush()
        return cls(_descriptor_of(sys.stdout.buffer))

    @property
    def is_terminal(self) -> bool:
        return self._descriptor is not None and os.isatty(self._descriptor)

    async def write(self, data: bytes) -> None:
        """All of it; cancelled, it writes on: what was taken from a consumer is not lost."""
        with trio.CancelScope(shield=True):
            if self._descriptor is None:
                sys.stdout.buffer.write(data)
                await trio.lowlevel.checkpoint()
            else:
                await trio.to_thread.run_sync(_write_all, self._descriptor, data)


def _descriptor_of(stream: BinaryIO) -> int | None:
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
