"""Throttled replication: the rate as Kafka measures it, and the replicas that it throttles."""

from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from replication.leader.rules.quota import ReplicationQuota, ReplicationQuotas, SampledRate
from storage.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_rate_is_over_one_sample_at_least() -> None:
    rate = SampledRate(samples=11, sample_ms=1000)
    assert rate.per_second(now_ms=0) == 0
    rate.record(500, now_ms=0)
    assert rate.per_second(now_ms=0) == 500
    assert rate.per_second(now_ms=999) == 500
    assert rate.per_second(now_ms=2000) == 250


def test_a_burst_fades_and_is_gone_after_the_window() -> None:
    rate = SampledRate(samples=11, sample_ms=1000)
    rate.record(11_000, now_ms=0)
    assert rate.per_second(now_ms=10_999) == pytest.approx(11_000 / 10.999)
    assert rate.per_second(now_ms=11_000) == 0


def test_an_old_sample_makes_room_and_the_rate_follows() -> None:
    rate = SampledRate(samples=2, sample_ms=1000)
    for second, amount in enumerate((9000, 300, 300, 300)):
        rate.record(amount, now_ms=1000 * second)
    # 9000 has been written over, and the 300 of the first second are two seconds old.
    assert rate.per_second(now_ms=3000) == 600


Events = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5000)), min_size=1, max_size=25)


@given(Events)
def test_within_the_window_it_is_what_was_recorded_over_the_time_it_took(
    events: list[tuple[int, int]],
) -> None:
    """The naive twin: as long as nothing is old, everything counts."""
    rate = SampledRate(samples=11, sample_ms=1000)
    moments = list(accumulate(pause for pause, _ in events))
    for moment, (_, amount) in zip(moments, events, strict=True):
        rate.record(amount, now_ms=moment)
    elapsed_ms = moments[-1] - moments[0]
    total = sum(amount for _, amount in events)
    assert rate.per_second(now_ms=moments[-1]) == total * 1000 / max(elapsed_ms, 1000)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), max_size=40))
def test_nothing_counts_that_is_older_than_the_window_and_a_sample(
    events: list[tuple[int, int]],
) -> None:
    rate = SampledRate(samples=3, sample_ms=1000)
    now_ms, recorded = 0, []
    for pause, amount in events:
        now_ms += pause
        rate.record(amount, now_ms=now_ms)
        recorded.append((now_ms, amount))
        recent = sum(amount for at, amount in recorded if now_ms - at <= 4000)
        assert 0 < rate.per_second(now_ms=now_ms) <= recent


def quota(*, at_most: int, **throttled: list[str]) -> ReplicationQuota:
    made = ReplicationQuota(bytes_per_second=at_most)
    for topic, replicas in throttled.items():
        made.throttle(topic, replicas, broker_id=1)
    return made


def test_only_this_brokers_replicas_are_throttled_here() -> None:
    subject = quota(at_most=0, t=["0:1", "1:2"], every=["*"])
    assert subject.is_throttled(T0)
    assert not subject.is_throttled(T1)
    assert not subject.is_throttled(TopicPartition("other", 0))
    assert subject.is_throttled(TopicPartition("every", 77))


def test_naming_replicas_takes_the_place_of_those_named_before() -> None:
    subject = quota(at_most=0, t=["0:1"])
    subject.throttle("t", ["1:1"], broker_id=1)
    assert (subject.is_throttled(T0), subject.is_throttled(T1)) == (False, True)
    subject.throttle("t", ["*"], broker_id=1)
    assert subject.is_throttled(T0)
    subject.throttle("t", [], broker_id=1)
    assert not subject.throttles
    subject.throttle("t", ["0:2"], broker_id=1)
    assert not subject.throttles, "another broker's replica"


def test_the_bound_itself_is_not_exceeded() -> None:
    subject = quota(at_most=100, t=["0:1"])
    subject.record({T0: 100}, now_ms=0)
    assert not subject.holds_back(T0, now_ms=0)
    subject.record({T0: 1}, now_ms=0)
    assert subject.holds_back(T0, now_ms=0)
    assert not subject.holds_back(T1, now_ms=0), "not throttled"
    assert not subject.holds_back(T0, now_ms=2000), "the rate has fallen"


def test_what_is_not_throttled_does_not_count() -> None:
    subject = quota(at_most=0, t=["0:1"])
    subject.record({T1: 1000}, now_ms=0)
    assert not subject.is_exceeded(now_ms=0)
    subject.record({T1: 1000, T0: 1}, now_ms=0)
    assert subject.rate.per_second(now_ms=0) == 1


def test_without_a_limit_nothing_is_held_back() -> None:
    quotas = ReplicationQuotas.measured_over(samples=11, sample_ms=1000)
    for side in (quotas.leader, quotas.follower):
        side.throttle("t", ["*"], broker_id=1)
        side.record({T0: 1 << 40}, now_ms=0)
        assert not side.holds_back(T0, now_ms=0)
    quotas.limit(leader=1, follower=2)
    assert (quotas.leader.bytes_per_second, quotas.follower.bytes_per_second) == (1, 2)
    assert quotas.leader.holds_back(T0, now_ms=0)
    quotas.forget("t")
    assert not quotas.leader.holds_back(T0, now_ms=0)
