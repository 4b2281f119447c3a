"""What a session does not look at again, against a twin that looks at everything every time.

Both are a broker's replica manager over real logs, with the same followers, the same clock and
the same luck; one knows its sessions, the other does not. Answers, what is known of each
follower, what the controller was asked and every event must be the same after each step.

The file is long because the twin of the replica manager is in it.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.events import Event
from replication.leader.rules.fetch_data import (
    Answers,
    ClientMetadata,
    FetchInfo,
    FetchParams,
    FetchPartitionData,
    Isolation,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session.cache import FetchSessionCache
from replication.leader.rules.fetch_session.context import FetchManager, SessionResponse
from replication.metadata.rules.image import PartitionRegistration
from replication.steps import at_once
from storage.batch.record_batch import walk
from storage.types import TopicPartition
from tests.replication.leader.leader_side import LOCAL, OTHER, REMOTE, TOPIC_ID, broker, epoch_of
from tests.replication.replica_manager.replica_manager_side import CLOCK, Node

ALL: Final = (LOCAL, REMOTE, OTHER)
CONSUMER: Final = -1
MAX_LAG_MS: Final = 1000
PARTITIONS: Final = 3


def at(number: int) -> TopicPartition:
    return TopicPartition("topic", number)


def readable(answer: FetchPartitionData) -> tuple[object, ...]:
    """Return what must be alike on both sides; a region is one of two files."""
    records = None if answer.records is None else answer.records.read()
    return (*attrs.astuple(attrs.evolve(answer, records=None), recurse=False), records)


def partition_of(event: Event) -> object:
    return getattr(event, "partition", None)


def summary_of(answer: FetchPartitionData) -> tuple[object, ...]:
    """Return what a consumer keeps of an answer, beside its records."""
    return answer.error, answer.high_watermark, answer.log_start_offset


@attrs.define
class Asker:
    """A follower or consumer with a session: its partitions, and the answers it got."""

    replica: int
    offsets: dict[int, int] = attrs.field(factory=dict)
    fresh: set[int] = attrs.field(factory=set)
    """Those to be named in the next request."""
    forgotten: set[int] = attrs.field(factory=set)
    session_id: int = 0
    session_epoch: int = 0
    replica_epoch: int = -1
    view: dict[int, tuple[object, ...]] = attrs.field(factory=dict)
    """Its last answer for each partition."""

    def want(self, number: int) -> None:
        self.offsets.setdefault(number, 0)
        self.fresh.add(number)
        self.forgotten.discard(number)

    def leave(self, number: int) -> None:
        if self.offsets.pop(number, None) is not None:
            self.fresh.discard(number)
            self.forgotten.add(number)

    def take(self, response: SessionResponse) -> None:
        if not self.session_epoch:
            self.view.clear()
        self.view |= {tp.partition: summary_of(answer) for tp, answer in response.partitions}
        if response.error != 0 or (self.session_epoch and not response.session_id):
            self.session_id, self.session_epoch = 0, 0
            return
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1
        for partition, answer in response.partitions:
            number = partition.partition
            if number not in self.offsets:
                continue
            if answer.records is not None:
                *_, (_, last) = walk(answer.records.read())
                self.offsets[number] = last.next_offset
                self.fresh.add(number)
            elif answer.error == 1 or answer.diverging_epoch is not None:
                self.offsets[number] = max(0, answer.log_start_offset)
                self.fresh.add(number)


@attrs.define(eq=False)
class Side:
    """One of the twins."""

    node: Node
    settles: bool
    askers: dict[int, Asker] = attrs.field(factory=dict)
    sessions: FetchManager = attrs.field(
        factory=lambda: FetchManager(FetchSessionCache(chance=random.Random(1), slots=16))
    )
    answered: list[object] = attrs.field(factory=list)

    def asker(self, replica: int) -> Asker:
        if replica not in self.askers:
            epoch = epoch_of(replica) if replica > 0 else -1
            self.askers[replica] = Asker(replica, replica_epoch=epoch)
        return self.askers[replica]

    def params(self, asker: Asker, *, max_wait_ms: int, min_bytes: int) -> FetchParams:
        return FetchParams(
            replica_id=asker.replica,
            replica_epoch=asker.replica_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=150,
            isolation=Isolation.LOG_END if asker.replica > 0 else Isolation.HIGH_WATERMARK,
            client_metadata=None if asker.replica > 0 else ClientMetadata(""),
        )

    async def round(self, replica: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> None:
        """As the handler has it, with or without telling the replica manager of the session."""
        asker = self.asker(replica)
        params = self.params(asker, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        full = asker.session_epoch == 0
        named = asker.offsets if full else sorted(asker.fresh)
        finding = self.sessions.new_context(
            session_id=asker.session_id,
            session_epoch=asker.session_epoch,
            is_follower=replica > 0,
            version=17,
            wanted=[self.asked(asker, number) for number in named],
            forgotten=[TopicIdPartition(TOPIC_ID, "topic", each) for each in asker.forgotten],
            topic_names={TOPIC_ID: "topic"},
            now_ms=CLOCK.now_ms(),
            terms=self.node.manager.fetch.terms(params),
        )
        context = at_once(finding)
        asker.fresh.clear()
        asker.forgotten.clear()
        wanted = at_once(context.wanted())
        answers: Answers = []
        if not self.settles:
            answers = await self.node.manager.fetch.fetch(params, wanted) if wanted else []
        elif wanted or (context.session is not None and context.session.any_settled):
            answers = await self.node.manager.fetch.fetch(params, wanted, context.session)
        response = at_once(context.response(answers))
        self.answered.append(
            [response.error, *((tp, readable(answer)) for tp, answer in response.partitions)]
        )
        asker.take(response)

    def asked(self, asker: Asker, number: int) -> tuple[TopicIdPartition, FetchInfo]:
        image = self.node.image.partition(at(number))
        epoch = -1 if image is None or asker.replica < 0 else image.leader_epoch
        info = FetchInfo(asker.offsets[number], log_start_offset=0, current_leader_epoch=epoch)
        return TopicIdPartition(TOPIC_ID, "topic", number), info

    def state(self) -> dict[str, Any]:
        """Everything that a step may change."""
        known = {}
        for number in range(PARTITIONS):
            hosted = self.node.manager.hosted.find(at(number))
            if hosted is None:
                continue
            leadership = hosted.leadership
            followers = {} if leadership is None else leadership.followers
            known[number] = (
                hosted.snapshot(),
                None if leadership is None else type(leadership.isr_state),
                {
                    each: (
                        state.log_end_offset,
                        state.log_start_offset,
                        state.last_fetch_leader_log_end,
                        state.last_fetch_ms,
                        state.last_caught_up_ms,
                        state.broker_epoch,
                    )
                    for each, state in followers.items()
                },
            )
        return {
            "partitions": known,
            "askers": {each: (asker.offsets, asker.fresh) for each, asker in self.askers.items()},
            "answered": self.answered,
            # In order for each partition: the controller's answers for two come in any order.
            "events": {
                number: [each for each in self.node.events if partition_of(each) == at(number)]
                for number in range(PARTITIONS)
            },
            "proposals": len(self.node.controller.proposals),
        }


Step = Callable[[Side], Any]


# The steps.


async def fetch(side: Side, replica: int) -> None:
    await side.round(replica)


async def produce(side: Side, number: int, values: int) -> None:
    await side.node.produce(values, to=at(number))


async def want(side: Side, replica: int, number: int) -> None:
    side.asker(replica).want(number)
    await trio.lowlevel.checkpoint()


async def leave(side: Side, replica: int, number: int) -> None:
    side.asker(replica).leave(number)
    await trio.lowlevel.checkpoint()


async def seek(side: Side, replica: int, number: int) -> None:
    """From the start again, in the same session."""
    asker = side.asker(replica)
    if number in asker.offsets:
        asker.offsets[number] = 0
        asker.fresh.add(number)
    await trio.lowlevel.checkpoint()


async def everybody_fetches(side: Side) -> None:
    for _ in range(4):
        for replica in (REMOTE, OTHER, CONSUMER):
            await side.round(replica)


async def crash(side: Side, replica: int) -> None:
    """It forgets its session; the leader does not."""
    asker = side.asker(replica)
    asker.session_id, asker.session_epoch = 0, 0
    asker.offsets = dict.fromkeys(asker.offsets, 0)
    await trio.lowlevel.checkpoint()


async def change(side: Side, number: int, **to: Any) -> None:
    """Newer metadata about one partition."""
    topic = side.node.image.topics["topic"]
    now = topic.partitions[number]
    to.setdefault("leader_epoch", now.leader_epoch)
    # An answer of the controller's may have come between.
    known = side.node.manager.hosted.snapshot(at(number))
    epoch = max(now.partition_epoch, -1 if known is None else known.partition_epoch) + 1
    changed = attrs.evolve(now, partition_epoch=epoch, **to)
    await side.node.learn(
        *(changed if each == number else topic.partitions[each] for each in topic.partitions)
    )


async def new_leader_epoch(side: Side, number: int, leader: int) -> None:
    now = side.node.image.topics["topic"].partitions[number]
    await change(side, number, leader=leader, leader_epoch=now.leader_epoch + 1, isr=ALL)


async def new_isr(side: Side, number: int, isr: tuple[int, ...]) -> None:
    await change(side, number, isr=isr)


async def fence(side: Side, replica: int, fenced: bool) -> None:
    topic = side.node.image.topics["topic"]
    await side.node.learn(*topic.partitions.values(), brokers=[broker(replica, fenced=fenced)])


async def restart(side: Side, replica: int) -> None:
    """It registers anew; who fetches is still the old process, until it says otherwise."""
    known = side.node.image.broker_epoch(replica) or epoch_of(replica)
    topic = side.node.image.topics["topic"]
    await side.node.learn(
        *topic.partitions.values(), brokers=[broker(replica, broker_epoch=known + 10)]
    )


async def say_new_epoch(side: Side, replica: int) -> None:
    side.asker(replica).replica_epoch = side.node.image.broker_epoch(replica) or epoch_of(replica)
    await trio.lowlevel.checkpoint()


async def delete_records(side: Side, number: int) -> None:
    await side.node.manager.delete_records.delete({at(number): -1}, timeout_ms=0)


async def lose_log(side: Side, number: int) -> None:
    hosted = side.node.manager.hosted.find(at(number))
    if hosted is not None:
        side.node.manager.hosted.take_offline(at(number), TOPIC_ID)
        side.node.manager.purgatories.check(at(number))
    await trio.lowlevel.checkpoint()


replicas = st.sampled_from([REMOTE, OTHER])
askers = st.sampled_from([REMOTE, REMOTE, OTHER, CONSUMER])
numbers = st.integers(0, PARTITIONS - 1)
changes = st.one_of(
    st.builds(lambda n, v: partial(produce, number=n, values=v), numbers, st.integers(1, 3)),
    st.builds(lambda n: partial(delete_records, number=n), numbers),
    st.builds(
        lambda n, r: partial(new_leader_epoch, number=n, leader=r), numbers, st.sampled_from(ALL)
    ),
    st.builds(
        lambda n, r: partial(new_isr, number=n, isr=r),
        numbers,
        st.sampled_from([ALL, (LOCAL, REMOTE), (LOCAL,)]),
    ),
    st.builds(lambda r, f: partial(fence, replica=r, fenced=f), replicas, st.booleans()),
    st.builds(lambda r: partial(restart, replica=r), replicas),
    st.builds(lambda n: partial(lose_log, number=n), numbers),
)
fetches = st.builds(lambda r: partial(fetch, replica=r), askers)
plain = st.one_of(
    fetches,
    fetches,
    st.just(everybody_fetches),
    st.builds(lambda r, n: partial(seek, replica=r, number=n), askers, numbers),
    st.builds(lambda n, v: partial(produce, number=n, values=v), numbers, st.integers(1, 3)),
    changes,
    st.builds(lambda r, n: partial(want, replica=r, number=n), askers, numbers),
    st.builds(lambda r, n: partial(leave, replica=r, number=n), askers, numbers),
    st.builds(lambda r: partial(crash, replica=r), askers),
    st.builds(lambda r: partial(say_new_epoch, replica=r), replicas),
)


@attrs.frozen
class Pause:
    milliseconds: int


@attrs.frozen
class Waiting:
    """A fetch that may wait, and what happens meanwhile."""

    replica: int
    min_bytes: int
    meanwhile: Step


Steps = Sequence[Step | Pause | Waiting]
steps = st.lists(
    st.one_of(
        plain,
        plain,
        plain,
        st.builds(Pause, st.sampled_from([1, 20, 300, 700])),
        st.builds(Waiting, askers, st.sampled_from([1, 1, 200]), st.one_of(plain, changes)),
    ),
    min_size=5,
    max_size=40,
)


def registrations() -> list[PartitionRegistration]:
    return [
        PartitionRegistration(
            replicas=ALL, isr=ALL, leader=LOCAL, leader_epoch=1, partition_epoch=1
        )
        for _ in range(PARTITIONS)
    ]


def new_side(*, settles: bool) -> Side:
    config = BrokerConfig(
        node_id=LOCAL, replica_lag_time_max_ms=MAX_LAG_MS, replica_fetch_wait_max_ms=500
    )
    return Side(Node(config=config), settles)


async def carry_out(sides: list[Side], step: Step | Pause | Waiting) -> None:
    if isinstance(step, Pause):
        await CLOCK.sleep(step.milliseconds / 1000)
        return
    if not isinstance(step, Waiting):
        for side in sides:
            await step(side)
        return
    async with trio.open_nursery() as nursery:
        for side in sides:
            wait = partial(side.round, step.replica, max_wait_ms=200, min_bytes=step.min_bytes)
            nursery.start_soon(wait)
        await CLOCK.sleep(0.05)
        for side in sides:
            await step.meanwhile(side)


async def run_twins(todo: Steps) -> list[Side]:
    sides = [new_side(settles=True), new_side(settles=False)]
    async with sides[0].node.running(), sides[1].node.running():
        for side in sides:
            await side.node.learn(*registrations())
            for replica in (REMOTE, OTHER, CONSUMER):
                for number in range(PARTITIONS):
                    side.asker(replica).want(number)
        for count, step in enumerate(todo):
            await carry_out(sides, step)
            # A millisecond, so that one round's time is not another's.
            await CLOCK.sleep(0.001)
            lazy, eager = (side.state() for side in sides)
            assert lazy == eager, f"after step {count}: {step}"
    return sides


def with_clock(todo: Steps) -> list[Side]:
    return trio.run(partial(run_twins, todo), clock=trio.testing.MockClock(autojump_threshold=0))


@given(todo=steps)
def test_a_settled_partition_gets_the_answers_of_an_eager_reader(todo: Steps) -> None:
    with_clock(todo)


def test_a_follower_that_registers_while_its_fetch_waits_gets_an_eager_readers_answer() -> None:
    settled = [everybody_fetches, everybody_fetches]
    lazy, _ = with_clock(
        [*settled, Waiting(REMOTE, min_bytes=1, meanwhile=partial(restart, replica=REMOTE))]
    )
    errors = [answer[0] for _, answer in last_answers(lazy)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * PARTITIONS


async def name_no_epoch(side: Side, replica: int) -> None:
    """Fetch as versions below 15 do, which have no broker epoch."""
    side.asker(replica).replica_epoch = -1
    await trio.lowlevel.checkpoint()


def test_a_waiting_fetch_of_a_former_process_is_no_position_of_the_new_one() -> None:
    """Otherwise a broker that came back with an empty log joins the ISR by its former position."""
    with_clock(
        [
            partial(name_no_epoch, replica=REMOTE),
            *[everybody_fetches, everybody_fetches],
            Waiting(REMOTE, min_bytes=1, meanwhile=partial(restart, replica=REMOTE)),
        ]
    )


# A server without sessions.


async def look_without_a_session(side: Side, asker: Asker) -> dict[int, tuple[object, ...]]:
    params = side.params(asker, max_wait_ms=0, min_bytes=0)
    wanted = [side.asked(asker, number) for number in sorted(asker.offsets)]
    answers = await side.node.manager.fetch.fetch(params, wanted) if wanted else []
    return {partition.partition: summary_of(answer) for partition, answer in answers}


async def compare_views(todo: Steps) -> None:
    side = new_side(settles=True)
    consumer = side.asker(CONSUMER)
    async with side.node.running():
        await side.node.learn(*registrations())
        for number in range(PARTITIONS):
            consumer.want(number)
            side.asker(REMOTE).want(number)
        for step in todo:
            await carry_out([side], step)
            expected = await look_without_a_session(side, consumer)
            await side.round(CONSUMER)
            if consumer.session_id:
                shown = {number: consumer.view[number] for number in expected}
                assert shown == expected, f"after {step}"


@given(todo=steps)
def test_a_session_shows_what_a_server_without_sessions_would(todo: Steps) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(partial(compare_views, todo), clock=clock)


def produced() -> Step:
    return partial(produce, number=0, values=1)


def delete_all() -> Step:
    return partial(delete_records, number=0)


async def sleep_until_proposed(side: Side, proposals: int) -> None:
    while len(side.node.controller.proposals) < proposals:
        await CLOCK.sleep(0.001)


def last_answers(side: Side) -> list[Any]:
    answered = side.answered[-1]
    assert isinstance(answered, list)
    return answered[1:]


def rounds(replica: int, count: int) -> list[Step]:
    return [partial(fetch, replica=replica)] * count


def settled(side: Side, number: int = 0) -> int:
    """In how many sessions that partition is."""
    return len(side.node.manager.hosted.get(at(number)).settled)


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(partial(produce, number=0, values=1), id="an append"),
        pytest.param(partial(new_isr, number=0, isr=(LOCAL, REMOTE)), id="another ISR"),
        pytest.param(partial(new_leader_epoch, number=0, leader=LOCAL), id="a new leader epoch"),
        pytest.param(partial(new_leader_epoch, number=0, leader=OTHER), id="another leader"),
        pytest.param(partial(lose_log, number=0), id="a log that fails"),
    ],
)
def test_idle_partitions_settle_until_they_move(move: Step) -> None:
    sides = with_clock([*rounds(REMOTE, 3), *rounds(CONSUMER, 3)])
    lazy, eager = sides
    assert [settled(lazy, each) for each in range(PARTITIONS)] == [2] * PARTITIONS
    assert settled(eager) == 0
    lazy, _ = with_clock([*rounds(REMOTE, 3), move])
    hosted = lazy.node.manager.hosted.find(at(0))
    assert hosted is None or len(hosted.settled) == 0
    assert settled(lazy, 1) == 1
    with_clock([everybody_fetches, move, everybody_fetches, everybody_fetches])


def test_what_others_acknowledge_reaches_the_followers_that_had_it_before() -> None:
    todo = [produced(), *rounds(REMOTE, 4), everybody_fetches, delete_all(), everybody_fetches]
    lazy, _ = with_clock(todo)
    assert settled(lazy) == 3
    answered = [answer for _, answer in last_answers(lazy)]
    assert answered == []


@pytest.mark.parametrize("replica", [REMOTE, CONSUMER])
def test_those_that_seek_back_are_read_again_though_an_answer_has_no_room_for_all(
    replica: int,
) -> None:
    produced_to_all = [partial(produce, number=each, values=1) for each in range(PARTITIONS)]
    todo: list[Step] = [*produced_to_all, *produced_to_all, *[everybody_fetches] * 4]
    back = [partial(seek, replica=replica, number=each) for each in range(PARTITIONS)]
    lazy, _ = with_clock([*todo, *back, *[everybody_fetches] * 4])
    assert lazy.askers[replica].offsets == dict.fromkeys(range(PARTITIONS), 2)


def test_one_that_is_dropped_while_it_catches_up_may_come_back() -> None:
    """Both have everything, and are settled, when the controller agrees that they had not."""
    late: list[Step | Pause] = [everybody_fetches, produced(), Pause(700), Pause(700)]
    until = [partial(sleep_until_proposed, proposals=1)]
    lazy, _ = with_clock([*late, *until, everybody_fetches, Pause(20), everybody_fetches])
    assert [len(each.isr) for each in lazy.node.controller.proposals] == [1, 2]


def test_an_idle_follower_counts_as_caught_up_by_its_sessions_last_fetch() -> None:
    lazy, _ = with_clock([*rounds(REMOTE, 3), Pause(700), *rounds(REMOTE, 1), Pause(700)])
    leadership = lazy.node.manager.hosted.get(at(0)).leadership
    assert leadership is not None
    follower = leadership.followers[REMOTE]
    assert follower.pulse is not None
    assert follower.last_fetch_ms == follower.last_caught_up_ms > 700


def test_a_follower_that_stops_leaves_the_isr_though_it_was_settled() -> None:
    """Settled, silent, and then something is appended: it is late from its last fetch on."""
    todo: list[Step | Pause] = [*rounds(REMOTE, 3), Pause(500), produced()]
    lazy, _ = with_clock([*todo, Pause(700), Pause(700), Pause(700)])
    assert lazy.node.state(at(0)).isr == {LOCAL}
    assert lazy.node.state(at(1)).isr == {LOCAL, REMOTE}


def test_a_session_that_is_evicted_lets_go_of_what_it_had_settled() -> None:
    lazy, _ = with_clock(rounds(REMOTE, 3))
    assert settled(lazy) == 1
    lazy.sessions.cache.remove(lazy.askers[REMOTE].session_id)
    assert settled(lazy) == 0


def wanted_now(side: Side, replica: int) -> Wanted:
    session = side.sessions.cache.get(side.askers[replica].session_id)
    assert session is not None
    return at_once(session.wanted({}))


def test_only_what_moved_is_read_again() -> None:
    lazy, _ = with_clock([*rounds(REMOTE, 3), partial(produce, number=1, values=1)])
    assert [pair[0].partition for pair in wanted_now(lazy, REMOTE)] == [1]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"replica_id": REMOTE},
        {"replica_epoch": 7},
        {"isolation": Isolation.LAST_STABLE},
        {"client_metadata": ClientMetadata("r2")},
        {"client_metadata": None},
    ],
    ids=lambda otherwise: next(iter(otherwise)),
)
async def test_whatever_an_answer_depends_on_is_among_the_terms_of_a_session(
    otherwise: dict[str, Any],
) -> None:
    params = FetchParams(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=150,
        isolation=Isolation.HIGH_WATERMARK,
        client_metadata=ClientMetadata("r1"),
    )
    other = attrs.evolve(params, **otherwise)
    patient = attrs.evolve(params, max_wait_ms=500, min_bytes=100)
    async with Node().running() as node:
        terms = node.manager.fetch.terms
        assert terms(params) != terms(other)
        assert terms(params) == terms(patient)
