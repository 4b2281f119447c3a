"""Connections leave descriptors to files: which number is too high, and what becomes of one."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from replication.errors import PeerUnavailableError, TooManyConnectionsError
from replication.net.tcp import TcpConnection, TcpTransport, left_for_connections
from storage.log.open_segments import DEFAULT_LIMIT, limit_within

LIMIT = 256


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 2500, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("listeners", [1, 4, 50])
def test_files_have_what_they_may_need_or_half_of_what_there_is(
    descriptors: int, listeners: int
) -> None:
    left = left_for_connections(descriptors, listeners)
    assert descriptors // 2 <= left < descriptors
    needed = listeners * 4 * limit_within(descriptors)
    assert descriptors - left >= min(needed, descriptors // 2)


def test_a_node_opens_fewer_segments_where_there_are_few_descriptors() -> None:
    assert limit_within(None) == limit_within(1 << 20) == DEFAULT_LIMIT
    assert [limit_within(each) for each in (64, 256, 1024, 4096)] == [8, 8, 32, 128]


@contextmanager
def few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_connection_is_closed_while_files_can_still_be_opened() -> None:
    listener = await TcpTransport().listen("127.0.0.1", 0)
    address = ("127.0.0.1", listener.port)
    held: list[trio.SocketStream | TcpConnection] = []

    async def connect() -> TcpConnection:
        held.append(await trio.open_tcp_stream(*address))
        held.append(await listener.accept())
        found = held[-1]
        assert isinstance(found, TcpConnection)
        return found

    async def connect_as_many_as_there_are() -> None:
        while True:
            await connect()

    with few_descriptors():
        with pytest.raises(TooManyConnectionsError):
            await connect_as_many_as_there_are()
        assert len(held) > LIMIT // 8
        os.close(os.open(os.devnull, os.O_RDONLY))
        for each in held:
            await each.aclose() if isinstance(each, trio.SocketStream) else each.close()
        (await connect()).close()
    listener.close()
    listener.close()
    with pytest.raises(PeerUnavailableError):
        await listener.accept()
    assert isinstance(held[-2], trio.SocketStream)
    await held[-2].aclose()
