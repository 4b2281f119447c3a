"""After a kill, cleanup code can neither write nor send."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from replication.errors import PeerUnavailableError
from replication.net.detach import DetachableFileSystem, DetachableTransport, DetachedDiskError
from replication.net.framing import send_parts
from replication.net.tcp import TcpTransport
from storage.errors import LogDirectoryLockedError
from storage.filesystem import OsFileSystem
from storage.log.file_region import FileRegion


async def test_a_detached_broker_flushes_nothing_when_cancelled(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    file_system = DetachableFileSystem(OsFileSystem())
    transport = DetachableTransport(TcpTransport())
    listener = await TcpTransport().listen("127.0.0.1", 0)
    connection = await transport.connect("127.0.0.1", listener.port)
    peer = await listener.accept()
    refused: list[str] = []

    async def broker() -> None:
        file = file_system.open(path, create=True)
        file.write(0, b"appended")
        await connection.send_buffers([b"said"])
        try:
            await trio.sleep_forever()
        finally:
            for harm in (
                lambda: file.write(8, b" flushed"),
                lambda: file.truncate(0),
                file.sync,
                lambda: file_system.open(path + ".clean", create=True),
                lambda: file_system.rename(path, path + ".gone"),
                lambda: file_system.remove(path),
            ):
                with pytest.raises(DetachedDiskError):
                    harm()
                refused.append("disk")
            with trio.CancelScope(shield=True):
                with pytest.raises(PeerUnavailableError):
                    await connection.send_buffers([b"goodbye"])
                with pytest.raises(PeerUnavailableError):
                    await transport.connect("127.0.0.1", listener.port)
                with pytest.raises(PeerUnavailableError):
                    await transport.listen("127.0.0.1", 0)
            refused.append("network")
            file.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker)
        room = memoryview(bytearray(100))
        assert await peer.receive_into(room) == 4
        transport.detach()
        file_system.detach()
        nursery.cancel_scope.cancel()
    assert refused == ["disk"] * 6 + ["network"]
    assert await peer.receive_into(room) == 0, "the peer sees the end, and nothing before it"
    assert OsFileSystem().list_directory(str(tmp_path)) == ["log"]
    assert OsFileSystem().open(path).read(0, 100) == b"appended"
    listener.close()
    peer.close()


async def test_detaching_wakes_tasks_that_wait_for_the_network() -> None:
    transport = DetachableTransport(TcpTransport())
    listener = await transport.listen("127.0.0.1", 0)
    await transport.connect("127.0.0.1", listener.port)
    there = await listener.accept()
    await transport.connect("127.0.0.1", listener.port)
    silent = await listener.accept()
    room = memoryview(bytearray(1))

    async def expect_unavailable(wait: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(PeerUnavailableError):
            await wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_unavailable, listener.accept)
        nursery.start_soon(expect_unavailable, lambda: silent.receive_into(room))
        nursery.start_soon(expect_unavailable, lambda: there.send_buffers([bytes(50_000_000)]))
        await trio.testing.wait_all_tasks_blocked()
        transport.detach()


async def test_a_node_sends_a_small_region_with_the_buffers_around_it(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"batch")
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    transport = DetachableTransport(TcpTransport())
    listener = await TcpTransport().listen("127.0.0.1", 0)
    connection = await transport.connect("127.0.0.1", listener.port)
    peer = await listener.accept()
    await send_parts(connection, [b"header ", FileRegion(file, 0, 5), b" end"])
    room = memoryview(bytearray(100))
    count = await peer.receive_into(room)
    assert bytes(room[:count]) == b"header batch end", "in one piece, not in three"
    for each in (listener, peer, connection, file):
        each.close()


def test_the_next_incarnation_takes_the_lock_and_reads_the_files(tmp_path: Path) -> None:
    disk = OsFileSystem()
    first = DetachableFileSystem(disk)
    lock = first.lock(str(tmp_path / ".lock"))
    file = first.open(str(tmp_path / "log"), create=True)
    file.write(0, b"abc")
    second = DetachableFileSystem(disk)
    with pytest.raises(LogDirectoryLockedError):
        second.lock(str(tmp_path / ".lock"))
    first.detach()
    second.lock(str(tmp_path / ".lock")).release()
    assert second.open_for_reading(str(tmp_path / "log")).read(0, 10) == b"abc"
    lock.release()
    first.abandon()
    with pytest.raises(DetachedDiskError):
        file.size()


def test_a_living_node_is_served_as_by_the_disk_itself(tmp_path: Path) -> None:
    disk = DetachableFileSystem(OsFileSystem())
    disk.make_directory(str(tmp_path / "a"))
    file = disk.open(str(tmp_path / "a" / "f"), create=True)
    file.write(0, b"abc")
    file.sync()
    room = memoryview(bytearray(3))
    assert file.read_into(1, room) == 2
    assert file.size() == 3
    assert file.descriptor() is not None
    file.close()
    disk.sync_directory(str(tmp_path))
    assert disk.list_directory(str(tmp_path / "a")) == ["f"]
    assert disk.exists(str(tmp_path / "a" / "f"))
    assert disk.is_directory(str(tmp_path / "a"))
    disk.set_modified_ms(str(tmp_path / "a" / "f"), 1_234_567_890_123)
    assert disk.modified_ms(str(tmp_path / "a" / "f")) == 1_234_567_890_123
    disk.remove_tree(str(tmp_path / "a"))
    assert not disk.exists(str(tmp_path / "a"))
    assert disk.take_cost() == 0.0
