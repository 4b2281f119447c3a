"""Standard input and output as bytes, in a trio program.

A read or a write may block for any time, so it is done in a thread while heartbeats go on. Nothing
is buffered here: when `write` returns, the bytes are out.
"""

import io
import os
import sys
from typing import BinaryIO

import trio

from replication.cli.output import CommandError
from storage.attributes import define

CHUNK = 1 << 16


@define(eq=False)
class StandardInput:
    """Standard input."""

    _descriptor: int | None
    """The file descriptor; None if the stream has none, as in a test."""

    @classmethod
    def standard(cls) -> "StandardInput":
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return cls(_descriptor_of(sys.stdin.buffer))

    async def read(self) -> bytes:
        """Wait for bytes and return them; return nothing at the end. Can be cancelled."""
        if self._descriptor is None:
            return sys.stdin.buffer.read(CHUNK)
        return await trio.to_thread.run_sync(
            os.read, self._descriptor, CHUNK, abandon_on_cancel=True
        )


@define(eq=False)
class StandardOutput:
    """Standard output."""

    _descriptor: int | None

    @classmethod
    def standard(cls) -> "StandardOutput":
        if sys.stdout is None:
            raise CommandError("standard output is closed")
        sys.stdout.flush()
        return cls(_descriptor_of(sys.stdout.buffer))

    @property
    def is_terminal(self) -> bool:
        return self._descriptor is not None and os.isatty(self._descriptor)

    async def write(self, data: bytes) -> None:
        """Write all of `data`, even if cancelled, so that no record of a consumer is lost."""
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
