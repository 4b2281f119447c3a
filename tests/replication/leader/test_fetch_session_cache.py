"""The leader's fetch sessions: their answers, and which of them keep a slot.

The file is long because it has Kafka's own table of contexts, case by case.
"""

import itertools
import random
from collections.abc import Hashable
from typing import Any, TypeVar

import attrs
import pytest

from replication.errors import ErrorCode
from replication.events import Event, FetchSessionClosed, FetchSessionEvicted, FetchSessionOpened
from replication.leader.rules.fetch_data import (
    Answers,
    FetchInfo,
    FetchPartitionData,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from replication.leader.rules.fetch_session.cache import CacheShard, FetchSessionCache
from replication.leader.rules.fetch_session.context import (
    MOST_UNKNOWN,
    FetchContext,
    FetchManager,
    FullContext,
    IncrementalContext,
    SessionErrorContext,
    SessionlessContext,
    SessionResponse,
)
from replication.leader.rules.fetch_session.session import CachedPartition, partition_key
from replication.leader.rules.settled import Settled
from replication.steps import STEP, Steps, at_once
from storage.filesystem import OsFile
from storage.log.file_region import FileRegion
from storage.types import NO_OFFSET, NO_TOPIC_ID, Offset, OffsetAndEpoch

FOO, BAR, ZAR = (bytes([number]) * 16 for number in (1, 2, 3))
NAMES = {FOO: "foo", BAR: "bar", ZAR: "zar"}
LATEST = 17
T = TypeVar("T")


def at(topic: str | None, partition: int, topic_id: bytes = NO_TOPIC_ID) -> TopicIdPartition:
    return TopicIdPartition(topic_id, topic, partition)


FOO_0, FOO_1, BAR_0, BAR_1 = (
    at("foo", 0, FOO),
    at("foo", 1, FOO),
    at("bar", 0, BAR),
    at("bar", 1, BAR),
)


def wants(*partitions: TopicIdPartition, offset: int = 0) -> Wanted:
    return [(partition, FetchInfo(offset)) for partition in partitions]


def data(high_watermark: int = 10, *, size: int = 0) -> FetchPartitionData:
    records = FileRegion(OsFile("nowhere", -1), 0, size) if size else None
    return FetchPartitionData(high_watermark=high_watermark, log_start_offset=0, records=records)


def failed(error: ErrorCode) -> FetchPartitionData:
    return FetchPartitionData(error=error)


def unchanged(context: FetchContext) -> Answers:
    """The same answer for everything; UNKNOWN_TOPIC_ID for what has no name."""
    return [
        (partition, data() if partition.topic else failed(ErrorCode.UNKNOWN_TOPIC_ID))
        for partition, _ in at_once(context.wanted())
    ]


def walked(steps: Steps[T], *, at_least: int) -> T:
    """Return what `steps` come to, which count so many items, and pause after `STEP` of them."""
    counted = 0
    while True:
        try:
            items = next(steps)
        except StopIteration as end:
            assert counted >= at_least
            result: T = end.value
            return result
        assert items <= STEP + 1
        counted += items


def names_of(pairs: Wanted | Answers) -> list[str]:
    return [f"{partition.topic}{partition.partition}" for partition, _ in pairs]


class Leader:
    """One broker's sessions, with fewer words per request."""

    def __init__(self, *, slots: int = 10, eviction_ms: int = 120_000) -> None:
        self.cache = FetchSessionCache(
            chance=random.Random(1), slots=slots, shards=1, eviction_ms=eviction_ms
        )
        self.manager = FetchManager(self.cache)

    def ask(self, *args: Any, **kwargs: Any) -> FetchContext:
        return at_once(self.finding(*args, **kwargs))

    def finding(
        self,
        session_id: int = INVALID_SESSION_ID,
        epoch: int = INITIAL_EPOCH,
        wanted: Wanted | None = None,
        *,
        forgotten: tuple[TopicIdPartition, ...] = (),
        version: int = LATEST,
        names: dict[bytes, str] = NAMES,
        follower: bool = True,
        now_ms: int = 0,
        terms: Hashable = None,
    ) -> Steps[FetchContext]:
        return self.manager.new_context(
            session_id=session_id,
            session_epoch=epoch,
            is_follower=follower,
            version=version,
            wanted=wanted or [],
            forgotten=forgotten,
            topic_names=names,
            now_ms=now_ms,
            terms=terms,
        )

    def open(self, *partitions: TopicIdPartition, follower: bool = True, now_ms: int = 0) -> int:
        context = self.ask(wanted=wants(*partitions), follower=follower, now_ms=now_ms)
        return at_once(context.response(unchanged(context))).session_id


@pytest.fixture
def leader() -> Leader:
    return Leader()


# The table of contexts.


@pytest.mark.conformance("FS-8")
def test_a_full_request_is_answered_in_full_and_opens_a_session(leader: Leader) -> None:
    assert isinstance(leader.ask(epoch=FINAL_EPOCH), SessionlessContext)
    context = leader.ask(wanted=wants(FOO_0, FOO_1, offset=7))
    assert isinstance(context, FullContext)
    assert at_once(context.wanted()) == [(FOO_0, FetchInfo(7)), (FOO_1, FetchInfo(7))]
    response = at_once(context.response(unchanged(context)))
    assert response.session_id != INVALID_SESSION_ID
    assert names_of(response.partitions) == ["foo0", "foo1"]


@pytest.mark.conformance("FS-9")
def test_an_incremental_request_must_name_a_session_and_its_epoch(leader: Leader) -> None:
    session = leader.open(FOO_0, FOO_1)
    invalid = SessionResponse(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert at_once(leader.ask(session, 5).response([])) == invalid
    unknown = SessionResponse(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert at_once(leader.ask(session + 1, 1).response([])) == unknown
    context = leader.ask(session, 1)
    assert isinstance(context, IncrementalContext)
    assert names_of(at_once(context.wanted())) == ["foo0", "foo1"]
    assert at_once(context.response(unchanged(context))) == SessionResponse(session_id=session)
    assert at_once(leader.ask(session, 5).response([])) == invalid


@pytest.mark.parametrize("session_id", [-7, 2**31 - 1, 12345])
def test_a_session_id_from_nowhere_is_not_found(session_id: int) -> None:
    cache = FetchSessionCache(chance=random.Random(1))
    finding = FetchManager(cache).new_context(
        session_id=session_id,
        session_epoch=1,
        is_follower=False,
        version=LATEST,
        wanted=[],
        forgotten=[],
        topic_names={},
        now_ms=0,
    )
    assert at_once(finding) == SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert cache.remove(session_id) is None


@pytest.mark.conformance("FS-11")
def test_a_final_epoch_closes_the_session_and_is_answered_in_full(leader: Leader) -> None:
    session = leader.open(FOO_0)
    context = leader.ask(session, FINAL_EPOCH, wants(BAR_0, BAR_1))
    assert leader.cache.get(session) is None
    response = at_once(context.response(unchanged(context)))
    assert response.session_id == INVALID_SESSION_ID
    assert names_of(response.partitions) == ["bar0", "bar1"]


@pytest.mark.conformance("FS-12")
@pytest.mark.parametrize("with_ids", [True, False])
def test_a_session_follows_what_is_added_and_forgotten(leader: Leader, with_ids: bool) -> None:
    def name(topic: str, partition: int, topic_id: bytes) -> TopicIdPartition:
        return at(topic, partition, topic_id if with_ids else NO_TOPIC_ID)

    foo0, foo1, bar0 = name("foo", 0, FOO), name("foo", 1, FOO), name("bar", 0, BAR)
    version = LATEST if with_ids else 12
    context = leader.ask(wanted=wants(foo0, foo1), version=version)
    session = at_once(context.response(unchanged(context))).session_id
    context = leader.ask(session, 1, wants(bar0, offset=15), forgotten=(foo0,), version=version)
    assert at_once(context.wanted()) == [(foo1, FetchInfo(0)), (bar0, FetchInfo(15))]
    response = at_once(context.response(unchanged(context)))
    assert (names_of(response.partitions), response.session_id) == (["bar0"], session)


@pytest.mark.conformance("FS-6")
@pytest.mark.conformance("FS-7")
def test_a_session_remembers_the_epochs_that_were_asked_for(leader: Leader) -> None:
    with_epochs = FetchInfo(0, current_leader_epoch=3, last_fetched_epoch=2)
    context = leader.ask(wanted=[(FOO_0, with_epochs)])
    session = at_once(context.response(unchanged(context))).session_id
    assert at_once(leader.ask(session, 1).wanted()) == [(FOO_0, with_epochs)]
    assert at_once(leader.ask(session, 2, wants(FOO_0)).wanted()) == [(FOO_0, FetchInfo(0))]


@pytest.mark.conformance("FS-13")
def test_names_serve_where_the_request_is_too_old_for_ids(leader: Leader) -> None:
    context = leader.ask(wanted=wants(at("foo", 0)), version=12, names={})
    response = at_once(context.response(unchanged(context)))
    assert [answer.error for _, answer in response.partitions] == [ErrorCode.NONE]
    assert response.session_id != INVALID_SESSION_ID


@pytest.mark.conformance("FS-14")
def test_unknown_topic_ids_are_answered_and_asked_again_until_they_resolve(leader: Leader) -> None:
    unknown = [at(None, 0, FOO), at(None, 1, FOO), at(None, 0, ZAR)]
    context = leader.ask(wanted=wants(*unknown), names={})
    response = at_once(context.response(unchanged(context)))
    assert [answer.error for _, answer in response.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 3
    context = leader.ask(response.session_id, 1, names={FOO: "foo"})
    assert names_of(at_once(context.wanted())) == ["foo0", "foo1", "None0"]
    answers = at_once(context.response(unchanged(context))).partitions
    assert [answer.error for _, answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


@pytest.mark.conformance("FS-18")
@pytest.mark.conformance("FS-27")
def test_a_name_once_resolved_stays(leader: Leader) -> None:
    foo, bar = at(None, 0, FOO), at(None, 0, BAR)
    context = leader.ask(wanted=wants(foo, bar), names={})
    session = at_once(context.response(unchanged(context))).session_id
    assert names_of(at_once(leader.ask(session, 1, names={FOO: "foo"}).wanted())) == [
        "foo0",
        "None0",
    ]
    again = leader.ask(session, 2, wants(at("bar", 0, BAR)), names={BAR: "bar"})
    assert names_of(at_once(again.wanted())) == ["foo0", "bar0"]
    assert names_of(at_once(leader.ask(session, 3, wants(foo), names={}).wanted())) == [
        "foo0",
        "bar0",
    ]


@pytest.mark.parametrize(
    ("opened_with", "asked_with"),
    [
        pytest.param(12, 13, marks=pytest.mark.conformance("FS-15")),
        pytest.param(13, 12, marks=pytest.mark.conformance("FS-16")),
    ],
)
def test_a_session_does_not_change_between_names_and_ids(opened_with: int, asked_with: int) -> None:
    leader = Leader()
    context = leader.ask(wanted=wants(at("foo", 0)), version=opened_with)
    session = at_once(context.response(unchanged(context))).session_id
    context = leader.ask(session, 1, version=asked_with)
    assert context == SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)


@pytest.mark.conformance("FS-17")
def test_a_recreated_topic_fails_alone_and_the_session_keeps_the_old_id(leader: Leader) -> None:
    session = leader.open(FOO_0, BAR_0)
    context = leader.ask(session, 1, names={ZAR: "foo", BAR: "bar"})
    assert at_once(context.wanted())[0][0] == FOO_0
    response = at_once(
        context.response([(FOO_0, failed(ErrorCode.INCONSISTENT_TOPIC_ID)), (BAR_0, data())])
    )
    assert response.error is ErrorCode.NONE
    assert names_of(response.partitions) == ["foo0"]


@pytest.mark.conformance("FS-19")
@pytest.mark.parametrize("known_then", [True, False])
@pytest.mark.parametrize("known_now", [True, False])
def test_forgetting_works_whether_names_are_known_or_not(known_then: bool, known_now: bool) -> None:
    leader = Leader()
    partitions = [at("foo" if known_then else None, number, FOO) for number in (0, 1)]
    context = leader.ask(wanted=wants(*partitions), names=NAMES if known_then else {})
    session = at_once(context.response(unchanged(context))).session_id
    name, names = ("foo", NAMES) if known_now else (None, {})
    context = leader.ask(session, 1, forgotten=(at(name, 0, FOO),), names=names)
    assert [partition.partition for partition, _ in at_once(context.wanted())] == [1]
    context = leader.ask(session, 2, forgotten=(at(name, 1, FOO),), names=names)
    assert isinstance(context, SessionlessContext)


@pytest.mark.conformance("FS-20")
@pytest.mark.parametrize("epoch", [FINAL_EPOCH, INITIAL_EPOCH, 1])
def test_errors_are_answered_every_time(leader: Leader, epoch: int) -> None:
    partitions = [FOO_0, at(None, 0, ZAR)]
    errors = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    answers = [
        (partition, failed(error)) for partition, error in zip(partitions, errors, strict=True)
    ]
    session = 0
    if epoch == 1:
        session = at_once(leader.ask(wanted=wants(*partitions)).response(answers)).session_id
    context = leader.ask(session, epoch, [] if epoch == 1 else wants(*partitions))
    assert at_once(context.response(answers)).partitions == answers


@pytest.mark.conformance("FS-20")
def test_a_request_that_was_overtaken_at_its_epoch_is_refused(leader: Leader) -> None:
    session = leader.open(FOO_0)
    slow = leader.ask(session, 1)
    leader.ask(session, 2)
    refused = SessionResponse(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session)
    assert at_once(slow.response([(FOO_0, data(11))])) == refused
    assert (
        at_once(leader.ask(session, 1).response([])).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )


def test_a_session_that_grows_by_very_many_unknown_partitions_ends(leader: Leader) -> None:
    session = leader.open(FOO_0)
    many = wants(*(at(None, number, ZAR) for number in range(MOST_UNKNOWN + 1)))
    context = leader.ask(session, 1, many, names={})
    response = at_once(context.response(unchanged(context)))
    assert response.session_id == INVALID_SESSION_ID
    assert len(response.partitions) == MOST_UNKNOWN + 1
    assert leader.cache.get(session) is None


def test_a_session_of_many_partitions_is_walked_in_steps(leader: Leader) -> None:
    session = leader.open(FOO_0)
    many = wants(*(at(None, number, FOO) for number in range(1, 3 * STEP)))
    context = walked(leader.finding(session, 1, many, terms="others"), at_least=5 * STEP)
    assert len(walked(context.wanted(), at_least=9 * STEP)) == 3 * STEP
    answers = unchanged(context)
    assert len(walked(context.response(answers), at_least=3 * STEP).partitions) == 3 * STEP - 1


def test_a_request_whose_session_is_evicted_in_a_pause_begins_anew(leader: Leader) -> None:
    session = leader.open(FOO_0)
    many = wants(*(at("foo", number, FOO) for number in range(1, STEP + 1)))
    finding = leader.finding(session, 1, many)
    next(finding)
    leader.cache.remove(session)
    unknown = SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert at_once(finding) == unknown
    assert leader.cache.partitions == 0


@pytest.mark.conformance("FS-23")
def test_forgetting_everything_closes_the_session(leader: Leader) -> None:
    session = leader.open(FOO_0, FOO_1)
    context = leader.ask(session, 1, forgotten=(FOO_0, FOO_1))
    assert at_once(context.response(unchanged(context))) == SessionResponse()
    assert leader.cache.sessions == 0


def test_a_log_start_that_has_moved_is_answered(leader: Leader) -> None:
    session = leader.open(FOO_0, FOO_1)
    later = FetchPartitionData(high_watermark=10, log_start_offset=4)
    first = at_once(leader.ask(session, 1).response([(FOO_0, later), (FOO_1, data())]))
    assert names_of(first.partitions) == ["foo0"]
    second = at_once(leader.ask(session, 2).response([(FOO_0, later), (FOO_1, data())]))
    assert names_of(second.partitions) == []


@pytest.mark.parametrize(("named", "answered"), [(0, ["foo0"]), (4, []), (NO_OFFSET, [])])
def test_a_log_start_that_the_follower_did_not_take_is_answered_again(
    leader: Leader, named: Offset, answered: list[str]
) -> None:
    session = leader.open(FOO_0)
    later = FetchPartitionData(high_watermark=10, log_start_offset=4)
    at_once(leader.ask(session, 1).response([(FOO_0, later)]))
    again = [(FOO_0, FetchInfo(10, log_start_offset=named))]
    response = at_once(leader.ask(session, 2, again).response([(FOO_0, later)]))
    assert names_of(response.partitions) == answered


@pytest.mark.conformance("FS-24")
def test_a_divergence_is_answered_even_if_nothing_else_has_changed(leader: Leader) -> None:
    diverging = FetchPartitionData(
        high_watermark=10,
        log_start_offset=0,
        diverging_epoch=OffsetAndEpoch(offset=90, leader_epoch=4),
    )
    session = leader.open(FOO_0, FOO_1)
    first = at_once(leader.ask(session, 1).response([(FOO_0, diverging), (FOO_1, data())]))
    assert names_of(first.partitions) == ["foo0"]
    second = at_once(leader.ask(session, 2).response([(FOO_0, diverging), (FOO_1, diverging)]))
    assert names_of(second.partitions) == ["foo0", "foo1"]
    third = at_once(leader.ask(session, 3).response([(FOO_0, data(110)), (FOO_1, diverging)]))
    assert names_of(third.partitions) == ["foo0", "foo1"]
    assert third.session_id == session


@pytest.mark.conformance("FS-25")
def test_a_partition_with_records_goes_to_the_end(leader: Leader) -> None:
    partitions = [at("foo", number, FOO) for number in (1, 2, 3)]
    session = leader.open(*partitions)
    one, two, three = partitions
    response = at_once(
        leader.ask(session, 1).response(
            [(one, data(50)), (two, data(50, size=60)), (three, data())]
        )
    )
    assert names_of(response.partitions) == ["foo1", "foo2"]
    assert names_of(at_once(leader.ask(session, 2).wanted())) == ["foo1", "foo3", "foo2"]


def test_what_follows_an_error_is_answered_even_if_it_was_answered_before(leader: Leader) -> None:
    session = leader.open(FOO_0)
    at_once(leader.ask(session, 1).response([(FOO_0, failed(ErrorCode.NOT_LEADER_OR_FOLLOWER))]))
    assert names_of(at_once(leader.ask(session, 2).response([(FOO_0, data())])).partitions) == [
        "foo0"
    ]
    assert at_once(leader.ask(session, 3).response([(FOO_0, data())])).partitions == []


def test_what_a_divergence_kept_from_the_follower_is_answered_again(leader: Leader) -> None:
    diverging = attrs.evolve(data(), diverging_epoch=OffsetAndEpoch(offset=9, leader_epoch=4))
    in_full = leader.ask(INVALID_SESSION_ID, INITIAL_EPOCH, wants(FOO_0, FOO_1))
    session = at_once(in_full.response([(FOO_0, diverging), (FOO_1, data())])).session_id
    cut = at_once(leader.ask(session, 1).response([(FOO_0, data()), (FOO_1, diverging)]))
    assert names_of(cut.partitions) == ["foo0", "foo1"]
    assert names_of(
        at_once(leader.ask(session, 2).response([(FOO_0, data()), (FOO_1, data())])).partitions
    ) == ["foo1"]
    assert (
        at_once(leader.ask(session, 3).response([(FOO_0, data()), (FOO_1, data())])).partitions
        == []
    )


@pytest.mark.conformance("FS-26")
def test_a_partition_is_known_by_id_or_else_by_name() -> None:
    assert partition_key(at("foo", 0, FOO)) == partition_key(at(None, 0, FOO))
    assert partition_key(at("foo", 0, FOO)) != partition_key(at("foo", 1, FOO))
    assert partition_key(at("foo", 0)) == partition_key(at("foo", 0))
    assert partition_key(at("foo", 0)) != partition_key(at("bar", 0))
    assert partition_key(at("foo", 0)) != partition_key(at("foo", 0, FOO))


# Slots and who keeps them.


def shard_of_three() -> CacheShard:
    return CacheShard(
        max_sessions=3, first_id=1, end_id=2**31 - 1, chance=random.Random(1), eviction_ms=100
    )


def create(shard: CacheShard, now_ms: int, size: int, *, privileged: bool = False) -> int:
    partitions = {
        partition_key(partition): CachedPartition((partition, FetchInfo(0)))
        for partition in (at("foo", number) for number in range(size))
    }
    session = shard.maybe_create(
        partitions, privileged=privileged, uses_topic_ids=False, now_ms=now_ms
    )
    return 0 if session is None else session.session_id


def touch(shard: CacheShard, session_id: int, now_ms: int) -> None:
    session = shard.get(session_id)
    assert session is not None
    shard.touch(session, now_ms)


def kept(shard: CacheShard, *sessions: int) -> bool:
    return len(shard) == len(sessions) and all(shard.get(each) for each in sessions)


@pytest.mark.conformance("FS-1")
def test_session_ids_are_positive() -> None:
    cache = FetchSessionCache(chance=random.Random(1), slots=20_000)
    for _ in range(10_001):
        assert create(cache.next_shard(), 0, 1) > 0


@pytest.mark.conformance("FS-2")
@pytest.mark.conformance("FS-3")
@pytest.mark.conformance("FS-4")
def test_a_full_shard_gives_up_the_idle_then_the_small_and_old() -> None:
    shard = shard_of_three()
    id1, id2, id3 = create(shard, 0, 10), create(shard, 10, 20), create(shard, 20, 30)
    assert (create(shard, 30, 40), create(shard, 40, 5)) == (0, 0)
    assert kept(shard, id1, id2, id3)
    touch(shard, id1, 200)
    id4 = create(shard, 210, 11)
    assert kept(shard, id1, id3, id4)
    touch(shard, id1, 400)
    touch(shard, id3, 390)
    touch(shard, id4, 400)
    id5 = create(shard, 410, 50)
    assert kept(shard, id3, id4, id5)
    assert create(shard, 410, 5) == 0
    id6 = create(shard, 410, 5, privileged=True)
    assert kept(shard, id3, id5, id6)


@pytest.mark.conformance("FS-5")
def test_the_totals_follow_what_comes_and_goes() -> None:
    shard = shard_of_three()
    shard.max_sessions = 2
    id1 = create(shard, 0, 2)
    assert (shard.partitions, len(shard), shard.evictions) == (2, 1, 0)
    id2 = create(shard, 0, 4)
    touch(shard, id1, 200)
    touch(shard, id2, 200)
    assert (shard.partitions, len(shard), shard.evictions) == (6, 2, 0)
    id3 = create(shard, 200, 5)
    assert kept(shard, id2, id3)
    assert (shard.partitions, len(shard), shard.evictions) == (9, 2, 1)
    session = shard.get(id2)
    assert session is not None
    shard.remove(id2)
    assert (shard.partitions, len(shard), shard.evictions) == (5, 1, 1)
    id4 = create(shard, 210, 4)
    session = shard.get(id4)
    assert session is not None
    at_once(session.update([], [at("foo", 3)]))
    assert (session.cached_size, shard.partitions) == (4, 9)
    touch(shard, id4, 220)
    assert (session.cached_size, shard.partitions) == (3, 8)


@pytest.mark.conformance("FS-21")
def test_the_session_that_is_idle_longest_makes_room() -> None:
    leader = Leader(slots=2, eviction_ms=1000)
    first = leader.open(FOO_0, FOO_1, follower=False, now_ms=0)
    second = leader.open(FOO_0, FOO_1, follower=False, now_ms=500)
    leader.ask(first, 1, follower=False, now_ms=1000)
    third = leader.open(FOO_0, FOO_1, follower=False, now_ms=1501)
    assert third != INVALID_SESSION_ID
    assert leader.cache.get(first)
    assert not leader.cache.get(second)


@pytest.mark.conformance("FS-22")
def test_followers_displace_consumers_at_once_and_each_other_when_idle() -> None:
    leader = Leader(slots=2, eviction_ms=1000)
    first = leader.open(FOO_0, FOO_1, now_ms=0)
    second = leader.open(FOO_0, FOO_1, follower=False, now_ms=500)
    third = leader.open(FOO_0, FOO_1, now_ms=1000)
    assert leader.cache.get(first)
    assert not leader.cache.get(second)
    fourth = leader.open(FOO_0, FOO_1, now_ms=1501)
    assert not leader.cache.get(first)
    assert leader.cache.get(third)
    assert leader.cache.get(fourth)
    assert (leader.cache.sessions, leader.cache.partitions, leader.cache.evictions) == (2, 4, 2)


def test_a_newcomer_without_a_slot_is_answered_in_full_without_a_session() -> None:
    leader = Leader(slots=0)
    context = leader.ask(wanted=wants(FOO_0))
    response = at_once(context.response(unchanged(context)))
    assert response.session_id == INVALID_SESSION_ID
    assert names_of(response.partitions) == ["foo0"]


def test_events_report_the_end_of_sessions() -> None:
    events: list[Event] = []
    cache = FetchSessionCache(
        chance=random.Random(1), slots=1, shards=1, eviction_ms=1000, sink=events.append
    )
    first = create(cache.next_shard(), 0, 2)
    create(cache.next_shard(), 500, 3)
    second = create(cache.next_shard(), 500, 3, privileged=True)
    third = create(cache.next_shard(), 2000, 1)
    cache.remove(third)
    assert events == [
        FetchSessionOpened(session_id=first, partitions=2, privileged=False),
        FetchSessionEvicted(session_id=first, cause="displaced", partitions=2),
        FetchSessionOpened(session_id=second, partitions=3, privileged=True),
        FetchSessionEvicted(session_id=second, cause="idle", partitions=3, privileged=True),
        FetchSessionOpened(session_id=third, partitions=1, privileged=False),
        FetchSessionClosed(session_id=third),
    ]


def test_the_event_of_an_evicted_session_says_what_it_lacked() -> None:
    events: list[Event] = []
    cache = FetchSessionCache(
        chance=random.Random(1), slots=1, shards=1, eviction_ms=1000, sink=events.append
    )
    wanted = {at("foo", 0): FetchInfo(3), at("foo", 1): FetchInfo(5)}
    partitions = {
        partition_key(each): CachedPartition((each, info), high_watermark=5)
        for each, info in wanted.items()
    }
    session = cache.next_shard().maybe_create(
        partitions, privileged=True, uses_topic_ids=False, now_ms=0
    )
    assert session is not None
    create(cache.next_shard(), 2000, 1)
    evicted = FetchSessionEvicted(
        session_id=session.session_id, cause="idle", partitions=2, privileged=True, behind=1
    )
    assert evicted in events


@pytest.mark.conformance("FS-28")
def test_an_id_tells_its_shard() -> None:
    cache = FetchSessionCache(chance=random.Random(1))
    shards = [cache.next_shard() for _ in range(8)]
    span = (2**31 - 1) // 8
    for session_id, expected in ((span - 1, 0), (span, 1), (span * 2, 2)):
        assert cache.shard_of(session_id) is shards[expected]
    for session_id in (span * 8, -1):
        assert cache.shard_of(session_id) is None


@pytest.mark.conformance("FS-30")
def test_sessions_go_round_the_shards() -> None:
    cache = FetchSessionCache(chance=random.Random(1))
    shards = [cache.next_shard() for _ in range(8)]
    assert len(set(map(id, shards))) == 8
    for expected, _ in zip(itertools.cycle(shards), range(20), strict=False):
        assert cache.next_shard() is expected


# What a session has settled.


def test_on_other_terms_everything_that_was_settled_is_looked_at_again(leader: Leader) -> None:
    session_id = leader.open(FOO_0, FOO_1)
    context = leader.ask(session_id, 1, terms="follower 2 of broker epoch 5")
    session = context.session
    assert session is not None
    settled = Settled()
    for cached in session.partitions.values():
        settled.settle(cached, None)
    at_once(context.response(unchanged(context)))
    same = leader.ask(session_id, 2, terms="follower 2 of broker epoch 5")
    assert at_once(same.wanted()) == []
    other = leader.ask(session_id, 3, terms="follower 2 of broker epoch 6")
    assert names_of(at_once(other.wanted())) == ["foo0", "foo1"]
    assert len(settled) == 0
