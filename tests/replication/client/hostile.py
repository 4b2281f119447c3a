"""Peers that do not speak the protocol, each in its own way."""

import trio

from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection
from replication.wire.api_versions import ApiVersion, ApiVersionsResponse
from replication.wire.find_coordinator import FindCoordinatorResponse
from replication.wire.frames import decode_request, encode_response


async def say_versions(reader: FrameReader, connection: Connection) -> None:
    frame = await reader.receive_frame()
    assert frame is not None
    header, _ = decode_request(frame)
    served = [ApiVersion(api_key=key, min_version=0, max_version=3) for key in (10, 18)]
    await send_parts(
        connection,
        encode_response(
            ApiVersionsResponse(api_keys=served),
            version=header.api_version,
            correlation_id=header.correlation_id,
        ),
    )


async def garbage(connection: Connection) -> None:
    await connection.send_buffers([b"\0\0\0\x08GARBAGE!" * 8])
    await trio.sleep_forever()


async def garbage_later(connection: Connection) -> None:
    reader = FrameReader(connection)
    await say_versions(reader, connection)
    await reader.receive_frame()
    await connection.send_buffers([b"\0\0\0\x0a\0\0\0\x01\xff\xff\xff\xff\xff\xff"])
    await trio.sleep_forever()


async def closes_mid_frame(connection: Connection) -> None:
    reader = FrameReader(connection)
    await say_versions(reader, connection)
    await reader.receive_frame()
    await connection.send_buffers([b"\0\0\0\x20\0\0\0\x01half"])


async def wrong_correlation_id(connection: Connection) -> None:
    reader = FrameReader(connection)
    await say_versions(reader, connection)
    await reader.receive_frame()
    response = encode_response(FindCoordinatorResponse(), version=3, correlation_id=99)
    await send_parts(connection, response)
    await trio.sleep_forever()


async def announces_gigabytes(connection: Connection) -> None:
    await connection.send_buffers([b"\x7f\xff\xff\xff"])
    await trio.sleep_forever()


async def answers_unasked(connection: Connection) -> None:
    reader = FrameReader(connection)
    await say_versions(reader, connection)
    response = encode_response(FindCoordinatorResponse(), version=3, correlation_id=7)
    await send_parts(connection, response)
    await trio.sleep_forever()


async def says_nothing(connection: Connection) -> None:
    await trio.sleep_forever()


async def hangs_up(connection: Connection) -> None:
    await trio.lowlevel.checkpoint()


HOSTILE = (
    garbage,
    garbage_later,
    closes_mid_frame,
    wrong_correlation_id,
    announces_gigabytes,
    answers_unasked,
    says_nothing,
    hangs_up,
)
