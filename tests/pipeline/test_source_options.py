"""The options of a reader, and offsets as Spark writes them."""

import json

import pytest
from hypothesis import given, strategies as st

from replication.wire.list_offsets import EARLIEST, LATEST

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from pipeline.source.columns import check_schema
from pipeline.source.errors import OptionError
from pipeline.source.offsets import Position
from pipeline.source.options import ReadOptions, parse_read_options
from pipeline.source.plan import OffsetRange, group, limit, split
from pipeline.source.stream import UnlimitedStream
from storage.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKERS = {"kafka.bootstrap.servers": "b1:9092,b2:9092", "subscribe": "t"}


def parse(**options: str) -> ReadOptions:
    return parse_read_options({**BROKERS, **options}, streaming=False)


def parse_stream(**options: str) -> ReadOptions:
    return parse_read_options({**BROKERS, **options}, streaming=True)


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = parse(), parse_stream()
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.read_committed
    assert batch.max_offsets_per_trigger is None
    assert batch.fetching is not None
    assert [str(each) for each in batch.fetching.config.bootstrap_servers] == ["b1:9092", "b2:9092"]


def test_the_first_of_the_three_ways_to_say_where_counts() -> None:
    everything = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"t": {"0": 6}}',
        "startingOffsets": '{"t": {"0": 7}}',
    }
    assert parse(**everything).starting.everywhere == 5
    del everything["startingTimestamp"]
    assert parse(**everything).starting.each == {T0: 6}
    del everything["startingOffsetsByTimestamp"]
    assert parse(**everything).starting.each == {T0: 7}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingOffset": "earliest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "unknown option maxoffsetspertrigger"),
        ({"kafka.fetch.mim.bytes": "5"}, "unknown key fetch.mim.bytes"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set"),
        ({"kafka.security.protocol": "TELNET"}, "security.protocol"),
        ({"kafka.isolation.level": "some"}, "'some' is no isolation level"),
        ({"assign": '{"t": [0]}'}, "exactly one of subscribe, subscribePattern, assign"),
        ({"path": "/d"}, "either `path`, log directories, or `kafka.bootstrap.servers`"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot start at the latest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "nothing ends at the earliest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-3 is no offset"),
        ({"startingOffsets": "sometimes"}, "startingOffsets: 'sometimes' is no JSON"),
        ({"startingOffsets": '{"t": [1]}'}, "not of the form"),
        ({"minPartitions": "0"}, "minPartitions: '0' is no whole number from 1 up"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is neither true nor false"),
        ({"onCorruptBatch": "guess"}, "'guess' is none of fail, skip"),
        ({"subscribe": " "}, "subscribe names nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**options)
    assert said in str(caught.value)


def test_a_pattern_matches_whole_names() -> None:
    options = {"path": "/d", "subscribePattern": "orders.*|t"}
    selection = parse_read_options(options, streaming=False).selection
    topics = ("orders", "orders-eu", "t", "tt", "old-orders")
    assert [topic for topic in topics if selection.selects_topic(topic)] == [
        "orders",
        "orders-eu",
        "t",
    ]
    with pytest.raises(OptionError, match="subscribePattern: no pattern"):
        parse_read_options({"path": "/d", "subscribePattern": "("}, streaming=False)


def test_a_stream_takes_a_limit_and_no_end() -> None:
    options = parse_stream(maxOffsetsPerTrigger="7", maxTriggerDelay="2m")
    assert (options.max_offsets_per_trigger, options.max_trigger_delay_ms) == (7, 120_000)
    with pytest.raises(OptionError, match="unknown option endingoffsets"):
        parse_stream(endingOffsets="latest")
    with pytest.raises(OptionError, match="maxTriggerDelay: 'soon' is no time"):
        parse_stream(maxTriggerDelay="soon")


def test_what_files_cannot_do_is_refused() -> None:
    with pytest.raises(OptionError, match=r"fetch\.min\.bytes is for brokers"):
        parse_read_options({"path": "/d", "kafka.fetch.min.bytes": "5"}, streaming=False)
    with pytest.raises(OptionError, match="replicas: a stream has one position"):
        parse_read_options({"path": "/d", "replicas": "all"}, streaming=True)
    with pytest.raises(OptionError, match="replicas: only log directories"):
        parse(replicas="all")


def test_several_directories_are_parted_by_commas_or_given_as_a_list() -> None:
    assert parse_read_options({"path": "/a, /b"}, streaming=False).paths == ("/a", "/b")
    listed = {"paths": '["/a","file:///b"]'}
    assert parse_read_options(listed, streaming=False).paths == ("/a", "/b")


def test_a_column_that_is_none_or_of_another_type_is_refused() -> None:
    assert check_schema([("offset", "bigint"), ("key", "binary")]) == ["offset", "key"]
    with pytest.raises(OptionError, match="no column 'ofset'"):
        check_schema([("ofset", "bigint")])
    with pytest.raises(OptionError, match="column value is binary, not string"):
        check_schema([("value", "string")])


# Offsets in a checkpoint.

topics = st.sampled_from(["t", "orders", "a.b_c-1"])
positions = st.builds(
    Position,
    st.dictionaries(
        st.builds(TopicPartition, topics, st.integers(0, 12)), st.integers(0, 2**62), max_size=8
    ),
    st.dictionaries(topics, st.just("AAECAwQFBgcICQoLDA0ODw"), max_size=2),
)


@given(positions)
def test_a_position_survives_a_checkpoint_and_has_one_text(position: Position) -> None:
    text = json.dumps(position.to_json())
    again = Position.from_json(json.loads(text))
    assert again == position
    shuffled = Position(dict(sorted(position.offsets.items(), reverse=True)), position.topic_ids)
    assert json.dumps(shuffled.to_json()) == text


def test_a_checkpoints_text_can_be_given_as_an_option() -> None:
    text = json.dumps(Position({T0: 5, T1: 2}, {"t": "AAECAwQFBgcICQoLDA0ODw"}).to_json())
    assert text == '{"@topicIds": {"t": "AAECAwQFBgcICQoLDA0ODw"}, "t": {"0": 5, "1": 2}}'
    assert parse(startingOffsets=text).starting.each == {T0: 5, T1: 2}


# Plans.

ranges = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange(
            TopicPartition("t", partition), start, start + size
        ),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.integers(1, 300),
    ),
    max_size=5,
    unique_by=lambda each: each.tp,
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_no_offset_is_lost_or_doubled_however_a_range_is_cut(
    whole: list[OffsetRange], least: int | None, most: int | None
) -> None:
    parts = split(whole, min_partitions=least, max_records=most)
    covered = [(part.tp, offset) for part in parts for offset in range(part.start, part.end)]
    wanted = [(each.tp, offset) for each in whole for offset in range(each.start, each.end)]
    assert covered == wanted
    assert most is None or all(part.size <= most for part in parts)
    assert least is None or len(parts) >= min(least, len(wanted))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1, max_size=6),
    st.integers(1, 400),
)
def test_a_limit_is_shared_and_every_partition_moves(
    logs: list[tuple[int, int]], most: int
) -> None:
    start = {TopicPartition("t", n): at for n, (at, _) in enumerate(logs)}
    end = {TopicPartition("t", n): at + size for n, (at, size) in enumerate(logs)}
    limited = limit(start, end, most)
    steps = {tp: limited[tp] - start[tp] for tp in start}
    waiting = {tp: end[tp] - start[tp] for tp in start}
    assert all(0 <= steps[tp] <= waiting[tp] for tp in start)
    assert all(steps[tp] > 0 for tp in start if waiting[tp])
    total = sum(waiting.values())
    rounded_up = sum(1 for size in waiting.values() if 0 < most * size < total)
    assert sum(steps.values()) <= most + rounded_up
    if sum(waiting.values()) <= most:
        assert limited == end


@given(st.lists(st.integers(1, 100), max_size=20), st.integers(1, 150))
def test_groups_hold_everything_in_order(sizes: list[int], most: int) -> None:
    pieces = [(number, size) for number, size in enumerate(sizes)]
    groups = group(pieces, most)
    assert [each for found in groups for each in found] == list(range(len(sizes)))
    assert all(len(found) == 1 or sum(sizes[each] for each in found) <= most for found in groups)


def test_before_spark_4_2_a_stream_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"streams need Spark 4\.2"):
        UnlimitedStream(parse_stream(), ["value"]).latestOffset()
