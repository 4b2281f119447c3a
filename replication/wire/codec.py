"""From a declaration (`schema`) to the two functions that write and read one version.

A message version is compiled on first use, to the source a patient person would write by
hand: neighbouring fields of fixed size in one `struct` call, nested structs in line,
an array of fixed-size structs as one comprehension, the tagged section out of the way:

    def decode(frame, position, end):                    # FetchRequest v6, abridged
        m0 = new(FetchRequest)
        m0.replica_id, m0.max_wait_ms, ..., n1, = unpack_from_iiiibi(frame, position)
        position += 21
        if not 0 <= n1 <= (end - position) // 6: raise bad_length("topics", n1, end - position)
        m0.topics = a1 = []
        for _ in range(n1): ...

Rule 1: a count is held against the bytes that are left (each item has a least size)
before anything is made for it, a length before anything is sliced. What a frame makes us
allocate is bounded by what it carries.

Rule 2: nothing but ProtocolError leaves `decode`. Bytes after the last field are ignored,
as Kafka does; unknown tags are skipped; null where the version allows none is an error.

Rule 3: records are not touched. Reading hands out views of the frame; writing gives them
back as parts of their own, between the joined rest.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from replication.errors import ProtocolError
from replication.wire.decoder_source import decoder_source
from replication.wire.encoder_source import encoder_source
from replication.wire.schema import Part

Message = TypeVar("Message")
Encoder: TypeAlias = Callable[[Any], list[Part]]
Decoder: TypeAlias = Callable[[memoryview, int, int], tuple[Any, int]]

_ENCODERS: dict[tuple[type, int, bool], Encoder] = {}
_DECODERS: dict[tuple[type, int, bool], Decoder] = {}


def encode(message: object, *, version: int, flexible: bool) -> list[Part]:
    """The parts of `message` at `version`; empty for a message without fields."""
    return encoder(type(message), version, flexible=flexible)(message)


def decode(
    kind: type[Message], frame: memoryview, position: int = 0, *, version: int, flexible: bool
) -> Message:
    """The message of class `kind` that stands at `position`; ProtocolError if none does."""
    try:
        message, _ = decoder(kind, version, flexible=flexible)(frame, position, len(frame))
    except (struct.error, IndexError, UnicodeDecodeError) as broken:
        raise ProtocolError(f"not a {kind.__name__} v{version}: {broken}") from broken
    assert isinstance(message, kind)
    return message


def encoder(kind: type[Any], version: int, *, flexible: bool) -> Encoder:
    """The function that writes `kind` at `version`."""
    if (known := _ENCODERS.get((kind, version, flexible))) is not None:
        return known
    source, names = encoder_source(kind, version, flexible=flexible)
    compiled: Encoder = _compile(f"{kind.__name__} v{version} encoder", source, names)["encode"]
    _ENCODERS[kind, version, flexible] = compiled
    return compiled


def decoder(kind: type[Any], version: int, *, flexible: bool) -> Decoder:
    """The function that reads `kind` at `version`."""
    if (known := _DECODERS.get((kind, version, flexible))) is not None:
        return known
    source, names = decoder_source(kind, version, flexible=flexible)
    compiled: Decoder = _compile(f"{kind.__name__} v{version} decoder", source, names)["decode"]
    _DECODERS[kind, version, flexible] = compiled
    return compiled


def _compile(title: str, source: str, names: dict[str, Any]) -> dict[str, Any]:
    # The source is made of declared names alone; nothing off the wire ever reaches it.
    exec(compile(source, f"<{title}>", "exec"), names)  # noqa: S102
    return names
