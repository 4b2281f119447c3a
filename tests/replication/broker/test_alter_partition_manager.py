"""One request in flight, everything queued in it, and no answer lost."""

import attrs
import trio
from trio.testing import MockClock

from replication.broker.alter_partition_manager import AlterPartitionManager
from replication.errors import ErrorCode
from replication.leader.rules.isr import IsrAnswer, IsrMember, IsrProposal
from replication.net.clock import TrioClock
from replication.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionAnswer,
    TopicAnswer,
)
from storage.types import TopicPartition
from tests.replication.controller.controllers import FakeController

TOPIC_ID = b"a topic's 16 byte"[:16]
BROKER_EPOCH = 41


CLOCK = TrioClock()


def proposal(*isr: int, partition_epoch: int = 3) -> IsrProposal:
    members = tuple(IsrMember(broker_id, BROKER_EPOCH + broker_id) for broker_id in isr)
    return IsrProposal(leader_epoch=5, partition_epoch=partition_epoch, isr=members)


def agree(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Every proposal is taken as it is."""
    return AlterPartitionResponse(
        topics=[
            TopicAnswer(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionAnswer(
                        partition_index=data.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=data.leader_epoch,
                        isr=[member.broker_id for member in data.new_isr_with_epochs],
                        partition_epoch=data.partition_epoch + 1,
                    )
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def manager_for(controller: FakeController) -> AlterPartitionManager:
    return AlterPartitionManager(
        broker_id=1,
        broker_epoch=lambda: BROKER_EPOCH,
        channel=controller,
        clock=CLOCK,
        timeout_ms=1000,
    )


@attrs.define
class Submitter:
    """A submitter that keeps its answers."""

    manager: AlterPartitionManager
    answers: dict[int, IsrAnswer] = attrs.field(factory=dict)

    async def submit(self, index: int, *isr: int) -> None:
        partition = TopicPartition("topic", index)
        self.answers[index] = await self.manager.submit(partition, TOPIC_ID, proposal(*isr))


async def test_an_agreed_isr_comes_back_with_its_new_partition_epoch(
    autojump_clock: MockClock,
) -> None:
    controller = FakeController(agree)
    manager = manager_for(controller)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        answer = await manager.submit(TopicPartition("topic", 0), TOPIC_ID, proposal(1, 2))
        nursery.cancel_scope.cancel()
    assert answer == IsrAnswer(leader_epoch=5, partition_epoch=4, isr=frozenset({1, 2}))
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (1, BROKER_EPOCH)
    (data,) = request.topics[0].partitions
    assert [(m.broker_id, m.broker_epoch) for m in data.new_isr_with_epochs] == [(1, 42), (2, 43)]


async def test_what_is_queued_while_a_request_is_out_goes_into_the_next_together(
    autojump_clock: MockClock,
) -> None:
    controller = FakeController(agree)
    submitter = Submitter(manager_for(controller))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submitter.manager.run)
        async with trio.open_nursery() as submitting:
            submitting.start_soon(submitter.submit, 0, 1, 2)
            await trio.testing.wait_all_tasks_blocked()
            for index in (1, 2, 3):
                submitting.start_soon(submitter.submit, index, 1)
        nursery.cancel_scope.cancel()
    sizes = [sum(len(topic.partitions) for topic in each.topics) for each in controller.requests]
    assert sizes == [1, 3]
    assert {index: set(each.isr) for index, each in submitter.answers.items()} == {
        0: {1, 2},
        1: {1},
        2: {1},
        3: {1},
    }


async def test_a_second_change_of_a_partition_is_not_attempted(autojump_clock: MockClock) -> None:
    controller = FakeController(agree)
    submitter = Submitter(manager_for(controller))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submitter.manager.run)
        nursery.start_soon(submitter.submit, 0, 1, 2)
        await trio.testing.wait_all_tasks_blocked()
        second = await submitter.manager.submit(
            TopicPartition("topic", 0), TOPIC_ID, proposal(1, 2, 3)
        )
        assert second.error is ErrorCode.OPERATION_NOT_ATTEMPTED
        nursery.cancel_scope.cancel()
    assert len(controller.requests) == 1


async def test_a_top_level_error_and_a_lost_controller_are_asked_again_after_50_ms(
    autojump_clock: MockClock,
) -> None:
    refusals = [
        None,
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
    ]

    def answer(request: AlterPartitionRequest) -> AlterPartitionResponse | None:
        return refusals.pop(0) if refusals else agree(request)

    controller = FakeController(answer, latency_seconds=0.0)
    submitter = Submitter(manager_for(controller))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submitter.manager.run)
        await submitter.submit(0, 1, 2)
        nursery.cancel_scope.cancel()
    assert submitter.answers[0].error is ErrorCode.NONE
    gaps = [b - a for a, b in zip(controller.asked_at, controller.asked_at[1:], strict=False)]
    assert [round(gap, 3) for gap in gaps] == [0.05, 0.05, 0.05]


async def test_a_partition_left_out_of_the_answer_is_asked_about_again(
    autojump_clock: MockClock,
) -> None:
    forget = [True]

    def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = agree(request)
        if forget.pop() if forget else False:
            del response.topics[0].partitions[0]
        return response

    submitter = Submitter(manager_for(FakeController(answer)))
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as submitting:
            submitting.start_soon(submitter.submit, 0, 1)
            submitting.start_soon(submitter.submit, 1, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(submitter.manager.run)
        nursery.cancel_scope.cancel()
    assert submitter.answers.keys() == {0, 1}


async def test_a_change_whose_submitter_has_gone_is_not_sent_again(
    autojump_clock: MockClock,
) -> None:
    controller = FakeController(lambda _: None)
    submitter = Submitter(manager_for(controller))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submitter.manager.run)
        with CLOCK.move_on_after(0.12):
            await submitter.submit(0, 1)
        asked = len(controller.requests)
        await CLOCK.sleep(10)
        assert len(controller.requests) == asked > 1
        nursery.cancel_scope.cancel()
