"""Asking who coordinates a group or a transactional id (FindCoordinator, KIP-699).

One question of one key fits every version: where it stands, in the request and in the answer,
is what they differ in.
"""

from replication.client.nodes import Node
from replication.client.requests import ClientRequest, ask
from replication.errors import ErrorCode, KafkaError
from replication.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


def who_coordinates(kind: int, key: str) -> ClientRequest:
    """`kind`: GROUP or TRANSACTION of `replication.wire.find_coordinator`."""
    return ask(FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key]))


def coordinator_in(response: FindCoordinatorResponse) -> Coordinator:
    """Of the one key that was asked about; up to version 3 it stands at the top."""
    if response.coordinators:
        return response.coordinators[0]
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def node_of(response: FindCoordinatorResponse, key: str) -> Node:
    """Its second connection, as a coordinator; KafkaError where there is none."""
    found = coordinator_in(response)
    error = ErrorCode.of(found.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"no coordinator of {key}")
    return Node(found.node_id, found.host, found.port).as_coordinator()
