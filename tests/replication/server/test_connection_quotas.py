"""How many connections a node takes, by the server that asks and by a cluster that is altered."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from replication.config import BrokerConfig
from replication.errors import ConfigError, PeerUnavailableError, TooManyConnectionsError
from replication.events import ConnectionRefused, Event
from replication.net.clock import TrioClock
from replication.server.connection_quotas import (
    REPORT_SECONDS,
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionSlot,
)
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from replication.wire.metadata import MetadataRequest
from storage.log.file_region import FileRegion
from storage.types import Buffer
from tests.replication.broker.stage import Stage, played_in, staged

CLIENTS, INSIDE = "CLIENTS", "INSIDE"
BROKER = 4  # the type of a resource


@attrs.define(eq=False)
class Held:
    """A connection that does nothing but end."""

    peer: str
    closed: bool = False
    moved: int = 0
    gathers_up_to: int = 0

    async def receive_into(self, buffer: memoryview) -> int:
        raise NotImplementedError

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        raise NotImplementedError

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        raise NotImplementedError

    async def send_region(self, region: FileRegion) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


@attrs.define(eq=False)
class Subject:
    limits: ConnectionLimits
    events: list[Event] = attrs.field(factory=list)
    quotas: ConnectionQuotas = attrs.field(init=False)
    _port: int = attrs.field(default=1000, init=False)

    def __attrs_post_init__(self) -> None:
        self.quotas = ConnectionQuotas(
            clock=TrioClock(),
            sink=self.events.append,
            limits=lambda: self.limits,
            protected_listener=INSIDE,
        )

    async def connect(self, host: str = "10.0.0.1", *, listener: str = CLIENTS) -> ConnectionSlot:
        self._port += 1
        await self.quotas.wait_for_slot(listener)
        slot = self.quotas.take(Held(f"{host}:{self._port}"), listener)
        await TrioClock().sleep(1)  # the next one is used later
        return slot

    def is_closed(self, slot: ConnectionSlot) -> bool:
        assert isinstance(slot.connection, Held)
        return slot.connection.closed


async def test_an_address_has_so_many_and_no_more(autojump_clock: MockClock) -> None:
    limits = ConnectionLimits(of_an_address=2, of_single_addresses={"10.0.0.2": 1, "::1": 3})
    subject = Subject(limits)
    for host, most in {"10.0.0.1": 2, "10.0.0.2": 1, "::1": 3}.items():
        slots = [await subject.connect(host) for _ in range(most)]
        with pytest.raises(TooManyConnectionsError, match=f"{host} has {most} connections"):
            await subject.connect(host)
        subject.quotas.free(slots[0])
        await subject.connect(host)
    assert subject.quotas.connections == 6


async def test_a_new_connection_waits_for_another_to_end_when_all_slots_are_taken(
    autojump_clock: MockClock,
) -> None:
    subject = Subject(ConnectionLimits(in_all=1))
    first = await subject.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.connect)
        await wait_all_tasks_blocked()
        assert subject.quotas.connections == 1
        subject.quotas.free(first)
        await TrioClock().sleep(0.5)
        assert subject.quotas.connections == 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.connect)
        await wait_all_tasks_blocked()
        subject.limits = ConnectionLimits(in_all=2)
        subject.quotas.limits_changed()
    assert subject.quotas.connections == 2


async def test_a_broker_is_let_in_and_costs_the_quietest_client_its_place(
    autojump_clock: MockClock,
) -> None:
    subject = Subject(ConnectionLimits(in_all=3))
    busy, quiet = await subject.connect(), await subject.connect()
    own = await subject.connect(listener=INSIDE)
    busy.last_used = TrioClock().now()
    other = await subject.connect(listener=INSIDE)
    assert [subject.is_closed(each) for each in (busy, quiet, own, other)] == [
        *(False, True, False, False)
    ]
    subject.quotas.free(quiet)
    subject.limits = ConnectionLimits(in_all=1)
    subject.quotas.limits_changed()
    assert subject.is_closed(busy)
    assert not subject.is_closed(own)


async def test_a_flood_is_one_line_in_a_while(autojump_clock: MockClock) -> None:
    subject = Subject(ConnectionLimits())
    for number in range(1000):
        subject.quotas.refuse(TooManyConnectionsError(f"h:{number}", "too many"), CLIENTS)
    assert subject.events == [ConnectionRefused(peer="h:0", cause="too many")]
    await TrioClock().sleep(REPORT_SECONDS)
    subject.quotas.refuse(TooManyConnectionsError("h:1000", "too many"), CLIENTS)
    cause = "too many; 999 more since the last line"
    assert subject.events[1:] == [ConnectionRefused(peer="h:1000", cause=cause)]


async def test_a_broker_that_finds_no_descriptor_finds_one_when_it_comes_again(
    autojump_clock: MockClock,
) -> None:
    subject = Subject(ConnectionLimits())
    quiet, busy = await subject.connect(), await subject.connect()
    subject.quotas.refuse(TooManyConnectionsError("h:1", "no descriptors"), INSIDE)
    assert (subject.is_closed(quiet), subject.is_closed(busy)) == (True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max.connections.per.ip.overrides": "10.0.0.1"},
        {"max.connections.per.ip.overrides": "a.host:5"},
        {"max.connections.per.ip.overrides": "10.0.0.1:-1"},
        {"max.connections": "-1"},
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        BrokerConfig.from_properties({"node.id": "1", "process.roles": "broker", **wrong})


def test_addresses_are_the_same_however_they_are_written() -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "broker",
            "max.connections.per.ip": "0",
            "max.connections.per.ip.overrides": "10.0.0.1:3, [2001:db8:0::1]:4",
        }
    )
    expected = {"10.0.0.1": 3, str(ip_address("2001:db8::1")): 4}
    assert ConnectionLimits.of(config).of_single_addresses == expected


async def altered(stage: Stage, name: str, value: str) -> None:
    change = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(
        resource_type=BROKER, resource_name="1", configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await stage.client.ask(stage.address(1), request)
    assert [each.error_code for each in answer.responses] == [0]


@asynccontextmanager
async def connected(stage: Stage, count: int) -> AsyncIterator[list[Any]]:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(stage.client.connected(stage.address(1)))
            for _ in range(count)
        ]
        yield clients


async def ask(client: Any) -> None:
    await client.call(MetadataRequest(topics=[]), version=9, timeout_ms=5_000)


@played_in(staged, brokers=1)
async def test_limits_are_altered_while_the_broker_runs(stage: Stage) -> None:
    metrics = stage.cluster.brokers[1].request_metrics
    await altered(stage, "max.connections.per.ip", "2")
    async with connected(stage, 3) as clients:
        await ask(clients[0])
        await ask(clients[1])
        with pytest.raises(PeerUnavailableError):
            await ask(clients[2])
    assert metrics.connections_refused == 1
    await altered(stage, "max.connections.per.ip", "2147483647")
    await altered(stage, "max.connections", "2")
    async with connected(stage, 3) as clients, trio.open_nursery() as nursery:
        await ask(clients[0])
        await ask(clients[1])
        nursery.start_soon(ask, clients[2])
        await stage.client.seams.clock.sleep(1)
        assert metrics.connections == 2
        clients[0].close()
    assert metrics.connections_refused == 1
