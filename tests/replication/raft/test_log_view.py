"""Where a follower may read in the leader's log, and whose log is the longer one."""

import pytest
from hypothesis import given, strategies as st

from replication.raft.rules.log_view import (
    BelowStart,
    Diverging,
    LogView,
    Position,
    ReadOn,
    position_of,
)
from storage.checkpoint import EpochEntry
from storage.types import OffsetAndEpoch

# [e1: 0-4][e3: 5-7]
WHOLE = LogView(end_offset=8, epochs=(EpochEntry(1, 0), EpochEntry(3, 5)))
# a snapshot of all below 5, then [e3: 5-7]
CUT = LogView(
    start_offset=5,
    end_offset=8,
    epochs=(EpochEntry(3, 5),),
    earliest_snapshot=OffsetAndEpoch(5, 1),
    latest_snapshot=OffsetAndEpoch(7, 3),
)
LATEST = BelowStart(OffsetAndEpoch(7, 3))


@pytest.mark.conformance("KR-593", "KR-594", "KR-595", "KR-596", "KR-597", "KR-598", "KR-599")
@pytest.mark.parametrize(
    ("log", "fetch_offset", "last_fetched_epoch", "position"),
    [
        pytest.param(LogView(), 0, 0, ReadOn(), id="two empty logs"),
        pytest.param(WHOLE, 0, 0, ReadOn(), id="an empty log"),
        pytest.param(WHOLE, 3, 1, ReadOn(), id="a beginning"),
        pytest.param(WHOLE, 8, 3, ReadOn(), id="all of it"),
        pytest.param(WHOLE, 9, 3, Diverging(OffsetAndEpoch(8, 3)), id="longer"),
        pytest.param(WHOLE, 6, 1, Diverging(OffsetAndEpoch(5, 1)), id="more of an epoch"),
        pytest.param(WHOLE, 6, 2, Diverging(OffsetAndEpoch(5, 1)), id="an epoch that is not here"),
        pytest.param(WHOLE, 8, 4, Diverging(OffsetAndEpoch(8, 3)), id="a later epoch"),
        pytest.param(CUT, 0, 0, LATEST, id="an empty log, and a snapshot"),
        pytest.param(CUT, 4, 1, LATEST, id="below the start"),
        pytest.param(CUT, 5, 1, ReadOn(), id="at the start"),
        pytest.param(CUT, 5, 2, LATEST, id="at the start with another epoch"),
        pytest.param(CUT, 6, 1, Diverging(OffsetAndEpoch(5, 1)), id="more than the snapshot"),
        pytest.param(CUT, 6, 0, LATEST, id="an epoch before the snapshot"),
        pytest.param(CUT, 7, 3, ReadOn(), id="above the start"),
    ],
)
def test_where_a_follower_may_read(
    log: LogView, fetch_offset: int, last_fetched_epoch: int, position: Position
) -> None:
    found = position_of(log, fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch)
    assert found == position


def view(epochs: list[int]) -> LogView:
    """Return the log whose records have these epochs."""
    starts = {epoch: epochs.index(epoch) for epoch in dict.fromkeys(epochs)}
    entries = tuple(EpochEntry(epoch, start) for epoch, start in starts.items())
    return LogView(end_offset=len(epochs), epochs=entries)


logs = st.lists(st.integers(1, 4), max_size=7).map(sorted)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Return logs of one quorum: the leader of an epoch goes on from a beginning of some log."""
    written: list[list[int]] = [[]]
    for epoch in range(1, 5):
        base = draw(st.sampled_from(written))
        kept = draw(st.integers(0, len(base)))
        written.append(base[:kept] + [epoch] * draw(st.integers(1, 3)))
    one, two = (draw(st.sampled_from(written)) for _ in range(2))
    return one[: draw(st.integers(0, len(one)))], two[: draw(st.integers(0, len(two)))]


@pytest.mark.conformance("KR-533")
@given(two_logs())
def test_a_follower_that_does_what_it_is_answered_gets_the_leaders_log(
    both: tuple[list[int], list[int]],
) -> None:
    leader, follower = both
    for _ in range(len(follower) + 2):
        last = follower[-1] if follower else 0
        match position_of(view(leader), fetch_offset=len(follower), last_fetched_epoch=last):
            case ReadOn():
                assert follower == leader[: len(follower)]
                follower = leader
                break
            case Diverging(end):
                # As ReplicatedLog.truncateToEndOffset: to where that epoch ends in both logs.
                kept = [epoch for epoch in follower if epoch <= end.leader_epoch]
                follower = kept[: end.offset] if kept and kept[-1] == end.leader_epoch else kept
            case BelowStart():
                raise AssertionError("there is no snapshot")
    assert follower == leader


@given(logs, logs)
def test_the_longer_log_has_the_later_epoch_or_the_later_end(
    one: list[int], two: list[int]
) -> None:
    def is_granted(candidate: list[int], voter: list[int]) -> bool:
        last = candidate[-1] if candidate else 0
        return view(voter).is_reached_by(last_epoch=last, end_offset=len(candidate))

    assert is_granted(one, two) or is_granted(two, one)
    if is_granted(one, two) and is_granted(two, one):
        assert (len(one), one[-1:]) == (len(two), two[-1:])
