"""A fetch of few partitions is read in one turn, one of many in steps: both say the same.

Every case is run three times, on brokers that are alike: once as it is, once with a fetch of two
partitions counted as one of many, and once without a task that waits.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import attrs
import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from replication.leader.rules.fetch_data import (
    Answers,
    FetchInfo,
    FetchParams,
    TopicIdPartition,
    Wanted,
)
from replication.leader.rules.fetch_session.session import (
    CachedPartition,
    FetchSession,
    partition_key,
)
from replication.replica_manager import fetch
from storage.types import TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    TOPIC_ID,
    consumer_params,
    follower_params,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, Node

Answered: TypeAlias = list[tuple[int, object, bytes | None]]
PARTITIONS = 3
SMALL = st.integers(min_value=0, max_value=3)


@attrs.frozen
class Case:
    """A fetch of three partitions: their records, its terms, and the records that arrive later."""

    held: tuple[int, ...]
    offsets: tuple[int, ...]
    arriving: tuple[int, ...]
    acknowledged: tuple[int, ...]
    min_bytes: int
    by_follower: bool
    in_session: bool


CASES = st.builds(
    Case,
    held=st.tuples(*[SMALL] * PARTITIONS),
    offsets=st.tuples(*[SMALL] * PARTITIONS),
    arriving=st.tuples(*[SMALL] * PARTITIONS),
    acknowledged=st.tuples(*[SMALL] * PARTITIONS),
    min_bytes=st.sampled_from((1, 100, 1 << 20)),
    by_follower=st.booleans(),
    in_session=st.booleans(),
)


Fetch: TypeAlias = Callable[[Node, FetchParams, Wanted, FetchSession | None], Awaitable[Answers]]


async def _in_its_task(
    node: Node, params: FetchParams, wanted: Wanted, session: FetchSession | None
) -> Answers:
    return await node.manager.fetch.fetch(params, wanted, session)


async def _without_a_task(
    node: Node, params: FetchParams, wanted: Wanted, session: FetchSession | None
) -> Answers:
    found = await node.manager.fetch.begin(params, wanted, session)
    if not isinstance(found, fetch.DelayedFetch):
        return found
    assert found.is_short
    answers: list[Answers] = []
    done = trio.Event()

    def note(read: Callable[[], Answers]) -> None:
        answers.append(read())
        done.set()

    node.manager.fetch.call_when_enough(found, note)
    await done.wait()
    return answers[0]


async def fetched(
    case: Case, fetch_once: Fetch = _in_its_task
) -> tuple[Answered, Answered, list[int]]:
    """Return both answers of two fetches, one after the other, and the high watermarks then."""
    node = Node()
    async with node.running(), trio.open_nursery() as nursery:
        await node.learn(*[registration(isr=(LOCAL, REMOTE))] * PARTITIONS)
        for number, count in enumerate(case.held):
            if count:
                await node.produce(count, to=TopicPartition("topic", number))
        make = follower_params if case.by_follower else consumer_params
        params = make(min_bytes=case.min_bytes, max_wait_ms=500)
        wanted: Wanted = [
            (TopicIdPartition(TOPIC_ID, "topic", number), FetchInfo(offset, log_start_offset=0))
            for number, offset in enumerate(case.offsets)
        ]
        session = _session_of(wanted, node, params) if case.in_session else None
        nursery.start_soon(partial(_move, node, case))
        first = await fetch_once(node, params, wanted, session)
        left = wanted if session is None else list(_unsettled(session))
        second = await fetch_once(node, params, left, session)
        await CLOCK.sleep(1)
        ends = [each.log.high_watermark for each in node.manager.hosted]
        return _shown(first), _shown(second), ends


def _session_of(wanted: Wanted, node: Node, params: FetchParams) -> FetchSession:
    session = FetchSession(
        session_id=1,
        privileged=True,
        uses_topic_ids=True,
        partitions={partition_key(pair[0]): CachedPartition(pair) for pair in wanted},
        created_ms=0,
        last_used_ms=0,
    )
    session.terms = node.manager.fetch.terms(params)
    return session


def _unsettled(session: FetchSession) -> Wanted:
    return [each.wanted for each in session.partitions.values() if each.settled_at is None]


async def _move(node: Node, case: Case) -> None:
    """Append to the partitions while the fetch waits, and let the other replica acknowledge.

    Time passes before each, so that the fetches stand where they stand in either run.
    """
    for number, count in enumerate(case.arriving):
        await CLOCK.sleep(0.07)
        if count:
            await node.produce(count, to=TopicPartition("topic", number))
    for number, offset in enumerate(case.acknowledged):
        await CLOCK.sleep(0.07)
        name = f"p{number}"
        await node.fetch(follower_params(), **{name: FetchInfo(offset, log_start_offset=0)})


def _shown(answers: Answers) -> Answered:
    return [
        (
            asked.partition,
            attrs.evolve(answer, records=None),
            None if answer.records is None else answer.records.read(),
        )
        for asked, answer in answers
    ]


@settings(max_examples=20)
@given(case=CASES)
def test_a_fetch_of_many_partitions_says_what_one_of_few_says(case: Case) -> None:
    few = trio.run(fetched, case, clock=MockClock(autojump_threshold=0))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fetch, "READ_AT_ONCE", 1)
        many = trio.run(fetched, case, clock=MockClock(autojump_threshold=0))
    assert few == many
    assert few == trio.run(fetched, case, _without_a_task, clock=MockClock(autojump_threshold=0))
