"""A consumer's numbers, as Kafka's FetcherTest has them."""

import pytest

from replication.errors import ErrorCode
from storage.batch.compression import Codec
from tests.replication.client.consumer.fetching import T0, T1, data, reading, values


@pytest.mark.conformance("CF-74")
def test_the_time_that_brokers_throttle_is_counted() -> None:
    rig = reading(T0)
    for throttled_ms in (100, 200, 300, 400):
        rig.fetch({}, throttle_time_ms=throttled_ms)
        rig.collect()
    assert rig.metric("fetch-throttle-time-avg") == 250
    assert rig.metric("fetch-throttle-time-max") == 400


@pytest.mark.conformance("CF-75")
def test_lag_is_the_number_of_records_left_to_read() -> None:
    rig = reading(T0)
    assert rig.metric("records-lag-max") != rig.metric("records-lag-max"), "nothing is known yet"
    rig.fetch({T0: data(high_watermark=100)})
    rig.collect()
    assert rig.metric("records-lag-max") == 100
    assert rig.metric("records-lag", T0) == 100
    rig.fetch({T0: data(values(0, 2), high_watermark=200)})
    rig.collect()
    assert rig.metric("records-lag-max") == 197
    assert rig.metric("records-lag", T0) == 197
    rig.assign(T1, at=0)
    rig.send()
    with pytest.raises(KeyError):
        rig.metric("records-lag", T0)


@pytest.mark.conformance("CF-76")
def test_lead_is_the_number_of_kept_records_that_were_read() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(log_start_offset=0)})
    rig.collect()
    assert rig.metric("records-lead-min") == 0
    assert rig.metric("records-lead", T0) == 0
    rig.fetch({T0: data(values(0, 2), log_start_offset=0)})
    rig.collect()
    assert rig.metric("records-lead-min") == 0
    assert rig.metric("records-lead", T0) == 3


@pytest.mark.conformance("CF-77")
def test_read_committed_lags_behind_the_last_stable_offset() -> None:
    rig = reading(T0, read_committed=True)
    rig.fetch({T0: data(high_watermark=100, last_stable_offset=50)})
    rig.collect()
    assert rig.metric("records-lag-max") == 50
    rig.fetch({T0: data(values(0, 2), high_watermark=200, last_stable_offset=150)})
    rig.collect()
    assert rig.metric("records-lag-max") == 147
    assert rig.metric("records-lag", T0) == 147


def test_lag_of_a_window_that_is_over_is_forgotten() -> None:
    rig = reading(T0)
    rig.fetch({T0: data(high_watermark=100)})
    rig.collect()
    rig.now_ms += 70_000
    rig.fetch({T0: data(high_watermark=30)})
    rig.collect()
    assert rig.metric("records-lag-max") == 30


@pytest.mark.conformance("CF-78")
def test_sizes_are_summed_over_the_partitions_of_an_answer() -> None:
    rig = reading(T0, T1, at=1)
    first, second = values(1, 3), values(1, 3, codec=Codec.GZIP)
    rig.fetch({T0: data(first), T1: data(second)})
    rig.collect()
    assert rig.metric("fetch-size-avg") == pytest.approx(len(first) + len(second))
    assert rig.metric("records-per-request-avg") == 6
    assert rig.metric("records-consumed-total") == 6


@pytest.mark.conformance("CF-79")
def test_records_below_the_position_are_not_counted() -> None:
    rig = reading(T0, at=2)
    rig.fetch({T0: data(values(1, 3))})
    rig.collect()
    assert rig.metric("records-per-request-avg") == 2
    assert rig.metric("fetch-size-avg") == pytest.approx(len(values(1, 3)) * 2 / 3)


@pytest.mark.conformance("CF-80")
def test_a_partition_in_error_counts_as_nothing_beside_the_others() -> None:
    rig = reading(T0, T1, at=1)
    failed = data(values(1, 3), error=ErrorCode.OFFSET_OUT_OF_RANGE)
    rig.fetch({T0: data(values(1, 3)), T1: failed})
    rig.collect()
    assert rig.metric("fetch-size-avg") == len(values(1, 3))
    assert rig.metric("records-per-request-avg") == 3


@pytest.mark.conformance("CF-81")
def test_a_partition_that_was_dropped_counts_as_nothing() -> None:
    rig = reading(T0, T1, at=1)
    [sent] = rig.send()
    rig.seek(T1, 5)
    rig.answer(sent, {T0: data(values(1, 3)), T1: data(values(1, 3))})
    rig.collect()
    assert rig.metric("fetch-size-avg") == len(values(1, 3))
    assert rig.metric("records-per-request-avg") == 3


@pytest.mark.conformance("CF-82")
def test_every_number_is_declared_and_every_declared_one_is_there() -> None:
    from replication.client.consumer.metrics import FETCH_METRICS, PARTITION_METRICS

    rig = reading(T0)
    rig.fetch({T0: data(values(0, 2))})
    rig.collect()
    of_all = {each.name for each in rig.registry.names() if "topic" not in dict(each.tags)}
    of_one = {each.name for each in rig.registry.names() if "topic" in dict(each.tags)}
    assert of_all == set(FETCH_METRICS)
    assert of_one == set(PARTITION_METRICS)
    for name, value in rig.registry.snapshot():
        assert isinstance(value, int | float), name
