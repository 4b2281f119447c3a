"""A fetcher's requests from what has changed, against a twin that builds each from everything."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from replication.errors import ErrorCode, PeerUnavailableError
from replication.follower.fetcher import ReplicaFetcher
from replication.follower.rules.fetch_session_handler import FetchRequestData
from replication.wire.fetch import FetchRequest, FetchResponse, PartitionData
from storage.types import TopicPartition
from tests.replication.follower.following import Following, committed, following

ALL = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]


class EagerFetcher(ReplicaFetcher):
    """Looks at every partition it has, each time."""

    def _build_fetch(self) -> FetchRequestData:
        wanted = self._wanted_now(self.partitions.states.partitions(), self.clock.now())
        return self.session.build({tp: each for tp, each in wanted.items() if each is not None})


Step = Callable[[Following], Any]


def work(it: Following) -> None:
    """A round; see `carry_out`."""


def pause(it: Following) -> None:
    """Longer than a backoff."""


def append(it: Following, tp: TopicPartition, count: int) -> None:
    led = it.leader.led[tp]
    for value in range(count):
        led.log.append_as_leader(led.epoch, value)


def commit(it: Following, tp: TopicPartition) -> None:
    log = it.leader.led[tp].log
    log.high_watermark = log.log_end_offset


def delete_on_leader(it: Following, tp: TopicPartition) -> None:
    log = it.leader.led[tp].log
    log.move_start_to(log.high_watermark)


def delete_here(it: Following, tp: TopicPartition) -> None:
    log = it.replicas.logs[tp]
    log.move_start_to(log.high_watermark)
    it.fetcher.partitions.log_start_moved(tp)


def new_epoch(it: Following, tp: TopicPartition) -> None:
    it.leader.led[tp].epoch += 1
    add(it, tp)


def add(it: Following, tp: TopicPartition) -> None:
    it.add(tp, it.leader.led[tp].epoch)


def remove(it: Following, tp: TopicPartition) -> None:
    it.fetcher.partitions.remove([tp])


def learn_id(it: Following, tp: TopicPartition) -> None:
    """The partition is added again, as after a topic was created anew."""
    it.leader.topic_ids[tp.topic] = tp.topic.encode() * 16
    new_epoch(it, tp)


def throttle(it: Following, tp: TopicPartition) -> None:
    it.fetcher.is_throttled = lambda each: each == tp


def unthrottle(it: Following) -> None:
    it.fetcher.is_throttled = lambda _: False


def once(it: Following, name: str, harm: Callable[..., None]) -> None:
    """In the next answer only."""

    def back_to_normal(*_: object) -> None:
        setattr(it.leader, name, lambda *_: None)

    def harm_once(*arguments: Any) -> None:
        back_to_normal()
        harm(*arguments)

    setattr(it.leader, name, harm_once)


def lose_answer(it: Following) -> None:
    def lose() -> None:
        raise PeerUnavailableError("gone")

    once(it, "on_fetch", lose)


def refuse_session(it: Following) -> None:
    def refuse(response: FetchResponse) -> None:
        response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        response.responses = []

    once(it, "change_response", refuse)


def refuse(it: Following) -> None:
    def refuse(_: TopicPartition, data: PartitionData) -> None:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    once(it, "change_data", refuse)


def part(it: Following, tp: TopicPartition) -> None:
    """Let the leader's log diverge behind its high watermark, at a newer leader epoch."""
    led = it.leader.led[tp]
    led.log.truncate_to(led.log.high_watermark)
    led.epoch += 1
    led.log.append_as_leader(led.epoch, 99)
    add(it, tp)


partitions = st.sampled_from(ALL)
one_of_them = [
    commit,
    delete_on_leader,
    delete_here,
    new_epoch,
    add,
    remove,
    learn_id,
    throttle,
    part,
]
steps = st.lists(
    st.one_of(
        st.just(work),
        st.just(work),
        st.just(work),
        st.builds(lambda tp, n: partial(append, tp=tp, count=n), partitions, st.integers(1, 4)),
        st.builds(lambda step, tp: partial(step, tp=tp), st.sampled_from(one_of_them), partitions),
        st.sampled_from([unthrottle, lose_answer, refuse_session, refuse, pause]),
    ),
    min_size=5,
    max_size=50,
)


def on_the_wire(request: FetchRequest) -> tuple[object, ...]:
    """Return what is requested, sorted: the order does not matter to the leader."""
    asked = {
        (topic.topic, topic.topic_id, *attrs.astuple(each))
        for topic in request.topics
        for each in topic.partitions
    }
    forgotten = {
        (topic.topic, topic.topic_id, each)
        for topic in request.forgotten_topics_data
        for each in topic.partitions
    }
    return request.session_id, request.session_epoch, asked, forgotten


def seen(it: Following) -> dict[str, Any]:
    return {
        "requests": [on_the_wire(each) for each in it.leader.fetches],
        "states": dict(it.fetcher.partitions.states.items()),
        "session": it.fetcher.session.session_partitions,
        "logs": it.replicas.logs,
        "failed": it.failed,
    }


async def carry_out(it: Following, step: Step) -> None:
    if step is pause:
        await it.fetcher.clock.sleep(1.2)
    elif step is not work:
        step(it)
    else:
        with it.fetcher.clock.move_on_after(5):
            await it.fetcher.do_work()


async def run_twins(todo: Sequence[Step]) -> list[Following]:
    twins = [following(sessions=True), following(sessions=True, make=EagerFetcher)]
    for it in twins:
        for tp in ALL:
            it.follow(tp, leader=committed((0, 0, 3)), local=committed((0, 0, 3)))
    for count, step in enumerate(todo):
        async with trio.open_nursery() as nursery:
            for it in twins:
                nursery.start_soon(carry_out, it, step)
        lazy, eager = map(seen, twins)
        assert lazy == eager, f"after step {count}: {step}"
    assert [it.bugs for it in twins] == [[], []]
    return twins


@given(todo=steps)
def test_what_changed_is_all_that_has_to_be_said(todo: list[Step]) -> None:
    trio.run(partial(run_twins, todo), clock=MockClock(autojump_threshold=0))


async def test_an_idle_round_looks_at_nothing(autojump_clock: MockClock) -> None:
    lazy, _ = await run_twins([work] * 4)
    assert lazy.fetcher.partitions.states.take_changed(lazy.fetcher.clock.now()) == []
    assert lazy.leader.fetches[-1].topics == []


@pytest.mark.parametrize("tp", ALL, ids=str)
async def test_a_log_start_that_moved_here_is_sent(
    autojump_clock: MockClock, tp: TopicPartition
) -> None:
    lazy, _ = await run_twins([work, work, partial(delete_here, tp=tp), work])
    [topic] = lazy.leader.fetches[-1].topics
    [asked] = topic.partitions
    assert (topic.topic, asked.partition, asked.log_start_offset) == (*tp, 4)


async def test_a_delayed_partition_is_asked_for_again_when_its_time_has_come(
    autojump_clock: MockClock,
) -> None:
    todo: list[Step] = [work, work, partial(append, tp=ALL[0], count=1), refuse, work, work]
    lazy, _ = await run_twins(todo)
    assert lazy.fetcher.session.session_partitions.keys() < set(ALL)
    lazy, _ = await run_twins([*todo, pause, work])
    assert lazy.fetcher.session.session_partitions.keys() == set(ALL)


async def test_a_partition_that_is_throttled_no_more_is_asked_for_again(
    autojump_clock: MockClock,
) -> None:
    held = [partial(throttle, tp=ALL[0]), partial(append, tp=ALL[0], count=6)]
    todo: list[Step] = [work, *held, partial(commit, tp=ALL[0]), *[work] * 4, unthrottle]
    lazy, _ = await run_twins([*todo, *[work] * 8])
    assert lazy.alike(ALL[0])
