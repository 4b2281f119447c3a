import attrs
import pytest
from hypothesis import given, strategies as st

from replication.follower.rules.fetch_state import (
    UNKNOWN_INIT_OFFSET,
    BrokerEndPoint,
    FetchPhase,
    InitialFetchState,
    PartitionFetchState,
    PartitionStates,
    initial_state,
)
from storage.types import TopicPartition

LEADER = BrokerEndPoint(1, "leader", 9092)


def state(
    offset: int = 0, *, lag: int | None = None, delayed_until: float | None = None
) -> PartitionFetchState:
    return PartitionFetchState(
        fetch_offset=offset,
        lag=lag,
        current_leader_epoch=3,
        delayed_until=delayed_until,
        phase=FetchPhase.FETCHING,
    )


def initial(offset: int, *, epoch: int = 3) -> InitialFetchState:
    return InitialFetchState(leader=LEADER, current_leader_epoch=epoch, init_offset=offset)


# -- one state ----------------------------------------------------------------


def test_a_delayed_partition_is_neither_fetched_nor_truncated_until_its_deadline() -> None:
    fetching = state(delayed_until=10.0)
    truncating = attrs.evolve(fetching, phase=FetchPhase.TRUNCATING)
    assert not fetching.is_ready_for_fetch(9.9)
    assert not truncating.is_truncating(9.9)
    assert fetching.is_ready_for_fetch(10.0)
    assert truncating.is_truncating(10.0)


@pytest.mark.parametrize(("lag", "in_sync"), [(None, False), (0, True), (1, False)])
def test_only_a_known_lag_of_nothing_is_in_sync(lag: int | None, *, in_sync: bool) -> None:
    assert state(lag=lag).is_replica_in_sync is in_sync


# -- being added --------------------------------------------------------------


def test_adding_at_the_same_epoch_keeps_the_state_whatever_the_offset() -> None:
    existing = state(7, delayed_until=99.0)
    found = initial_state(
        initial(1), existing=existing, latest_epoch=None, truncation_on_fetch=True
    )
    assert found is existing


def test_a_new_epoch_replaces_the_state_and_clears_its_delay() -> None:
    found = initial_state(
        initial(1, epoch=4),
        existing=state(7, delayed_until=99.0, lag=5),
        latest_epoch=2,
        truncation_on_fetch=True,
    )
    assert (found.fetch_offset, found.current_leader_epoch) == (1, 4)
    assert (found.delayed_until, found.lag) == (None, None)


@pytest.mark.parametrize(
    ("offset", "latest_epoch", "truncation_on_fetch", "expected", "last_fetched_epoch"),
    [
        pytest.param(5, 2, True, FetchPhase.FETCHING, 2, id="the fetch itself will tell"),
        pytest.param(5, None, True, FetchPhase.TRUNCATING, None, id="no epoch to compare by"),
        pytest.param(5, 2, False, FetchPhase.TRUNCATING, None, id="legacy: ask for epochs first"),
        pytest.param(-1, 2, True, FetchPhase.TRUNCATING, 2, id="ask where to begin"),
    ],
)
def test_where_a_new_partition_starts(
    offset: int,
    latest_epoch: int | None,
    truncation_on_fetch: bool,
    expected: FetchPhase,
    last_fetched_epoch: int | None,
) -> None:
    found = initial_state(
        initial(offset),
        existing=None,
        latest_epoch=latest_epoch,
        truncation_on_fetch=truncation_on_fetch,
    )
    assert found.phase is expected
    assert found.last_fetched_epoch == last_fetched_epoch
    assert found.needs_offset == (offset < 0)
    assert found.fetch_offset == (offset if offset >= 0 else UNKNOWN_INIT_OFFSET)


# -- many states, in order ----------------------------------------------------

PARTITIONS = [TopicPartition(topic, at) for topic in ("a", "b", "c") for at in range(3)]


class ListModel:
    """Round-robin order as a list of pairs: slow, and impossible to get wrong."""

    def __init__(self) -> None:
        self.pairs: list[tuple[TopicPartition, PartitionFetchState]] = []

    def remove(self, partition: TopicPartition) -> None:
        self.pairs = [pair for pair in self.pairs if pair[0] != partition]

    def to_end(self, partition: TopicPartition, new: PartitionFetchState) -> None:
        self.remove(partition)
        self.pairs.append((partition, new))

    def in_place(self, partition: TopicPartition, new: PartitionFetchState) -> None:
        self.pairs = [(p, new if p == partition else s) for p, s in self.pairs]

    def regroup(self, changed: dict[TopicPartition, PartitionFetchState]) -> None:
        topics = [p.topic for p, _ in self.pairs]
        self.pairs = [(p, changed.get(p, s)) for p, s in self.pairs]
        self.pairs.sort(key=lambda pair: topics.index(pair[0].topic))


steps = st.lists(
    st.tuples(
        st.sampled_from(["end", "place", "remove", "delay", "regroup"]),
        st.sampled_from(PARTITIONS),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(steps)
def test_round_robin_order_is_that_of_a_plain_list(
    steps: list[tuple[str, TopicPartition, int]],
) -> None:
    real, model = PartitionStates(), ListModel()
    for step, partition, number in steps:
        known = real.get(partition)
        if step == "end":
            real.update_and_move_to_end(partition, state(number))
            model.to_end(partition, state(number))
        elif step == "place" and known is not None:
            real.update(partition, state(number))
            model.in_place(partition, state(number))
        elif step == "remove":
            assert real.remove(partition) == known
            model.remove(partition)
        elif step == "delay":
            delayed = real.delay(partition, until=number, now=2)
            assert delayed == (known is not None and not known.is_delayed(2))
            if known is not None and delayed:
                model.to_end(partition, attrs.evolve(known, delayed_until=number))
        elif step == "regroup":
            real.regroup({partition: state(number)})
            model.regroup({partition: state(number)})
        assert list(real.items()) == model.pairs
        assert len(real) == len(model.pairs)


def test_the_next_deadline_is_the_earliest_that_has_not_passed() -> None:
    states = PartitionStates()
    assert states.next_deadline(0) is None
    for partition, until in zip(PARTITIONS, (1.0, 9.0, 5.0, None), strict=False):
        states.update_and_move_to_end(partition, state(delayed_until=until))
    assert states.next_deadline(2.0) == 5.0
    assert states.next_deadline(9.0) is None
