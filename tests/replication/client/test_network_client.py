"""One client and its brokers: versions, order, time limits, back-off; nothing hangs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.client.cluster_view import Node
from replication.client.errors import UnsupportedVersionError
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.errors import PeerUnavailableError, ProtocolError
from replication.server.server import RequestContext
from replication.wire.apis import ApiKey
from replication.wire.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.replication.client.hostile import HOSTILE
from tests.replication.client.scripted import CLOCK, PORT, Peers, open_peers

B1 = Node(1, "b1", PORT)


def echo(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(host=request.key)


def find(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key)


async def ask_host(network: NetworkClient, key: str, **options: Any) -> str:
    response = await network.call(B1, ask(find(key), max_version=3), **options)
    assert isinstance(response, FindCoordinatorResponse)
    return response.host


async def test_versions_are_negotiated_before_the_first_request(autojump_clock: MockClock) -> None:
    async with open_peers("b1") as peers:
        peers["b1"].on(ApiKey.FIND_COORDINATOR, echo)
        peers["b1"].newest[ApiKey.FIND_COORDINATOR] = 2
        await peers.start()
        network = peers.network_client()
        assert await ask_host(network, "g") == "g"
        assert peers["b1"].asked[0][:2] == (ApiKey.FIND_COORDINATOR, 2)
        with pytest.raises(UnsupportedVersionError, match="the broker serves 0 to 2"):
            await network.call(B1, ask(find("g"), min_version=3))
        assert network.is_ready(1), "what cannot be asked costs no connection"


async def test_requests_are_sent_in_order_and_answered_each_with_its_own(
    autojump_clock: MockClock,
) -> None:
    async with echoing() as (peers, network):
        keys = [f"g{number}" for number in range(20)]
        pending = [network.send(B1, ask(find(key), max_version=3)) for key in keys]
        assert network.in_flight(1) == 20
        assert [(await each.wait()).host for each in pending] == keys
        assert [request.key for request in peers["b1"].requests(ApiKey.FIND_COORDINATOR)] == keys


async def test_a_cancelled_caller_does_not_disturb_the_next(autojump_clock: MockClock) -> None:
    async with open_peers("b1") as peers:
        await peers_that_answer_after(peers, 1.0)
        network = peers.network_client()
        with CLOCK.move_on_after(0.5) as scope:
            await ask_host(network, "first")
        assert scope.cancelled_caught
        assert await ask_host(network, "second") == "second"
        assert len(peers["b1"].asked) == 2


@asynccontextmanager
async def echoing(**config: Any) -> AsyncIterator[tuple[Peers, NetworkClient]]:
    """A broker that answers FindCoordinator with the key as the host, and a client."""
    async with open_peers("b1") as peers:
        peers["b1"].on(ApiKey.FIND_COORDINATOR, echo)
        await peers.start()
        yield peers, peers.network_client(**config)


async def peers_that_answer_after(peers: Peers, seconds: float) -> None:
    async def slow(_: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        await CLOCK.sleep(seconds)
        return echo(request)

    peers["b1"].handlers[ApiKey.FIND_COORDINATOR] = slow
    await peers.start()


async def test_an_answer_that_is_late_costs_the_connection(autojump_clock: MockClock) -> None:
    async with open_peers("b1") as peers:
        await peers_that_answer_after(peers, 60.0)
        network = peers.network_client(request_timeout_ms=5_000)
        start = CLOCK.now()
        first = network.send(B1, ask(find("a"), max_version=3))
        second = network.send(B1, ask(find("b"), max_version=3), timeout_ms=40_000)
        with pytest.raises(
            PeerUnavailableError, match="did not answer FIND_COORDINATOR v3 in time"
        ):
            await first.wait()
        assert CLOCK.now() - start == pytest.approx(5, abs=0.1)
        with pytest.raises(PeerUnavailableError):
            await second.wait()


async def test_a_node_that_is_away_is_left_alone_for_longer_and_longer(
    autojump_clock: MockClock,
) -> None:
    async with open_peers("b1") as peers:
        peers["b1"].on(ApiKey.FIND_COORDINATOR, echo)
        network = peers.network_client()
        waits = []
        for _ in range(7):
            with pytest.raises(PeerUnavailableError):
                await ask_host(network, "g")
            await trio.testing.wait_all_tasks_blocked()
            assert network.is_backing_off(1)
            assert network.least_loaded([B1]) is None
            with pytest.raises(PeerUnavailableError, match="was lost a moment ago"):
                await ask_host(network, "g")
            waits.append(network.backoff_ms(1))
            await CLOCK.sleep(network.backoff_ms(1) / 1000)
        expected = [50, 100, 200, 400, 800, 1000, 1000]
        for wait, about in zip(waits, expected, strict=True):
            assert about * 0.79 <= wait <= min(about * 1.21, 1000)
        await peers.start()
        assert await ask_host(network, "g") == "g", "and it is tried again"
        assert not network.is_backing_off(1)


async def test_the_least_loaded_node_is_ready_and_has_the_fewest_requests(
    autojump_clock: MockClock,
) -> None:
    async with open_peers("b1", "b2") as peers:
        for peer in peers.by_name.values():
            peer.on(ApiKey.FIND_COORDINATOR, echo)
        await peers.start()
        network = peers.network_client()
        other = Node(2, "b2", PORT)
        await ask_host(network, "g")
        assert network.least_loaded([B1, other]) == B1, "the other is not connected"
        await network.call(other, ask(find("g"), max_version=3))
        pending = network.send(B1, ask(find("g"), max_version=3))
        assert network.least_loaded([B1, other]) == other
        await pending.wait()


async def test_a_node_that_answered_nothing_is_not_tried_before_another(
    autojump_clock: MockClock,
) -> None:
    """The shuffle alone chose the same frozen broker again, each time for 30 s."""
    async with open_peers("b1", "b2") as peers:
        await peers["b2"].start()
        network = peers.network_client()
        other = Node(2, "b2", PORT)
        with pytest.raises(PeerUnavailableError):
            await ask_host(network, "g")
        await CLOCK.sleep(2)
        assert not network.is_backing_off(1)
        assert {network.least_loaded([B1, other]) for _ in range(20)} == {other}
        with pytest.raises(UnsupportedVersionError):  # by the other, which serves no such request
            await network.call(other, ask(find("g"), max_version=3))
        network.disconnect(2, "for the test")
        await CLOCK.sleep(2)
        assert {network.least_loaded([B1, other]) for _ in range(20)} == {B1}


async def test_an_idle_connection_is_closed(autojump_clock: MockClock) -> None:
    async with echoing(connections_max_idle_ms=10_000) as (_, network):
        await ask_host(network, "g")
        await CLOCK.sleep(9)
        assert network.is_ready(1)
        await ask_host(network, "g")
        await CLOCK.sleep(9)
        assert network.is_ready(1), "it was used meanwhile"
        await CLOCK.sleep(2)
        assert not network.is_ready(1)
        assert await ask_host(network, "g") == "g"


async def test_a_connection_is_kept_where_the_limit_is_negative(autojump_clock: MockClock) -> None:
    async with echoing(connections_max_idle_ms=-1) as (_, network):
        await ask_host(network, "g")
        await CLOCK.sleep(580)  # longer than the default, and shorter than the broker waits
        assert network.is_ready(1)


async def test_a_broker_that_throttles_us_is_left_alone(autojump_clock: MockClock) -> None:
    async with open_peers("b1") as peers:
        peers["b1"].on(
            ApiKey.FIND_COORDINATOR,
            lambda request: attrs.evolve(echo(request), throttle_time_ms=3_000),
        )
        await peers.start()
        network = peers.network_client()
        await ask_host(network, "g")
        start = CLOCK.now()
        await ask_host(network, "g")
        assert CLOCK.now() - start == pytest.approx(3, abs=0.1)


async def test_closing_fails_pending_requests(autojump_clock: MockClock) -> None:
    async with open_peers("b1") as peers:
        await peers_that_answer_after(peers, 60.0)
        network = peers.network_client()
        pending = network.send(B1, ask(find("g"), max_version=3))
        await CLOCK.sleep(1)
        network.close()
        network.close()
        with pytest.raises(PeerUnavailableError, match="closed"):
            await pending.wait()
        with pytest.raises(PeerUnavailableError, match="closed"):
            await ask_host(network, "g")


# -- hostile peers


@pytest.mark.parametrize("behave", HOSTILE)
async def test_a_hostile_peer_costs_an_exception_and_no_hang(
    autojump_clock: MockClock, behave: Any
) -> None:
    async with open_peers() as peers:
        raw = peers.add_raw("b1", behave)
        await peers.nursery.start(raw.serve)
        network = peers.network_client(request_timeout_ms=5_000)
        start = CLOCK.now()
        for _ in range(2):
            with pytest.raises((PeerUnavailableError, ProtocolError)):
                await ask_host(network, "g")
        assert CLOCK.now() - start < 11
        await trio.testing.wait_all_tasks_blocked()
        assert not network.is_ready(1), "that connection is gone"
