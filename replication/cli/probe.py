"""One request over a blocking socket, and nothing else imported: is a broker there?

Readiness is an API answered, not a port that is open and not a line in a log.
"""

import socket
from typing import Any

from replication.errors import ProtocolError
from replication.wire.apis import api_of
from replication.wire.frames import decode_response, encode_request
from replication.wire.metadata import MetadataRequest, MetadataResponse

VERSION = 12


def fetch_metadata(host: str, port: int, *, timeout_seconds: float = 1.0) -> MetadataResponse:
    """What the broker says of the cluster and all its topics; OSError where none answers."""
    response = ask(
        host, port, MetadataRequest(topics=None), version=VERSION, timeout_seconds=timeout_seconds
    )
    assert isinstance(response, MetadataResponse), "an answer decodes as what was asked"
    return response


def ask(host: str, port: int, request: Any, *, version: int, timeout_seconds: float) -> Any:
    """Return the broker's answer to one request; raise OSError where none comes."""
    frame = encode_request(request, version=version, correlation_id=1, client_id="probe")
    with socket.create_connection((host, port), timeout_seconds) as connection:
        for part in frame:
            assert isinstance(part, bytes | bytearray | memoryview), "only records are regions"
            connection.sendall(part)
        size = int.from_bytes(_receive(connection, 4), "big")
        body = memoryview(_receive(connection, size))
    _, response = decode_response(body, api_key=api_of(type(request)).key, version=version)
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
