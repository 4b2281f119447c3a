import pytest
from hypothesis import given, strategies as st

from replication.errors import ErrorCode
from replication.follower.rules.fetch_session_handler import (
    FetchMetadata,
    FetchRequestData,
    FetchRequestParams,
    FetchSessionHandler,
    ForgottenPartition,
    WantedPartition,
    find_missing,
)
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from replication.wire.apis import API, ApiKey
from replication.wire.codec import encode
from replication.wire.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from replication.wire.frames import total_size
from storage.types import NO_TOPIC_ID, TopicId, TopicPartition

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)
FOO_ID, BAR_ID, OTHER_ID = b"f" * 16, b"b" * 16, b"o" * 16
NO_IDS = {"foo": NO_TOPIC_ID, "bar": NO_TOPIC_ID}
IDS = {"foo": FOO_ID, "bar": BAR_ID}
PARAMS = FetchRequestParams(
    replica=ReplicaState(replica_id=7), max_wait_ms=500, min_bytes=1, max_bytes=1000
)

versions = pytest.mark.parametrize(
    ("version", "ids"), [pytest.param(12, NO_IDS, id="v12"), pytest.param(17, IDS, id="latest")]
)


def want(offset: int = 0, *, topic_id: TopicId = NO_TOPIC_ID, start: int = 0) -> WantedPartition:
    return WantedPartition(topic_id, offset, log_start_offset=start, current_leader_epoch=5)


def respond(
    ids: dict[str, TopicId],
    *partitions: TopicPartition,
    session_id: int = INVALID_SESSION_ID,
    error: ErrorCode = ErrorCode.NONE,
    throttle_ms: int = 0,
) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        throttle_time_ms=throttle_ms,
        responses=[
            FetchableTopicResponse(
                topic=topic,
                topic_id=ids[topic],
                partitions=[PartitionData(partition_index=partition)],
            )
            for topic, partition in partitions
        ],
    )


def opened(
    wanted: dict[TopicPartition, WantedPartition], *, version: int, ids: dict[str, TopicId]
) -> FetchSessionHandler:
    """A handler whose session 123 holds `wanted`."""
    handler = FetchSessionHandler(1)
    assert handler.build(wanted).metadata == FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
    answer = respond(ids, *wanted, session_id=123)
    assert handler.handle_response(answer, version=version) is not None
    return handler


@pytest.mark.conformance("FH-1")
@pytest.mark.parametrize(
    ("wanted", "found", "missing"),
    [
        pytest.param([FOO0], [FOO1], [FOO0], id="disjoint"),
        pytest.param([FOO0, FOO1], [FOO1, FOO0], [], id="equal"),
        pytest.param([FOO0, FOO1], [FOO1, BAR0], [FOO0], id="overlapping"),
        pytest.param([FOO0], [FOO0, BAR0], [], id="found has more"),
        pytest.param([FOO0, BAR0], [], [FOO0, BAR0], id="nothing found"),
    ],
)
def test_find_missing(
    wanted: list[TopicPartition], found: list[TopicPartition], missing: list[TopicPartition]
) -> None:
    assert find_missing(wanted, found) == missing


@pytest.mark.conformance("FH-2")
@versions
def test_without_a_session_every_request_is_full(version: int, ids: dict[str, TopicId]) -> None:
    handler = FetchSessionHandler(1)
    first = {FOO0: want(0, topic_id=ids["foo"]), FOO1: want(10, topic_id=ids["foo"])}
    data = handler.build(first)
    assert data.metadata == FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
    assert data.to_send == data.session_partitions == first
    assert handler.handle_response(respond(ids, FOO0, FOO1), version=version) is not None

    second = {FOO0: want(3, topic_id=ids["foo"])}
    data = handler.build(second)
    assert data.metadata == FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
    assert data.to_send == data.session_partitions == second
    assert data.to_forget == ()


@pytest.mark.conformance("FH-3")
@pytest.mark.conformance("FH-4")
@versions
def test_only_what_is_new_or_has_changed_is_sent(version: int, ids: dict[str, TopicId]) -> None:
    foo, bar = ids["foo"], ids["bar"]
    handler = opened(
        {FOO0: want(0, topic_id=foo), FOO1: want(10, topic_id=foo)}, version=version, ids=ids
    )
    wanted = {
        FOO0: want(0, topic_id=foo),
        FOO1: want(10, topic_id=foo, start=5),
        BAR0: want(20, topic_id=bar),
    }
    data = handler.build(wanted)
    assert data.metadata == FetchMetadata(123, 1)
    assert list(data.session_partitions) == [FOO0, FOO1, BAR0]
    assert list(data.to_send) == [BAR0, FOO1]
    assert data.to_send[FOO1] == wanted[FOO1]

    answers = handler.handle_response(respond(ids, FOO1, session_id=123), version=version)
    assert answers is not None
    assert list(answers) == [FOO1]
    assert handler.build(wanted).metadata == FetchMetadata(123, 2)

    refusal = respond(ids, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert handler.handle_response(refusal, version=version) is None
    data = handler.build(wanted)
    assert data.metadata == FetchMetadata(123, INITIAL_EPOCH)
    assert data.to_send == data.session_partitions == wanted


@pytest.mark.conformance("FH-6")
@pytest.mark.conformance("FH-7")
@versions
def test_what_is_not_wanted_any_more_is_forgotten(version: int, ids: dict[str, TopicId]) -> None:
    foo, bar = ids["foo"], ids["bar"]
    handler = opened(
        {
            FOO0: want(0, topic_id=foo),
            FOO1: want(10, topic_id=foo),
            BAR0: want(20, topic_id=bar),
        },
        version=version,
        ids=ids,
    )
    data = handler.build({FOO1: want(10, topic_id=foo)})
    assert data.metadata == FetchMetadata(123, 1)
    assert data.to_send == {}
    assert data.to_forget == (ForgottenPartition(FOO0, foo), ForgottenPartition(BAR0, bar))
    assert list(data.session_partitions) == [FOO1]
    assert not data.is_empty

    refusal = respond(ids, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert handler.handle_response(refusal, version=version) is None
    data = handler.build({FOO1: want(10, topic_id=foo)})
    assert data.metadata == FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)


@pytest.mark.conformance("FH-8")
def test_a_topic_id_that_becomes_known_joins_the_session() -> None:
    handler = opened({FOO0: want(0)}, version=12, ids=NO_IDS)
    data = handler.build({FOO0: want(0, topic_id=FOO_ID)})
    assert (data.metadata, data.can_use_topic_ids) == (FetchMetadata(123, 1), True)


@pytest.mark.conformance("FH-8")
def test_one_that_must_be_forgotten_by_name_rules_out_topic_ids() -> None:
    handler = opened({FOO0: want(0)}, version=12, ids=NO_IDS)
    data = handler.build({BAR0: want(0, topic_id=BAR_ID)})
    assert (data.metadata, data.can_use_topic_ids) == (FetchMetadata(123, 1), False)
    assert data.to_forget == (ForgottenPartition(FOO0, NO_TOPIC_ID),)


@pytest.mark.parametrize(
    ("before", "after", "replaced", "sent"),
    [
        pytest.param(
            FOO_ID, OTHER_ID, True, True, id="another", marks=pytest.mark.conformance("FH-10")
        ),
        pytest.param(
            NO_TOPIC_ID, FOO_ID, False, True, id="gained", marks=pytest.mark.conformance("FH-11")
        ),
        pytest.param(
            FOO_ID, NO_TOPIC_ID, False, True, id="lost", marks=pytest.mark.conformance("FH-11")
        ),
        pytest.param(
            NO_TOPIC_ID,
            NO_TOPIC_ID,
            False,
            False,
            id="none",
            marks=pytest.mark.conformance("FH-12"),
        ),
    ],
)
def test_a_topic_id_that_changes(
    before: TopicId, after: TopicId, *, replaced: bool, sent: bool
) -> None:
    version = 12 if before == NO_TOPIC_ID else 17
    handler = opened({FOO0: want(0, topic_id=before)}, version=version, ids={"foo": before})
    data = handler.build({FOO0: want(0, topic_id=after)})
    assert data.metadata == FetchMetadata(123, 1)
    assert data.to_replace == ((ForgottenPartition(FOO0, before),) if replaced else ())
    assert list(data.to_send) == ([FOO0] if sent else [])
    assert data.session_partitions == {FOO0: want(0, topic_id=after)}
    known = after != NO_TOPIC_ID
    assert data.can_use_topic_ids is known
    assert handler.session_topic_names == ({after: "foo"} if known else {})


@pytest.mark.conformance("FH-13")
def test_one_partition_without_an_id_rules_out_topic_ids() -> None:
    handler = opened({FOO0: want(0)}, version=12, ids=NO_IDS)
    data = handler.build({FOO0: want(0), BAR0: want(0, topic_id=BAR_ID)})
    assert (data.metadata, data.can_use_topic_ids) == (FetchMetadata(123, 1), False)


@pytest.mark.conformance("FH-16")
def test_a_full_answer_must_name_what_was_asked_for() -> None:
    handler = FetchSessionHandler(1)
    assert handler.verify_full([FOO0, FOO1]) == "extra foo-0 foo-1"
    handler.build({FOO0: want(), FOO1: want(), BAR0: want()})
    assert handler.verify_full([FOO0, FOO1, BAR0]) is None
    assert handler.verify_full([FOO0, FOO1]) == "omitted bar-0"


@pytest.mark.conformance("FH-17")
def test_a_full_answer_with_an_unknown_topic_id_is_thrown_away() -> None:
    handler = FetchSessionHandler(1)
    wanted = {FOO0: want(topic_id=FOO_ID)}
    handler.build(wanted)
    answer = respond({"foo": FOO_ID, "bar": OTHER_ID}, FOO0, BAR0, session_id=9)
    assert handler.handle_response(answer, version=17) is None
    assert handler.rejection == f"extra ids {OTHER_ID.hex()}"
    assert handler.build(wanted).metadata == FetchMetadata()
    assert handler.handle_response(respond(IDS, FOO0, session_id=9), version=17) is not None
    assert handler.rejection is None


@versions
def test_an_incremental_answer_with_an_extra_partition_ends_the_session(
    version: int, ids: dict[str, TopicId]
) -> None:
    wanted = {FOO0: want(topic_id=ids["foo"])}
    handler = opened(wanted, version=version, ids=ids)
    handler.build(wanted)
    assert handler.handle_response(respond(ids, BAR0, session_id=123), version=version) is None
    assert handler.build(wanted).metadata == FetchMetadata(123, INITIAL_EPOCH)


@versions
def test_a_leader_that_closes_the_session_is_asked_in_full_again(
    version: int, ids: dict[str, TopicId]
) -> None:
    wanted = {FOO0: want(topic_id=ids["foo"])}
    handler = opened(wanted, version=version, ids=ids)
    handler.build(wanted)
    assert handler.handle_response(respond(ids, FOO0), version=version) is not None
    assert handler.build(wanted).metadata == FetchMetadata()


def test_a_throttled_answer_to_a_full_request_is_no_answer() -> None:
    handler = FetchSessionHandler(1)
    handler.build({FOO0: want()})
    assert handler.handle_response(respond(NO_IDS, throttle_ms=100), version=12) is None
    assert handler.next_metadata == FetchMetadata()


def test_a_lost_answer_ends_the_session() -> None:
    handler = opened({FOO0: want()}, version=12, ids=NO_IDS)
    handler.build({FOO0: want()})
    handler.handle_error()
    assert handler.build({FOO0: want()}).metadata == FetchMetadata(123, INITIAL_EPOCH)


def test_closing_makes_the_next_request_the_last() -> None:
    handler = opened({FOO0: want()}, version=12, ids=NO_IDS)
    handler.notify_close()
    data = handler.build({})
    assert data.metadata == FetchMetadata(123, FINAL_EPOCH)
    assert data.to_send == {}


# -- on the wire --------------------------------------------------------------


def test_topics_are_named_once_for_each_run_of_their_partitions() -> None:
    handler = FetchSessionHandler(1)
    request = handler.build({FOO0: want(1), BAR0: want(2), FOO1: want(3)}).to_wire(
        PARAMS, version=12
    )
    assert [(t.topic, [p.partition for p in t.partitions]) for t in request.topics] == [
        ("foo", [0]),
        ("bar", [0]),
        ("foo", [1]),
    ]
    assert request.replica_id == request.replica_state.replica_id == 7


@pytest.mark.parametrize(("version", "forgotten"), [(12, []), (13, [(FOO_ID, [0])])])
def test_a_replaced_topic_is_forgotten_only_where_ids_tell_it_from_the_new_one(
    version: int, forgotten: list[tuple[TopicId, list[int]]]
) -> None:
    handler = opened({FOO0: want(topic_id=FOO_ID)}, version=17, ids=IDS)
    request = handler.build({FOO0: want(topic_id=OTHER_ID)}).to_wire(PARAMS, version=version)
    assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == forgotten


# -- against a naive leader ---------------------------------------------------


class NaiveSession:
    """What a leader remembers, applied from each request as it comes."""

    def __init__(self) -> None:
        self.remembered: dict[TopicPartition, WantedPartition] = {}
        self.next_epoch = 0

    def apply(self, data: FetchRequestData) -> None:
        if data.metadata.is_full:
            self.remembered, self.next_epoch = {}, 0
        else:
            assert data.metadata.epoch == self.next_epoch
        for forgotten in (*data.to_forget, *data.to_replace):
            known = self.remembered[forgotten.topic_partition]
            assert known.topic_id == forgotten.topic_id
            del self.remembered[forgotten.topic_partition]
        self.remembered.update(data.to_send)
        self.next_epoch += 1


wanted_sets = st.dictionaries(
    st.sampled_from([FOO0, FOO1, BAR0, TopicPartition("bar", 1)]),
    st.builds(
        WantedPartition,
        topic_id=st.sampled_from([FOO_ID, OTHER_ID]),
        fetch_offset=st.integers(0, 2),
    ),
)


@given(st.lists(st.tuples(wanted_sets, st.sampled_from(["ok", "lost", "refused"])), max_size=12))
def test_what_the_leader_remembers_is_what_is_wanted_now(
    rounds: list[tuple[dict[TopicPartition, WantedPartition], str]],
) -> None:
    handler, leader = FetchSessionHandler(1), NaiveSession()
    for wanted, outcome in rounds:
        leader.apply(handler.build(wanted))
        assert leader.remembered == wanted == handler.session_partitions
        if outcome == "lost":
            handler.handle_error()
        elif outcome == "refused":
            refusal = respond(IDS, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            assert handler.handle_response(refusal, version=12) is None
        else:
            answer = respond(NO_IDS, *wanted, session_id=5)
            assert handler.handle_response(answer, version=12) is not None


@pytest.mark.parametrize(
    ("version", "full", "incremental"),
    [
        pytest.param(6, 12_031, 12_031, id="v6 knows no sessions"),
        pytest.param(7, 12_043, 33, id="v7"),
        pytest.param(12, None, 29, id="v12"),
        pytest.param(14, None, 29, id="v14"),
        pytest.param(15, None, 40, id="v15"),
        pytest.param(17, None, 40, id="v17"),
    ],
)
def test_what_a_session_saves_a_follower_of_500_partitions(
    version: int, full: int | None, incremental: int
) -> None:
    ids = {"test": b"t" * 16 if version >= 13 else NO_TOPIC_ID}
    wanted = {TopicPartition("test", at): want(topic_id=ids["test"]) for at in range(500)}
    handler = FetchSessionHandler(1)

    def body_size() -> int:
        request = handler.build(wanted).to_wire(PARAMS, version=version)
        flexible = API[ApiKey.FETCH].is_flexible(version)
        return total_size(encode(request, version=version, flexible=flexible))

    first = body_size()
    assert full in {None, first}
    session_id = 123 if version >= 7 else INVALID_SESSION_ID
    answer = respond(ids, *wanted, session_id=session_id)
    assert handler.handle_response(answer, version=version) is not None
    assert body_size() == incremental
