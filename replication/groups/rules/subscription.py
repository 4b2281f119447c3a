"""What a consumer says that it wants, as far as its coordinator looks into it.

    version i16 | topics: array of strings | whatever later versions added

The coordinator hands these bytes on; it reads the topics so as not to let the offsets of
what is being read expire or be deleted (KIP-211, KIP-496). (Kafka: ConsumerProtocol.)
"""

import struct
from typing import Final

import attrs

from replication.errors import ProtocolError
from replication.wire.codec import decode
from replication.wire.schema import Kind, array

CONSUMER: Final = "consumer"
"""The protocol type of consumers; Connect's is another."""

_VERSION: Final = struct.Struct(">h")


@attrs.define(kw_only=True)
class _Topics:
    topics: list[str] = array(Kind.STRING)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the subscribed topics; None where the bytes are not a consumer's."""
    if len(metadata) < _VERSION.size or _VERSION.unpack_from(metadata)[0] < 0:
        return None
    try:
        read = decode(_Topics, memoryview(metadata), _VERSION.size, version=0, flexible=False)
    except ProtocolError:
        return None
    return frozenset(read.topics)
