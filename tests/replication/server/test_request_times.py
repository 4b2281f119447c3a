"""How long requests take, and where the time goes."""

import pytest
import trio
from trio.testing import MockClock

from replication.leader.purgatory import WAITED, Purgatory, Waited
from replication.metrics import KEPT, MetricsRegistry
from replication.net.clock import TrioClock
from replication.server.request_metrics import TIMES, RequestMetrics, Stopwatch, times_metric
from replication.wire.fetch import FetchRequest


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
        counts = metrics.received(request, version=4, size=100, header_size=11)
        watch.handler = clock.now()
        await clock.sleep(2)
        await purgatory.wait(Never(), ["t-0"], timeout_ms=3000)
        watch.answer = clock.now()
        await clock.sleep(4)
        watch.sending = clock.now()
        await clock.sleep(5)
        watch.sent = clock.now()
        metrics.answered(counts, watch.moments)
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
    counts = metrics.received(FetchRequest(), version=4, size=100, header_size=11)
    watch.start()

    async def wait() -> None:
        await purgatory.wait(Never(), ["t-0"], timeout_ms=1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
    watch.answer = watch.sending = watch.sent = clock.now()
    metrics.answered(counts, watch.moments)
    times = shown(metrics, "Fetch")
    assert times["RemoteTimeMs"] == pytest.approx([1000])
    assert times["LocalTimeMs"] == pytest.approx([0])


def test_the_latest_are_kept_and_all_are_counted() -> None:
    metrics = RequestMetrics(MetricsRegistry(lambda: 0.0))
    watch = Stopwatch(lambda: 0.0, Waited())
    counts = metrics.received(FetchRequest(), version=4, size=100, header_size=11)
    for _ in range(KEPT + 10):
        metrics.answered(counts, watch.moments)
    assert metrics.counts["Fetch"].times.count == KEPT + 10
    assert len(shown(metrics, "Fetch")["TotalTimeMs"]) == KEPT
