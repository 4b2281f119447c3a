"""A toy cluster: nodes that ask each other, write down what they heard, and die.

    python -m tests.scenarios.toy 7        prints the trace hash of seed 7

It is as careless as a node may be: it draws chance, has pipelined callers, times out,
writes and syncs; so that whatever is not deterministic in the simulator shows.
"""

import sys
from typing import ClassVar

import attrs
import trio

from replication.errors import PeerUnavailableError
from replication.events import Event, EventSink
from replication.net.framing import FrameReader, send_parts
from replication.net.rpc import RpcClient
from replication.net.seams import Connection, Seams
from replication.wire.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replication.wire.frames import decode_request, encode_response
from scenarios.world.world import World

PORT = 9092


@attrs.frozen(kw_only=True)
class Heard(Event):
    name: ClassVar[str] = "heard"
    peer: str
    answer: str


@attrs.frozen(kw_only=True)
class Unheard(Event):
    name: ClassVar[str] = "unheard"
    peer: str


@attrs.define
class ToyNode:
    """Echoes what it is asked; asks its peers when the mood takes it."""

    name: str
    seams: Seams
    sink: EventSink
    peers: tuple[str, ...]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listener = await self.seams.transport.listen(self.name, PORT)
        file = self.seams.file_system.open(f"/{self.name}", create=True)
        task_status.started()
        async with trio.open_nursery() as nursery:
            for peer in self.peers:
                nursery.start_soon(self._ask_for_ever, peer)
            try:
                while True:
                    nursery.start_soon(self._serve, await listener.accept())
            except PeerUnavailableError:
                nursery.cancel_scope.cancel()
            finally:
                try:
                    file.write(0, b"stopped cleanly")
                    file.sync()
                except OSError:
                    pass  # killed

    async def _serve(self, connection: Connection) -> None:
        reader = FrameReader(connection)
        try:
            while (frame := await reader.receive_frame()) is not None:
                header, request = decode_request(frame)
                assert isinstance(request, FindCoordinatorRequest)
                await self.seams.clock.sleep(self.seams.chance.random() * 0.01)
                answer = FindCoordinatorResponse(host=f"{self.name} heard {request.key}")
                version, correlation_id = header.api_version, header.correlation_id
                await send_parts(
                    connection,
                    encode_response(answer, version=version, correlation_id=correlation_id),
                )
        except PeerUnavailableError:
            pass
        finally:
            connection.close()

    async def _ask_for_ever(self, peer: str) -> None:
        while True:
            client: RpcClient | None = None
            try:
                client = await RpcClient.connect(
                    self.seams.transport,
                    peer,
                    PORT,
                    client_id=self.name,
                    clock=self.seams.clock,
                    timeout_ms=500,
                )
                while True:
                    async with trio.open_nursery() as nursery:
                        for i in range(3):
                            nursery.start_soon(self._ask, client, peer, i)
                    await self.seams.clock.sleep(self.seams.chance.random())
            except* PeerUnavailableError:
                self.sink(Unheard(peer=peer))
            finally:
                if client is not None:
                    client.close()
            await self.seams.clock.sleep(0.1)

    async def _ask(self, client: RpcClient, peer: str, number: int) -> None:
        key = f"{number}" * self.seams.chance.randrange(1, 2000)
        answer = await client.call(FindCoordinatorRequest(key=key), version=0, timeout_ms=300)
        await self.seams.offload(self._write_down)
        self.sink(Heard(peer=peer, answer=answer.host[:20]))

    def _write_down(self) -> None:
        file = self.seams.file_system.open(f"/{self.name}", create=True)
        file.write(file.size(), b"heard")
        file.sync()
        file.close()


async def toy_story(world: World) -> None:
    names = ("a", "b", "c")
    scopes: dict[str, trio.CancelScope] = {}

    async def live(name: str, *, task_status: trio.TaskStatus[None]) -> None:
        peers = tuple(peer for peer in names if peer != name)
        with trio.CancelScope() as scopes[name]:
            node = ToyNode(name, world.node(name), world.sink(name), peers)
            await node.run(task_status=task_status)

    for name in names:
        world.node(name)
    clock = world.clock("a")
    async with trio.open_nursery() as nursery:
        for name in names:
            await nursery.start(live, name)
        await clock.sleep(5)
        world.kill("b")
        scopes["b"].cancel()
        await clock.sleep(2)
        await nursery.start(live, "b")
        world.network.cut("a", "c")
        await clock.sleep(2)
        world.network.heal("a", "c")
        world.pause("c")
        await clock.sleep(1)
        world.resume("c")
        await clock.sleep(2)
        world.crash_disk("c")
        scopes["c"].cancel()
        await clock.sleep(1)
        await nursery.start(live, "c")
        await clock.sleep(5)
        nursery.cancel_scope.cancel()


def trace_of(seed: int) -> World:
    world = World(seed)
    world.run(toy_story)
    return world


if __name__ == "__main__":
    print(trace_of(int(sys.argv[1])).trace_hash())
