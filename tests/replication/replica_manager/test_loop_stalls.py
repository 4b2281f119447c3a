"""How long the loop waits, for a disk on which a sync alone costs a second, and for checks.

While a broker syncs on the loop, everybody waits: clients, followers, its own heartbeats. So
what one broker does every minute, or for every partition when a leader dies, must not.
"""

import random
import sys
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import FetchInfo, TopicIdPartition, Wanted
from replication.leader.rules.fetch_session.session import (
    CachedPartition,
    FetchSession,
    partition_key,
)
from replication.leader.rules.isr import IsrAnswer, IsrProposal
from replication.metadata.rules.image import PartitionRegistration
from replication.steps import STEP, at_once
from replication.wire.fetch import PartitionData
from storage.batch.allowance import STEPS, STEPS_PER_BATCH
from storage.batch.records import Record, encode_batch
from storage.testing import FaultyFileSystem
from storage.testing.disk import DiskCosts
from storage.types import Offset, TopicId, TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    TOPIC_ID,
    batch,
    broker,
    consumer_params,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import (
    CLOCK,
    SECOND,
    TP,
    Controller,
    Node,
)
from tests.replication.server.attacked import counted

T = TypeVar("T")

ONLY_SYNCS = DiskCosts(open=0, read=0, read_per_byte=0, write=0, write_per_byte=0, sync=1)
CONFIG = BrokerConfig(node_id=LOCAL, log_dirs=("/d",))
ALONE = registration(isr=(LOCAL,), replicas=(LOCAL,))
FOLLOWED = registration(leader=REMOTE)
FOLLOWED_SINCE = registration(leader=REMOTE, leader_epoch=2, partition_epoch=2)


def _costly_disk() -> FaultyFileSystem:
    disk = FaultyFileSystem(random.Random(1))
    disk.disk.costs = ONLY_SYNCS
    return disk


@attrs.define(eq=False)
class Metered:
    """Offloads in place, and counts what the disk cost there and what it cost the loop."""

    disk: FaultyFileSystem = attrs.field(factory=_costly_disk)
    off_the_loop: float = 0.0
    _on_the_loop: float = 0.0

    async def __call__(self, fn: Callable[[], T], /) -> T:
        await trio.lowlevel.checkpoint()
        self._on_the_loop += self.disk.take_cost()
        try:
            return fn()
        finally:
            self.off_the_loop += self.disk.take_cost()

    @property
    def on_the_loop(self) -> float:
        self._on_the_loop += self.disk.take_cost()
        return self._on_the_loop

    def reset(self) -> None:
        self.disk.take_cost()
        self.off_the_loop = self._on_the_loop = 0.0


def metered() -> tuple[Metered, Node]:
    meter = Metered()
    return meter, Node(config=CONFIG, file_system=meter.disk, offload=meter)


def take_over(node: Node, *, epoch: int) -> None:
    """A batch of the leader's, as a fetcher hands it to the replica."""
    end = node.state().log_end_offset
    node.manager.replicas.process_partition_data(
        TP,
        end,
        epoch,
        PartitionData(
            partition_index=0,
            high_watermark=end,
            log_start_offset=0,
            records=batch(3, base_offset=end, leader_epoch=epoch),
        ),
    )


@pytest.mark.parametrize("partition", [ALONE, FOLLOWED], ids=["leading", "following"])
async def test_a_new_role_is_taken_without_a_sync_on_the_loop(
    autojump_clock: MockClock, partition: object
) -> None:
    meter, node = metered()
    async with node.running():
        meter.reset()
        await node.learn(partition, partition)  # type: ignore[arg-type]  # one of two
        assert meter.on_the_loop == 0
        assert meter.off_the_loop > 0


async def test_a_leader_appends_without_a_sync(autojump_clock: MockClock) -> None:
    meter, node = metered()
    async with node.running():
        await node.learn(ALONE, ALONE)
        meter.reset()
        for partition in (TP, SECOND, TP):
            await node.produce(to=partition)
        assert (meter.on_the_loop, meter.off_the_loop) == (0, 0)


async def test_a_leader_syncs_what_is_to_last_away_from_the_loop_and_answers_after(
    autojump_clock: MockClock,
) -> None:
    meter, node = metered()
    async with node.running():
        await node.learn(ALONE, ALONE, configs={"flush.messages": "1"})
        meter.reset()
        for acks in (1, -1):
            result = await node.produce(3, acks=acks)
            assert node.manager.hosted.get(TP).log.recovery_point == result.base_offset + 3
            assert node.state().high_watermark == result.base_offset + 3
        assert meter.on_the_loop == 0
        assert meter.off_the_loop > 0


async def test_a_followers_first_append_in_a_leader_epoch_needs_no_sync(
    autojump_clock: MockClock,
) -> None:
    meter, node = metered()
    async with node.running():
        await node.learn(FOLLOWED)
        meter.reset()
        for epoch in (1, 1, 2, 3):
            take_over(node, epoch=epoch)
        assert (meter.on_the_loop, meter.off_the_loop) == (0, 0)
        log = node.logs.get(TP)
        assert log is not None
        log.roll()
        await CLOCK.sleep(2)
        assert log.recovery_point == 12
        assert meter.on_the_loop == 0
        # Before the recovery point could pass them, the epochs were on the disk.
        epochs = node.file_system.open_for_reading("/d/topic-0/leader-epoch-checkpoint")
        assert epochs.read(0, 100) == b"0\n3\n1 0\n2 6\n3 9\n"


async def test_no_checkpoint_of_a_minute_is_synced_on_the_loop(autojump_clock: MockClock) -> None:
    meter, node = metered()
    async with node.running():
        await node.learn(ALONE)
        await node.produce(5)
        await node.manager.delete_records.delete({TP: 3}, timeout_ms=0)
        log = node.logs.get(TP)
        assert log is not None
        log.flush()
        meter.reset()
        await CLOCK.sleep(31)
        (directory,) = node.logs.directories
        assert directory.recovery_points == {TP: 5}
        assert directory.log_start_offsets == {TP: 3}
        assert meter.on_the_loop == 0
        # Each of the two: the file, its name beside, and its name; the high watermarks' six times.
        assert meter.off_the_loop == 2 * 3 + 6 * 2


async def test_what_a_truncation_relies_on_is_synced_where_it_is_cut(
    autojump_clock: MockClock,
) -> None:
    """What is left on the loop: marks that a crash would believe go down before the file does."""
    meter, node = metered()
    async with node.running():
        await node.learn(FOLLOWED)
        take_over(node, epoch=1)
        meter.reset()
        node.manager.replicas.truncate_to(TP, 2, completed=True)
        assert meter.on_the_loop == 0  # no checkpoint has claimed what is cut
        log = node.logs.get(TP)
        assert log is not None
        log.flush()
        await CLOCK.sleep(31)
        meter.reset()
        node.manager.replicas.truncate_to(TP, 0, completed=True)
        # The recovery point and its name; and that no producer snapshot comes back.
        assert meter.on_the_loop == 2 + 1


# Checks that are long.


def long_to_check() -> memoryview:
    """Return a batch whose framing takes more steps than an allowance has."""
    records = [Record(timestamp=0, value=bytes(each % 2)) for each in range(STEPS)]
    return memoryview(bytearray(encode_batch(records)))


@attrs.define(eq=False)
class Counting:
    """Offloads in place; `meanwhile` happens while a call is away from the loop."""

    meanwhile: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    calls: int = 0

    async def __call__(self, fn: Callable[[], T], /) -> T:
        done = fn()
        self.calls += 1
        await self.meanwhile()
        return done


async def test_a_long_check_is_made_away_from_the_loop_and_others_are_served_meanwhile(
    autojump_clock: MockClock,
) -> None:
    offload = Counting()
    node = Node(config=CONFIG, offload=offload)
    async with node.running():
        await node.learn(ALONE, ALONE)
        before = offload.calls
        assert (await node.produce(3)).base_offset == 0
        assert offload.calls == before

        async def others() -> None:
            assert (await node.produce(2)).base_offset == 3

        offload.meanwhile = others
        assert (await node.produce(records=long_to_check())).base_offset == 5
        assert offload.calls == before + 1
        assert node.state().log_end_offset == 5 + STEPS


@pytest.mark.parametrize(
    ("now", "error"),
    [
        pytest.param([FOLLOWED_SINCE], ErrorCode.NOT_LEADER_OR_FOLLOWER, id="another leads"),
        pytest.param([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="the topic is deleted"),
    ],
)
async def test_what_is_no_longer_led_when_a_long_check_ends_is_not_appended_to(
    autojump_clock: MockClock, now: list[PartitionRegistration], error: ErrorCode
) -> None:
    offload = Counting()
    node = Node(config=CONFIG, offload=offload)
    async with node.running():
        await node.learn(ALONE)

        async def lose() -> None:
            offload.meanwhile = trio.lowlevel.checkpoint
            await node.learn(*now)

        offload.meanwhile = lose
        assert (await node.produce(records=long_to_check())).error is error


async def test_a_produce_for_many_partitions_lets_others_have_their_turn(
    autojump_clock: MockClock,
) -> None:
    node = Node(config=CONFIG)
    async with node.running():
        await node.learn(*[ALONE] * 200)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            entries = {TopicPartition("topic", each): batch() for each in range(200)}
            results = await node.manager.produce.append(
                timeout_ms=1000, required_acks=1, entries=entries
            )
            nursery.cancel_scope.cancel()
        assert {each.error for each in results.values()} == {ErrorCode.NONE}
        assert turns >= 200 * STEPS_PER_BATCH // STEPS


# Much of everything: one turn of the loop looks at a part of it.

MANY = 5 * STEP
MOST_LINES = 250 * STEP
"""The lines that one turn may take; in one go, the jobs and requests here take more for `MANY`."""


def every_partition(count: int, *, offset: Offset = 0) -> Wanted:
    return [
        (TopicIdPartition(TOPIC_ID, "topic", number), FetchInfo(offset, log_start_offset=0))
        for number in range(count)
    ]


def session_of(wanted: Wanted, terms: Hashable) -> FetchSession:
    session = FetchSession(
        session_id=1,
        privileged=False,
        uses_topic_ids=True,
        partitions={partition_key(each[0]): CachedPartition(each) for each in wanted},
        created_ms=0,
        last_used_ms=0,
    )
    at_once(session.agree_on(terms))
    return session


async def uncounted(fn: Callable[[], T], /) -> T:
    """Offload in place, and count nothing of it."""
    await trio.lowlevel.checkpoint()
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return fn()
    finally:
        sys.settrace(tracer)


class SilentController(Controller):
    """Answers nothing, so that no answers come all at once."""

    async def submit(
        self, partition: TopicPartition, topic_id: TopicId, proposal: IsrProposal
    ) -> IsrAnswer:
        self.proposals.append(proposal)
        await trio.sleep_forever()
        raise AssertionError


async def in_a_pause(node: Node, act: Callable[[], object]) -> None:
    """Do `act` while a long fetch has read some partitions, and not yet all."""
    while node.manager.purgatories.fetch.watched not in range(1, MANY):
        await trio.lowlevel.checkpoint()
    act()


async def test_the_jobs_of_a_broker_with_many_partitions_have_no_long_turn(
    autojump_clock: MockClock,
) -> None:
    shared = registration(isr=(LOCAL, REMOTE))
    config = attrs.evolve(CONFIG, log_flush_scheduler_interval_ms=1000)
    node = Node(config=config, controller=SilentController(), offload=uncounted)
    async with node.running():
        await node.learn(*[shared] * MANY, configs={"cleanup.policy": "compact"})
        with counted() as minute:
            await CLOCK.sleep(60)
        with counted() as fenced:
            gone = attrs.evolve(broker(REMOTE), fenced=True)
            await node.learn(*[shared] * MANY, brokers=[gone])
        with counted() as configured:
            await node.learn(*[shared] * MANY, configs={"retention.ms": "1000"})
        with counted() as deleted:
            await node.learn()
        assert not node.manager.hosted.online
    assert len(node.controller.proposals) == MANY  # of shrinking, in the first minute
    turns = {"jobs": minute, "fenced": fenced, "configured": configured, "deleted": deleted}
    assert {name: each for name, each in turns.items() if each["steps"] > MOST_LINES} == {}


async def test_a_fetch_of_many_partitions_has_no_long_turn(autojump_clock: MockClock) -> None:
    node = Node(config=CONFIG)
    async with node.running():
        await node.learn(*[ALONE] * MANY)
        await node.produce()
        wanted = every_partition(MANY, offset=0)
        with counted() as at_once:
            answers = await node.manager.fetch.fetch(consumer_params(), wanted)
        with counted() as waiting:
            params = consumer_params(min_bytes=1 << 20, max_wait_ms=100)
            again = await node.manager.fetch.fetch(params, wanted)
    assert [asked for asked, _ in answers] == [asked for asked, _ in again]
    assert [answer.records_size > 0 for _, answer in again] == [True] + [False] * (MANY - 1)
    assert max(at_once["steps"], waiting["steps"]) <= MOST_LINES


@pytest.mark.parametrize("settled", [False, True], ids=["was read", "was settled before"])
async def test_what_moves_while_a_long_fetch_reads_ends_its_wait(
    autojump_clock: MockClock, settled: bool
) -> None:
    node = Node(config=CONFIG)
    async with node.running(), trio.open_nursery() as nursery:
        await node.learn(*[ALONE] * (MANY + 1))
        params = consumer_params(max_wait_ms=10_000)
        fetching = node.manager.fetch
        moving = TopicPartition("topic", MANY if settled else 0)
        session = session_of(every_partition(MANY + 1), fetching.terms(params))
        wanted = every_partition(MANY + 1)
        if settled:  # by a first fetch that asks for nothing else
            await fetching.fetch(attrs.evolve(params, max_wait_ms=0), wanted[MANY:], session)
            wanted = wanted[:MANY]
        nursery.start_soon(
            in_a_pause, node, partial(nursery.start_soon, partial(node.produce, to=moving))
        )
        began = CLOCK.now()
        answers = await fetching.fetch(params, wanted, session)
        assert CLOCK.now() - began < 1
        found = [asked.topic_partition for asked, answer in answers if answer.records_size]
        assert found == [moving]


@pytest.mark.parametrize("on_other_terms", [False, True])
async def test_nothing_is_settled_in_a_session_that_a_long_fetch_has_lost(
    autojump_clock: MockClock, on_other_terms: bool
) -> None:
    """Nobody would unsettle it: what moves there later would not be answered."""
    node = Node(config=CONFIG)
    async with node.running(), trio.open_nursery() as nursery:
        await node.learn(*[ALONE] * MANY)
        params, wanted = consumer_params(max_wait_ms=1), every_partition(MANY)
        session = session_of(wanted, node.manager.fetch.terms(params))

        def lose() -> None:
            assert sum(len(each.settled) for each in node.manager.hosted) > 0
            if on_other_terms:
                at_once(session.agree_on("other terms"))
            else:
                session.close()

        nursery.start_soon(in_a_pause, node, lose)
        assert len(await node.manager.fetch.fetch(params, wanted, session)) == MANY
        assert sum(len(each.settled) for each in node.manager.hosted) == 0
