"""A producer's transaction, as its records and its coordinator's markers reach a leader."""

from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from tests.replication.replica_manager.replica_manager_side import TP, Node

PRODUCER = 7


def append(node: Node, encoded: bytes) -> None:
    """As a coordinator's own writes and those of its producers arrive, past the checks of Produce."""
    node.manager.hosted.get(TP).append_as_leader(
        memoryview(bytearray(encoded)),
        required_acks=1,
        wall_ms=node.clock.wall_ms(),
        from_client=False,
    )


def in_transaction(count: int = 1, *, timestamp: int = 0) -> bytes:
    return encode_batch(
        [Record(timestamp=timestamp, value=b"x")] * count,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def ended(kind: ControlRecordType) -> bytes:
    marker = EndTransactionMarker(kind, coordinator_epoch=0)
    return encode_control_batch(marker, timestamp=0, producer_id=PRODUCER, producer_epoch=0)
