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

Rule 3: what is long is read and written in steps (`replication.steps`), by the same source with
pauses in it. The answers of one are those of the other.

Rule 4: records are not touched. Reading hands out views of the frame; writing gives them
back as parts of their own, between the joined rest.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from replication.errors import ProtocolError
from replication.steps import Steps
from replication.wire.decoder_source import decoder_source
from replication.wire.encoder_source import encoder_source
from replication.wire.schema import Part

Message = TypeVar("Message")
Encoder: TypeAlias = Callable[[Any], list[Part]]
Decoder: TypeAlias = Callable[[memoryview, int, int], tuple[Any, int]]
EncoderInSteps: TypeAlias = Callable[[Any], Steps[list[Part]]]
DecoderInSteps: TypeAlias = Callable[[memoryview, int, int, int], Steps[tuple[Any, int]]]

_ENCODERS: dict[tuple[type, int, bool], Encoder] = {}
_DECODERS: dict[tuple[type, int, bool], Decoder] = {}
_ENCODERS_IN_STEPS: dict[tuple[type, int, bool], EncoderInSteps] = {}
_DECODERS_IN_STEPS: dict[tuple[type, int, bool], DecoderInSteps] = {}
_BROKEN = (struct.error, IndexError, UnicodeDecodeError)


def encode(message: object, *, version: int, flexible: bool) -> list[Part]:
    """Return the parts of `message` at `version`; none for a message without fields."""
    return encoder(type(message), version, flexible=flexible)(message)


def encode_in_steps(message: object, *, version: int, flexible: bool) -> Steps[list[Part]]:
    """Return the same parts, cut smaller."""
    return encoder_in_steps(type(message), version, flexible=flexible)(message)


def decode(
    kind: type[Message], frame: memoryview, position: int = 0, *, version: int, flexible: bool
) -> Message:
    """Return the message of class `kind` at `position`; raise ProtocolError if none is there."""
    try:
        message, _ = decoder(kind, version, flexible=flexible)(frame, position, len(frame))
    except _BROKEN as broken:
        raise ProtocolError(f"not a {kind.__name__} v{version}: {broken}") from broken
    assert isinstance(message, kind)
    return message


def decode_in_steps(
    kind: type[Message],
    frame: memoryview,
    position: int = 0,
    *,
    version: int,
    flexible: bool,
    most_items: int,
) -> Steps[Message]:
    """Return the same message; raise ProtocolError where its arrays have too many items, too."""
    read = decoder_in_steps(kind, version, flexible=flexible)
    try:
        message, _ = yield from read(frame, position, len(frame), most_items)
    except _BROKEN as broken:
        raise ProtocolError(f"not a {kind.__name__} v{version}: {broken}") from broken
    assert isinstance(message, kind)
    return message


def encoder(kind: type[Any], version: int, *, flexible: bool) -> Encoder:
    """Return the function that writes `kind` at `version`."""
    if (known := _ENCODERS.get((kind, version, flexible))) is not None:
        return known
    source, names = encoder_source(kind, version, flexible=flexible)
    compiled: Encoder = _compile(f"{kind.__name__} v{version} encoder", source, names)["encode"]
    _ENCODERS[kind, version, flexible] = compiled
    return compiled


def encoder_in_steps(kind: type[Any], version: int, *, flexible: bool) -> EncoderInSteps:
    """Return the generator function that writes `kind` at `version`."""
    if (known := _ENCODERS_IN_STEPS.get((kind, version, flexible))) is not None:
        return known
    source, names = encoder_source(kind, version, flexible=flexible, in_steps=True)
    title = f"{kind.__name__} v{version} encoder in steps"
    compiled: EncoderInSteps = _compile(title, source, names)["encode"]
    _ENCODERS_IN_STEPS[kind, version, flexible] = compiled
    return compiled


def decoder(kind: type[Any], version: int, *, flexible: bool) -> Decoder:
    """Return the function that reads `kind` at `version`."""
    if (known := _DECODERS.get((kind, version, flexible))) is not None:
        return known
    source, names = decoder_source(kind, version, flexible=flexible)
    compiled: Decoder = _compile(f"{kind.__name__} v{version} decoder", source, names)["decode"]
    _DECODERS[kind, version, flexible] = compiled
    return compiled


def decoder_in_steps(kind: type[Any], version: int, *, flexible: bool) -> DecoderInSteps:
    """Return the generator function that reads `kind` at `version`."""
    if (known := _DECODERS_IN_STEPS.get((kind, version, flexible))) is not None:
        return known
    source, names = decoder_source(kind, version, flexible=flexible, in_steps=True)
    title = f"{kind.__name__} v{version} decoder in steps"
    compiled: DecoderInSteps = _compile(title, source, names)["decode"]
    _DECODERS_IN_STEPS[kind, version, flexible] = compiled
    return compiled


def _compile(title: str, source: str, names: dict[str, Any]) -> dict[str, Any]:
    # The source is made of declared names alone; nothing off the wire ever reaches it.
    exec(compile(source, f"<{title}>", "exec"), names)  # noqa: S102
    return names
