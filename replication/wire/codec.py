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

Rule 3: what is long is read and written in steps (`replication.steps`), by functions from the same
source with pauses in them. The results of both are the same.

Rule 4: records are not touched. Reading hands out views of the frame; writing gives them
back as parts of their own, between the joined rest.

What Kafka keeps in logs, or has clients keep, begins with its version: `encode_versioned`,
`version_of` and `decode_versioned` are for those (MessageUtil.toVersionPrefixedBytes).
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from replication.errors import ProtocolError
from replication.steps import Steps, at_once
from replication.wire.decoder_source import decoder_source
from replication.wire.encoder_source import encoder_source
from replication.wire.schema import Part

Message = TypeVar("Message")
MakeSource: TypeAlias = Callable[..., tuple[str, dict[str, Any]]]

FEW_ITEMS = 64
"""The items that the arrays of a message have together that is written without pauses."""

_VERSION = struct.Struct(">h")
_BROKEN = (struct.error, IndexError, UnicodeDecodeError)


def encode(message: object, *, version: int, flexible: bool) -> list[Part]:
    """Return the parts of `message` at `version`; none for a message without fields."""
    parts = encode_short(message, version=version, flexible=flexible)
    if parts is None:
        return at_once(encode_in_steps(message, version=version, flexible=flexible))
    return parts


def encode_short(message: object, *, version: int, flexible: bool) -> list[Part] | None:
    """Return the parts of a message; None where arrays have more than `FEW_ITEMS` items."""
    kind: Any = type(message)
    parts: list[Part] | None = _compiled(encoder_source, kind, version, flexible, False)(
        message, FEW_ITEMS
    )
    return parts


def encode_in_steps(message: object, *, version: int, flexible: bool) -> Steps[list[Part]]:
    """Return the parts of a message, cut smaller than `encode` cuts them."""
    kind: Any = type(message)
    write: Callable[[Any], Steps[list[Part]]] = _compiled(
        encoder_source, kind, version, flexible, True
    )
    return write(message)


def decode(
    kind: type[Message],
    frame: memoryview,
    position: int = 0,
    *,
    version: int,
    flexible: bool,
    fills_frame: bool = False,
) -> Message:
    """Return the message of class `kind` at `position`; raise ProtocolError if none is there.

    With `fills_frame` bytes behind the message are an error, too.
    """
    hashable: Any = kind
    read = _compiled(decoder_source, hashable, version, flexible, False)
    message: Message
    try:
        message, end = read(frame, position, frame.nbytes)
    except _BROKEN as broken:
        raise ProtocolError(f"not a {kind.__name__} v{version}: {broken}") from broken
    if fills_frame and end != frame.nbytes:
        raise ProtocolError(f"{frame.nbytes - end} bytes behind a {kind.__name__} v{version}")
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
    hashable: Any = kind
    read = _compiled(decoder_source, hashable, version, flexible, True)
    try:
        message, _ = yield from read(frame, position, len(frame), most_items)
    except _BROKEN as broken:
        raise ProtocolError(f"not a {kind.__name__} v{version}: {broken}") from broken
    assert isinstance(message, kind)
    return message


def encode_whole(message: object, *, version: int, flexible: bool = False) -> bytes:
    """Return the bytes of a message without records."""
    parts = encode(message, version=version, flexible=flexible)
    assert all(isinstance(part, bytes | memoryview) for part in parts), "nothing lies in a file"
    return b"".join(parts)  # type: ignore[arg-type] # just asserted


def encode_versioned(message: object, version: int, *, flexible: bool = False) -> bytes:
    """Return a version, and the bytes of the message in that version."""
    return _VERSION.pack(version) + encode_whole(message, version=version, flexible=flexible)


def version_of(data: bytes | None) -> int:
    """Return the version that `data` begins with; raise ProtocolError where there is none."""
    if data is None or len(data) < _VERSION.size:
        raise ProtocolError("bytes without a version")
    return int(_VERSION.unpack_from(data)[0])


def decode_versioned(
    kind: type[Message], data: bytes, version: int, *, flexible: bool = False
) -> Message:
    """Return the message behind the version, read as `version`; raise ProtocolError without one."""
    return decode(kind, memoryview(data), _VERSION.size, version=version, flexible=flexible)


@cache
def _compiled(
    make_source: MakeSource,
    kind: type[Any],
    version: int,
    flexible: bool,  # noqa: FBT001 - keywords would take a third of the look-up
    in_steps: bool,  # noqa: FBT001
) -> Any:
    """Return the function, or generator function, that writes or reads `kind` at `version`."""
    source, names = make_source(kind, version, flexible=flexible, in_steps=in_steps)
    title = f"{make_source.__name__} of {kind.__name__} v{version}{' in steps' * in_steps}"
    # The source is made of declared names alone; nothing off the wire ever reaches it.
    exec(compile(source, f"<{title}>", "exec"), names)  # noqa: S102
    return names["encode" if make_source is encoder_source else "decode"]
