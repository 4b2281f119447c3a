import pytest

from replication.metrics import MetricName, MetricsRegistry

LAG = MetricName("kafka.server", "FetcherLagMetrics", "ConsumerLag", (("topic", "t"),))


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_name_prints_as_kafkas_object_name() -> None:
    assert str(LAG) == "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,topic=t"


def test_a_gauge_is_computed_when_it_is_read_and_gone_when_removed() -> None:
    registry, lag = MetricsRegistry(Hands()), [3]
    registry.gauge(LAG, lambda: lag[0])
    lag[0] = 7
    assert registry.read(LAG) == 7
    assert list(registry.snapshot()) == [(LAG, 7)]
    registry.remove(LAG)
    registry.remove(LAG)
    assert LAG not in registry
    with pytest.raises(KeyError):
        registry.read(LAG)


def test_a_meter_is_one_per_name() -> None:
    registry = MetricsRegistry(Hands())
    registry.meter(LAG).mark()
    registry.meter(LAG).mark(4)
    assert registry.read(LAG) == 5


def test_a_rate_follows_a_steady_stream_and_decays_after_it() -> None:
    hands = Hands()
    meter = MetricsRegistry(hands).rated_meter(LAG)
    assert meter.one_minute_rate() == 0
    for _ in range(60):
        meter.mark(2)
        hands.now += 1
    assert meter.one_minute_rate() == pytest.approx(2)
    hands.now += 60
    assert meter.one_minute_rate() == pytest.approx(2 / 2.718281828, rel=0.01)
    hands.now += 3600
    assert meter.one_minute_rate() == pytest.approx(0, abs=1e-6)
