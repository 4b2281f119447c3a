"""A broker's registration, heartbeats and leaving, against a controller on virtual time."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from replication.broker.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    RegistrationRefusedError,
    UnreportedDirectoryError,
)
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.rules.levels import named_features
from replication.net.clock import TrioClock
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from replication.wire.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Endpoint,
)
from tests.replication.controller.controllers import FakeController

CLOCK = TrioClock()


def raise_it(error: UnreportedDirectoryError) -> None:
    raise error


def lifecycle_of(
    controller: FakeController,
    *,
    metadata_offset: int = 100,
    cluster_id: str = "c",
    on_unreported_directory: Callable[[UnreportedDirectoryError], None] = raise_it,
) -> BrokerLifecycle:
    return BrokerLifecycle(
        broker_id=1,
        cluster_id=cluster_id,
        incarnation_id=bytes(range(16)),
        endpoints=[Endpoint("PLAINTEXT", "localhost", 9092)],
        rack="r1",
        channel=controller,
        clock=CLOCK,
        heartbeat_interval_ms=2000,
        session_timeout_ms=9000,
        registration_timeout_ms=60_000,
        metadata_offset=lambda: metadata_offset,
        directory_failure_timeout_ms=30_000,
        on_unreported_directory=on_unreported_directory,
    )


async def test_a_registration_says_where_the_broker_is_and_learns_its_epoch(
    autojump_clock: MockClock,
) -> None:
    controller = FakeController(lambda _: BrokerRegistrationResponse(broker_epoch=7))
    lifecycle = lifecycle_of(controller)
    await lifecycle.register(previous_broker_epoch=5)
    (request,) = controller.requests
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.cluster_id, request.rack) == (1, "c", "r1")
    assert request.previous_broker_epoch == 5
    assert request.features == named_features()
    assert [(each.name, each.host, each.port) for each in request.listeners] == [
        ("PLAINTEXT", "localhost", 9092)
    ]
    assert (lifecycle.broker_epoch, lifecycle.state) == (7, BrokerState.RECOVERY)


async def test_a_broker_waits_for_a_controller_and_for_its_old_session_to_end(
    autojump_clock: MockClock,
) -> None:
    duplicate = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    answers = [None, None, duplicate, duplicate, BrokerRegistrationResponse(broker_epoch=7)]
    lifecycle = lifecycle_of(FakeController(lambda _: answers.pop(0)))
    await lifecycle.register(previous_broker_epoch=-1)
    assert lifecycle.broker_epoch == 7


async def test_a_broker_of_another_cluster_does_not_try_twice(autojump_clock: MockClock) -> None:
    refusal = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    controller = FakeController(lambda _: refusal)
    with pytest.raises(RegistrationRefusedError, match="broker 1 is of cluster c"):
        await lifecycle_of(controller).register(previous_broker_epoch=-1)
    assert len(controller.requests) == 1


async def test_a_broker_whose_directories_are_not_formatted_says_so(
    autojump_clock: MockClock,
) -> None:
    refusal = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    lifecycle = lifecycle_of(FakeController(lambda _: refusal), cluster_id="")
    with pytest.raises(RegistrationRefusedError, match="of broker 1 are not formatted"):
        await lifecycle.register(previous_broker_epoch=-1)


async def test_a_broker_whose_id_stays_taken_gives_up_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    refusal = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    with pytest.raises(
        RegistrationRefusedError, match=r"for 60 s .*: DUPLICATE_BROKER_REGISTRATION"
    ):
        await lifecycle_of(FakeController(lambda _: refusal)).register(previous_broker_epoch=-1)
    assert 59 < CLOCK.now() < 60.1


async def test_a_broker_that_lacks_a_level_says_which_it_has(autojump_clock: MockClock) -> None:
    refused = BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    lifecycle = lifecycle_of(FakeController(lambda _: refused))
    with pytest.raises(
        RegistrationRefusedError, match=r"UNSUPPORTED_VERSION, .* metadata.version 7 to 33, "
    ):
        await lifecycle.register(previous_broker_epoch=-1)


async def test_a_broker_without_a_controller_gives_up_with_the_key_that_says_when(
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(
        PeerUnavailableError,
        match=r"^broker 1 has found no controller for 60 s "
        r"\(initial.broker.registration.timeout.ms\): the controller is away$",
    ):
        await lifecycle_of(FakeController(lambda _: None)).register(previous_broker_epoch=-1)
    assert 59 < CLOCK.now() < 60.1


async def run_for(lifecycle: BrokerLifecycle, seconds: float) -> None:
    with CLOCK.move_on_after(seconds):
        await lifecycle.run()


async def test_a_fenced_broker_asks_again_soon_and_an_unfenced_one_at_its_interval(
    autojump_clock: MockClock,
) -> None:
    def answer(_: Any) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(is_fenced=len(controller.requests) < 3)

    controller = FakeController(answer)
    lifecycle = lifecycle_of(controller, metadata_offset=12)
    lifecycle.broker_epoch = 7
    await run_for(lifecycle, 4.5)
    assert [round(at, 1) for at in controller.asked_at] == [0.0, 0.1, 0.2, 2.2, 4.2]
    assert lifecycle.state is BrokerState.RUNNING
    heartbeat = controller.requests[0]
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert (heartbeat.broker_epoch, heartbeat.current_metadata_offset) == (7, 12)


async def test_heartbeats_go_on_while_the_controller_is_away(autojump_clock: MockClock) -> None:
    def answer(_: Any) -> BrokerHeartbeatResponse | None:
        return None if 3 < CLOCK.now() < 5 else BrokerHeartbeatResponse(is_fenced=False)

    controller = FakeController(answer)
    lifecycle = lifecycle_of(controller)
    await run_for(lifecycle, 7.5)
    assert lifecycle.state is BrokerState.RUNNING
    # At 0 and 2, from 4 on ten times a second, and two seconds after the first answer.
    assert len(controller.asked_at) == pytest.approx(2 + 10 + 2, abs=2)


async def test_a_broker_that_leaves_does_not_wait_for_its_interval(
    autojump_clock: MockClock,
) -> None:
    def answer(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        leaving = [each for each in controller.requests if each.want_shut_down]
        return BrokerHeartbeatResponse(is_fenced=False, should_shut_down=len(leaving) == 3)

    controller = FakeController(answer)
    lifecycle = lifecycle_of(controller)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifecycle.run)
        await CLOCK.sleep(0.5)
        assert await lifecycle.shut_down(timeout_seconds=60)
        nursery.cancel_scope.cancel()
    assert CLOCK.now() == pytest.approx(0.5 + 2 * 0.05, abs=0.01)
    assert lifecycle.state is BrokerState.NOT_RUNNING


async def test_a_broker_that_nobody_lets_go_asks_at_its_interval_after_a_while(
    autojump_clock: MockClock,
) -> None:
    controller = FakeController(lambda _: BrokerHeartbeatResponse(is_fenced=False))
    lifecycle = lifecycle_of(controller)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifecycle.run)
        await CLOCK.sleep(0.5)
        assert not await lifecycle.shut_down(timeout_seconds=60)
        nursery.cancel_scope.cancel()
    pauses = [later - earlier for earlier, later in itertools.pairwise(controller.asked_at[1:])]
    hurried = [each for each in pauses if each < 0.1]
    assert sum(hurried) == pytest.approx(2 * 2.0, abs=0.1)
    assert pauses[len(hurried) :] == pytest.approx([2.0] * 28, abs=0.01)


@pytest.mark.parametrize("granted", [True, False], ids=["granted", "out of time"])
async def test_no_heartbeat_follows_a_shutdown(autojump_clock: MockClock, granted: bool) -> None:
    """It would ask to be unfenced: the next broker to leave would wait for one that is gone."""

    def answer(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(should_shut_down=granted and request.want_shut_down)

    controller = FakeController(answer)
    lifecycle = lifecycle_of(controller)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifecycle.run)
        await CLOCK.sleep(0.5)
        assert await lifecycle.shut_down(timeout_seconds=1) == granted
        asked = len(controller.requests)
        await CLOCK.sleep(5)  # of closing its logs
        nursery.cancel_scope.cancel()
    assert len(controller.requests) == asked
    assert controller.requests[-1].want_shut_down


async def test_a_broker_does_not_wait_long_for_a_controller_that_is_away_to_let_it_go(
    autojump_clock: MockClock,
) -> None:
    lifecycle = lifecycle_of(FakeController(lambda _: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifecycle.run)
        assert not await lifecycle.shut_down(timeout_seconds=60)
        nursery.cancel_scope.cancel()
    assert 2 < CLOCK.now() < 2.5


@pytest.mark.parametrize("away_until", [29, 31])
async def test_a_lost_directory_must_be_told_in_time(
    autojump_clock: MockClock, away_until: float
) -> None:
    def answer(_: Any) -> BrokerHeartbeatResponse | None:
        return None if 3 < CLOCK.now() < 5 + away_until else BrokerHeartbeatResponse()

    def stop(error: UnreportedDirectoryError) -> None:
        stopped.append((CLOCK.now(), str(error)))

    stopped: list[tuple[float, str]] = []
    controller = FakeController(answer)
    lifecycle = lifecycle_of(controller, on_unreported_directory=stop)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_for, lifecycle, 60)
        await CLOCK.sleep(5)
        lifecycle.lose_directory(b"lost")
        lifecycle.lose_directory(b"lost")
    assert controller.requests[-1].offline_log_dirs == [b"lost"]
    line = (
        "broker 1 could not tell its controller of a lost log directory for 30 s"
        " (log.dir.failure.timeout.ms)"
    )
    assert [cause for _, cause in stopped] == ([] if away_until < 30 else [line])
    assert [at for at, _ in stopped] == pytest.approx([] if away_until < 30 else [35])


async def test_a_directory_that_was_lost_before_the_first_heartbeat_counts_from_then(
    autojump_clock: MockClock,
) -> None:
    stopped: list[float] = []
    lifecycle = lifecycle_of(
        FakeController(lambda _: None),
        on_unreported_directory=lambda _: stopped.append(CLOCK.now()),
    )
    lifecycle.lose_directory(b"lost")
    await CLOCK.sleep(10)
    await run_for(lifecycle, 60)
    assert stopped == [pytest.approx(30)]
