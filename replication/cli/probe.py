"""One request to a broker that may not be there: does it answer?

Readiness is an API answered, not a port that is open and not a line in a log.
"""

from typing import Any

from replication.client.blocking import BlockingConnection
from replication.errors import PeerUnavailableError, ProtocolError
from replication.wire.metadata import MetadataRequest, MetadataResponse

VERSION = 12


def fetch_metadata(host: str, port: int, *, timeout_seconds: float = 1.0) -> MetadataResponse:
    """Return what the broker knows of the cluster and all its topics; OSError if none answers."""
    response = ask(
        host, port, MetadataRequest(topics=None), version=VERSION, timeout_seconds=timeout_seconds
    )
    assert isinstance(response, MetadataResponse), "an answer decodes as what was asked"
    return response


def ask(host: str, port: int, request: Any, *, version: int, timeout_seconds: float) -> Any:
    """Return the broker's answer to one request; raise OSError if none comes."""
    timeout_ms = int(timeout_seconds * 1000)
    connection = BlockingConnection(
        host, port, client_id="probe", connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    try:
        return connection.ask_in(version, request)
    except PeerUnavailableError as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


def broker_ids(host: str, port: int) -> set[int]:
    """Return the ids of the brokers that this broker knows to be alive; empty if it is silent."""
    try:
        return {broker.node_id for broker in fetch_metadata(host, port).brokers}
    except (OSError, ProtocolError):
        return set()
