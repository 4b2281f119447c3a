"""How many messages a second we write and read, beside kio on the same bytes in the same run.

FetchRequest and FetchResponse v17 with 500 partitions, as a follower and its leader
exchange them; the response carries 16 KiB of records for each.

kio writes in Python and joins records into its bytes; we hand them back as parts. kio
reads in native code, which copies records and may not be shown an untrusted socket; we
read in Python, check every length, and copy nothing: to come near it is the goal there.
"""

import gc
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

from kio.schema.fetch.v17 import request as kio_request, response as kio_response
from kio.serial import entity_reader, entity_writer

from replication.wire.codec import decode, encode
from replication.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from replication.wire.schema import Part
from tests.bench.figures import Figure, interleaved

VERSION = 17
PARTITIONS = 500
ROUNDS = 15
TOPIC_ID = bytes(range(16))
RECORDS = bytes(16 * 1024)

REQUEST = FetchRequest(
    replica_state=ReplicaState(replica_id=2, replica_epoch=9),
    max_wait_ms=500,
    min_bytes=1,
    session_id=7,
    session_epoch=3,
    topics=[
        FetchTopic(
            topic_id=TOPIC_ID,
            partitions=[
                FetchPartition(
                    partition=number,
                    current_leader_epoch=4,
                    fetch_offset=1000 + number,
                    last_fetched_epoch=4,
                    log_start_offset=0,
                    partition_max_bytes=1 << 20,
                )
                for number in range(PARTITIONS)
            ],
        )
    ],
)
RESPONSE = FetchResponse(
    session_id=7,
    responses=[
        FetchableTopicResponse(
            topic_id=TOPIC_ID,
            partitions=[
                PartitionData(
                    partition_index=number,
                    high_watermark=1000,
                    last_stable_offset=1000,
                    log_start_offset=0,
                    records=RECORDS,
                )
                for number in range(PARTITIONS)
            ],
        )
    ],
)


def run() -> Iterator[Figure]:
    for message, theirs, turns in (
        (REQUEST, kio_request.FetchRequest, 40),
        (RESPONSE, kio_response.FetchResponse, 10),
    ):
        kind: type[Any] = type(message)
        body = joined(encode(message, version=VERSION, flexible=True))
        frame = memoryview(body)
        entity, _ = entity_reader(theirs)(body, 0)
        write, read = entity_writer(theirs), entity_reader(theirs)
        assert written_by(write, entity) == body
        name = f"{kind.__name__} v{VERSION}, beside kio"
        yield figure(
            f"write a {name}",
            lambda message=message: encode(message, version=VERSION, flexible=True),  # type: ignore[misc]
            lambda write=write, entity=entity: written_by(write, entity),  # type: ignore[misc]
            turns,
            goal=5,
        )
        yield figure(
            f"read a {name}",
            lambda kind=kind, frame=frame: decode(kind, frame, version=VERSION, flexible=True),  # type: ignore[misc]
            lambda read=read, body=body: read(body, 0),  # type: ignore[misc]
            turns,
            goal=0.7,
        )


def figure(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    turns: int,
    *,
    goal: float,
) -> Figure:
    one, other = interleaved(
        lambda: a_second(ours, turns), lambda: a_second(theirs, turns), rounds=ROUNDS
    )
    return Figure(name, one, other, "/s", goal=goal)


def a_second(do: Callable[[], object], turns: int) -> float:
    """Return how often `do` can be done in a second."""
    gc.collect()
    began = time.perf_counter()
    for _ in range(turns):
        do()
    return turns / (time.perf_counter() - began)


def written_by(write: Any, entity: Any) -> bytes:
    buffer = io.BytesIO()
    write(buffer, entity)
    return buffer.getvalue()


def joined(parts: list[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes))
