"""A running broker that requests are sent to, and what each request costs it.

    attacked     a cluster of one broker
    send         one request, on a connection of its own; the answer is read and dropped
    counted      the steps between two looks at the sockets
    weighed      the memory that is taken at once
    timed        the processor time between two looks at the sockets

A neighbour asks the broker for something small meanwhile, again and again.
"""

import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from types import FrameType, MappingProxyType
from typing import Any, cast

import attrs
import trio

from replication.cluster.cluster import Cluster, open_cluster
from replication.config.security import STANDARD_AUTHORIZER, Introduction, Login
from replication.net import production_seams
from replication.net.seams import Connection, Seams
from replication.net.secure import introduced
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import api_of
from replication.wire.frames import encode_request
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK

TOPIC = "there"
"""The one topic of an attacked cluster; it has one partition."""


def with_logins(**passwords: str) -> dict[str, str]:
    """Return the properties of a cluster that admin and these users can log in to."""
    users = "".join(f' user_{name}="{password}"' for name, password in passwords.items())
    login = f'PlainLoginModule required username="admin" password="top" user_admin="top"{users};'
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
    }


WITH_AUTHORIZER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}
SERVES_ALL = {"group.coordinator.rebalance.protocols": "classic,consumer"}
WITH_ACLS = with_logins(eve="e") | WITH_AUTHORIZER
ADMIN = Introduction(protocol="SASL_PLAINTEXT", login=Login("PLAIN", "admin", "top"))
EVE = Introduction(protocol="SASL_PLAINTEXT", login=Login("PLAIN", "eve", "e"))
"""A user who has logged in and whom no ACL allows anything."""


@attrs.frozen(kw_only=True)
class Hostile:
    """One request; `request(count)` makes it."""

    request: Callable[[int], object]
    tested: int = 5_000
    """The count with which steps are counted; done in one go, it takes more than `MOST_STEPS`."""
    measured: int = 99_000
    """The count with which the benchmark measures time."""
    version: int | None = None
    """The newest, if None."""
    before: Callable[[int], object] | None = None
    """A request that prepares the broker for it."""
    sender: Introduction | None = None
    """The user who sends it to a broker with ACLs; a broker without them asks nobody's name."""

    def frame(self, count: int) -> bytes:
        return frame_of(self.request(count), self.version)


MOST_STEPS = 50_000
"""The lines that may be run between two looks at the sockets; they take some 10 ms."""


def most_allocated(frame_bytes: int, answer_bytes: int = 0) -> int:
    """Return how many bytes such a request may take: its share, its answer's, what any takes."""
    return (1 << 20) + 80 * frame_bytes + 8 * answer_bytes


@attrs.define(eq=False)
class Turns(trio.abc.Instrument):
    """The longest turn of the loop: what runs between two looks at the sockets."""

    read: Callable[[], float]
    """A count, or a clock."""
    longest: float = 0
    _began: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        self._began = self.read()

    def before_io_wait(self, timeout: float) -> None:
        if self._began is not None:
            self.longest = max(self.longest, self.read() - self._began)


@attrs.define(eq=False)
class Steps:
    """How many lines of Python one thread runs; each round of a comprehension is one."""

    count: int = 0

    def enter(self, _frame: FrameType, _event: str, _argument: object) -> Any:
        """Count in this frame too; for `sys.settrace`."""
        return self._note

    def _note(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.count += 1
        return self._note

    def read(self) -> float:
        return self.count


@attrs.frozen(kw_only=True)
class Cost:
    """The cost of one request, in the units that its test has measured."""

    frame_bytes: int = 0
    answer_bytes: int = 0
    """0 where the broker closed the connection instead."""
    neighbours_answers: int = 0
    """How often the neighbour was answered meanwhile."""
    neighbours_wait: float = 0.0
    """The longest that it waited for one, in seconds."""
    steps: int = 0
    """The lines of the longest turn."""
    allocated: int = 0
    """The most memory that was taken at once."""
    seconds: float = 0.0
    """The processor time of the longest turn."""


@attrs.define(eq=False)
class Neighbour:
    """Another connection, which asks for something small again and again."""

    address: str
    client: Client
    answers: int = 0
    longest_wait: float = 0.0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        asked = ApiVersionsRequest(client_software_name="neighbour", client_software_version="1")
        async with self.client.connected(self.address) as connection:
            await connection.call(asked, version=3, timeout_ms=600_000)
            task_status.started()
            while True:
                began = time.perf_counter()
                await connection.call(asked, version=3, timeout_ms=600_000)
                self.longest_wait = max(self.longest_wait, time.perf_counter() - began)
                self.answers += 1


@attrs.frozen
class Attacked:
    """A cluster that requests of `HOSTILE` are sent to."""

    cluster: Cluster
    sender: Introduction | None

    @property
    def address(self) -> str:
        return self.cluster.bootstrap_list[0]

    def seams(self, introduction: Introduction) -> Seams:
        seams = production_seams()
        return seams if self.sender is None else introduced(seams, introduction)

    async def prepare(self, hostile: Hostile, count: int) -> None:
        """Have the administrator send what `hostile` needs to be sent before it."""
        if hostile.before is not None:
            client = Client(self.seams(ADMIN))
            await client.ask(self.address, hostile.before(count))

    async def send(self, frame: bytes, watch: AbstractContextManager[dict[str, Any]]) -> Cost:
        """Send it, read its answer, and return what that cost, as `watch` sees it."""
        host, _, port = self.address.rpartition(":")
        connection = await self.seams(self.sender or EVE).transport.connect(host, int(port))

        async def exchange() -> int:
            await connection.send_buffers([frame])
            return await drop_answer(connection)

        try:
            return attrs.evolve(await self.endured(exchange, watch), frame_bytes=len(frame))
        finally:
            connection.close()

    async def endured(
        self,
        work: Callable[[], Awaitable[int | None]],
        watch: AbstractContextManager[dict[str, Any]],
    ) -> Cost:
        """Return what `work` cost beside a neighbour; it returns the bytes of an answer, if any."""
        neighbour = Neighbour(self.address, Client(self.seams(ADMIN)))
        async with trio.open_nursery() as nursery:
            await nursery.start(neighbour.run)
            with watch as measured:
                answer_bytes = await work()
            cost = Cost(
                answer_bytes=answer_bytes or 0,
                neighbours_answers=neighbour.answers,
                neighbours_wait=neighbour.longest_wait,
                **measured,
            )
            nursery.cancel_scope.cancel()
        return cost


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """The steps of the longest turn, when the block ends."""
    measured: dict[str, int] = {}
    steps = Steps()
    with turns_of(steps.read) as turns:
        tracer = sys.gettrace()  # coverage has one
        sys.settrace(steps.enter)
        try:
            yield measured
        finally:
            sys.settrace(tracer)
    measured["steps"] = int(turns.longest)


@contextmanager
def weighed() -> Iterator[dict[str, int]]:
    """The most memory that was taken at once, when the block ends."""
    measured: dict[str, int] = {}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield measured
        measured["allocated"] = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """The processor time of the longest turn, when the block ends."""
    measured: dict[str, float] = {}
    with turns_of(time.thread_time) as turns:
        yield measured
    measured["seconds"] = turns.longest


@contextmanager
def turns_of(read: Callable[[], float]) -> Iterator[Turns]:
    turns = Turns(read)
    trio.lowlevel.add_instrument(turns)
    try:
        yield turns
    finally:
        trio.lowlevel.remove_instrument(turns)


def frame_of(request: object, version: int | None = None) -> bytes:
    """Return the whole request, with its length; of the newest version, if None."""
    if version is None:
        version = api_of(type(request)).max_version
    parts = encode_request(request, version=version, correlation_id=1, client_id="hostile")
    return b"".join(cast("list[bytes]", parts))


async def drop_answer(connection: Connection) -> int:
    """Receive one frame and keep nothing of it; return its size, 0 where none comes."""
    buffer = memoryview(bytearray(1 << 16))
    held = 0
    while held < 4:
        count = await connection.receive_into(buffer[held:])
        if count == 0:
            return 0
        held += count
    size = 4 + int.from_bytes(buffer[:4], "big")
    left = size - held
    while left:
        count = await connection.receive_into(buffer)
        if count == 0:
            return 0
        left -= count
    return size


@asynccontextmanager
async def attacked(
    *, sender: Introduction | None = None, properties: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Attacked]:
    """A cluster of one broker with `TOPIC`, and with ACLs where there is a `sender`."""
    async with open_cluster(
        brokers=1,
        listeners=["PLAINTEXT"] if sender is None else ["INSIDE"],
        properties=QUICK | SERVES_ALL | ({} if sender is None else WITH_ACLS) | dict(properties),
    ) as cluster:
        stage = Attacked(cluster, sender)
        await Client(stage.seams(ADMIN)).create_topic(stage.address, TOPIC, replicas=1)
        await cluster.until(lambda: cluster.leader(TOPIC, 0) is not None, what="it has a leader")
        yield stage
