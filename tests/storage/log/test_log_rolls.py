"""When a log rolls, against a twin that counts what its active segment holds.

A follower's appends: it takes what its leader sends, with gaps as wide as compaction leaves them.
(LogSegment.shouldRoll in Kafka; LocalLog.roll, but that segments join here.)
"""

from typing import NamedTuple

import attrs
from hypothesis import event, given, strategies as st

from storage.batch.record_batch import NO_TIMESTAMP
from storage.config import LogConfig
from tests.storage.logs import WALL_MS, bases, batch, new_disk, open_log

REACH = 2**31 - 1
SEGMENT_MS = 1000
JITTERS = [0, 1, 700, 5000]
# Around where a segment that began at 0 is old at the earliest, and at the latest.
EDGES = [0] * 6 + [1, 2, 300, 301, 302, 999, 1000, 1001]


class Step(NamedTuple):
    """One append: how many offsets it leaves out and has, and how long after the last it comes."""

    gap: int
    records: int
    timestamp: int
    size: int
    passed_ms: int


one_step = st.builds(
    Step,
    st.sampled_from([0] * 20 + [1, 2**30, REACH - 1, REACH, REACH + 1, 2**33]),
    st.integers(1, 3),
    st.sampled_from([NO_TIMESTAMP, *(WALL_MS + each for each in EDGES)])
    | st.integers(WALL_MS, WALL_MS + 1500),
    st.integers(0, 200),
    st.integers(0, 600),
)
varied = st.lists(one_step, min_size=1, max_size=30)
# The same again and again fills the offset index first: no timestamp is younger.
steady = st.builds(lambda step, times: [step] * times, one_step, st.integers(2, 12))
configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([800, 1 << 20, 1 << 20]),
    segment_ms=st.sampled_from([SEGMENT_MS, SEGMENT_MS, 2**60]),
    segment_jitter_ms=st.sampled_from(JITTERS),
    segment_index_bytes=st.sampled_from([24, 40, 60, 1 << 12]),
    index_interval_bytes=st.sampled_from([0, 150, 400]),
)


@attrs.define
class Twin:
    """The active segment, as few numbers."""

    config: LogConfig
    now: int
    base: int = 0
    end: int = 0
    size: int = 0
    first_timestamp: int = NO_TIMESTAMP
    created: int = 0
    # The longest that it was seen to wait without a roll.
    waited: int = -(2**62)
    offset_entries: int = 0
    time_entries: int = 0
    largest: int = NO_TIMESTAMP
    indexed: int = NO_TIMESTAMP
    since_entry: int = 0

    def __attrs_post_init__(self) -> None:
        self.created = self.now

    def reasons(self, last: int, size: int) -> set[str]:
        """Why it must roll, but for its age."""
        found = set()
        if self.size + size > self.config.segment_bytes:
            found.add("bytes")
        if self.offset_entries >= self.config.segment_index_bytes // 8:
            found.add("offset index")
        if self.time_entries >= self.config.segment_index_bytes // 12 - 1:
            found.add("time index")
        if last - self.base > REACH:
            found.add("offsets")
        return found

    def age(self, timestamp: int) -> int:
        if self.size == 0:
            return -(2**62)
        if self.first_timestamp != NO_TIMESTAMP:
            return timestamp - self.first_timestamp
        return self.now - self.created

    def rolled(self, first: int, last: int) -> "Twin":
        base = first if last - self.end > REACH else self.end
        return Twin(self.config, self.now, base, base)

    def append(self, last: int, timestamp: int, size: int) -> None:
        if self.size == 0:
            self.first_timestamp = timestamp
        self.largest = max(self.largest, timestamp)
        if self.since_entry > self.config.index_interval_bytes:
            self.offset_entries += 1
            if self.largest > self.indexed:
                self.time_entries, self.indexed = self.time_entries + 1, self.largest
            self.since_entry = 0
        self.since_entry += size
        self.size += size
        self.end = last + 1


@given(wanted=varied | varied | steady, config=configs)
def test_a_segment_rolls_for_each_reason_and_for_no_other(
    wanted: list[Step], config: LogConfig
) -> None:
    twin = Twin(config, WALL_MS)
    log = open_log(new_disk(), config, wall_ms=WALL_MS)
    expected = [0]
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    for step in wanted:
        twin.now += step.passed_ms
        first, last = twin.end + step.gap, twin.end + step.gap + step.records - 1
        data = batch(step.records, at=first, epoch=0, timestamp=step.timestamp, size=step.size)
        reasons = twin.reasons(last, len(data))
        age = twin.age(step.timestamp)
        if age > config.segment_ms:
            reasons.add("age")
        segments = len(log.segments)
        log.append_as_follower(data, wall_ms=twin.now)
        rolled = len(log.segments) > segments
        if rolled and not reasons:
            # Some point of its own in there (LogConfig.randomSegmentJitter).
            assert age > config.segment_ms - (jitter - 1)
            assert age > twin.waited, "it waited longer without a roll"
            reasons.add("jitter")
        assert rolled == bool(reasons), reasons
        for reason in reasons:
            event(reason)
        if rolled:
            twin = twin.rolled(first, last)
            expected.append(twin.base)
        else:
            twin.waited = max(twin.waited, age)
        twin.append(last, step.timestamp, len(data))
        assert bases(log) == expected
    assert all(each.end_offset - 1 - each.base_offset <= REACH for each in log.segments)
