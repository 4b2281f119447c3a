"""Is a broker there? One Metadata request over a blocking socket, and nothing else imported.

Readiness is an API answered, not a port that is open and not a line in a log.
"""

import socket

from replication.errors import ProtocolError
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response, encode_request
from replication.wire.metadata import MetadataRequest, MetadataResponse

VERSION = 12


def fetch_metadata(host: str, port: int, *, timeout_seconds: float = 1.0) -> MetadataResponse:
    """What the broker says of the cluster and all its topics; OSError where none answers."""
    request = MetadataRequest(topics=None)
    frame = encode_request(request, version=VERSION, correlation_id=1, client_id="probe")
    with socket.create_connection((host, port), timeout_seconds) as connection:
        for part in frame:
            assert isinstance(part, bytes | bytearray | memoryview), "only records are regions"
            connection.sendall(part)
        size = int.from_bytes(_receive(connection, 4), "big")
        body = memoryview(_receive(connection, size))
    _, response = decode_response(body, api_key=ApiKey.METADATA, version=VERSION)
    assert isinstance(response, MetadataResponse), "an answer decodes as what was asked"
    return response


def broker_ids(host: str, port: int) -> set[int]:
    """The ids of the brokers that it knows alive; empty where it does not answer."""
    try:
        return {broker.node_id for broker in fetch_metadata(host, port).brokers}
    except (OSError, ProtocolError):
        return set()


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)
