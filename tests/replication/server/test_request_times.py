"""How long requests take, and where the time goes."""

import pytest
import trio
from trio.testing import MockClock

from replication.leader.purgatory import WAITED, Purgatory, Waited
from replication.metrics import KEPT, MetricsRegistry
from replication.net.clock import TrioClock
from replication.server.request_metrics import TIMES, RequestMetrics, Stopwatch, times_metric
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest
from replication.wire.frames import RequestHeader

HEADER = RequestHeader(api_key=ApiKey.FETCH, api_version=12, correlation_id=1, client_id="c")


class Never:
    def satisfied(self) -> bool:
        return False

    def satisfied_by(self, _: str, /) -> bool:
        return False


def shown(metrics: RequestMetrics, request: str) -> dict[str, list[float]]:
    assert metrics.registry is not None
    found = dict(metrics.registry.distributions())
    return {part: list(found[times_metric(part, request)].latest()) for part in TIMES}


async def test_what_a_handler_waits_in_a_purgatory_is_remote(autojump_clock: MockClock) -> None:
    clock = TrioClock()
    metrics = RequestMetrics(MetricsRegistry(clock.now))
    purgatory = Purgatory[str](clock=clock)
    watch = Stopwatch(clock.now, Waited())
    WAITED.set(watch.waited)
    for _ in range(2):  # what the first has waited is not the second's
        request = FetchRequest()
        watch.start()
        await clock.sleep(1)
        metrics.add(HEADER, request, frame_size=100)
        watch.handler = clock.now()
        await clock.sleep(2)
        await purgatory.wait(Never(), ["t-0"], timeout_ms=3000)
        watch.answer = clock.now()
        await clock.sleep(4)
        watch.sending = clock.now()
        await clock.sleep(5)
        metrics.answered(request, watch)
    expected = [1000, 2000, 3000, 4000, 5000, 15000]
    for name in ("Fetch", "FetchConsumer"):
        times = shown(metrics, name)
        assert list(times) == list(TIMES)
        for part, value in zip(times.values(), expected, strict=True):
            assert part == pytest.approx([value, value])


async def test_two_waits_at_once_are_no_longer_than_the_time_they_take(
    autojump_clock: MockClock,
) -> None:
    clock = TrioClock()
    metrics = RequestMetrics(MetricsRegistry(clock.now))
    purgatory = Purgatory[str](clock=clock)
    watch = Stopwatch(clock.now, Waited())
    WAITED.set(watch.waited)
    metrics.add(HEADER, FetchRequest(), frame_size=100)
    watch.start()

    async def wait() -> None:
        await purgatory.wait(Never(), ["t-0"], timeout_ms=1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
    watch.answer = watch.sending = clock.now()
    metrics.answered(FetchRequest(), watch)
    times = shown(metrics, "Fetch")
    assert times["RemoteTimeMs"] == pytest.approx([1000])
    assert times["LocalTimeMs"] == pytest.approx([0])


def test_the_latest_are_kept_and_all_are_counted() -> None:
    metrics = RequestMetrics(MetricsRegistry(lambda: 0.0))
    watch = Stopwatch(lambda: 0.0, Waited())
    metrics.add(HEADER, FetchRequest(), frame_size=100)
    for _ in range(KEPT + 10):
        metrics.answered(FetchRequest(), watch)
    assert metrics.times["Fetch"].count == KEPT + 10
    assert len(shown(metrics, "Fetch")["TotalTimeMs"]) == KEPT
