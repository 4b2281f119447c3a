"""A member of a consumer group (KIP-848) fetches committed offsets under its name and its epoch."""

from typing import Any

from replication.client.consumer import Consumer
from replication.errors import ErrorCode
from replication.wire.apis import ApiKey
from replication.wire.offset_fetch import OffsetFetchResponse
from scenarios.world.world import World
from tests.replication.client.consumer.test_consumer_protocol import (
    member,
    pass_time,
    served,
    settle,
)
from tests.replication.client.consumer.test_group_member import ALL, Noting
from tests.replication.client.scene import T0, played
from tests.replication.client.tampering import Answer, Spoilt, Tampering, says, silence, tampered

GROUP: dict[str, Any] = {
    "bootstrap_servers": ["b1:9092"],
    "group_id": "g",
    "group_protocol": "consumer",
}


@played
async def test_offsets_are_fetched_again_once_the_member_has_heard_of_its_epoch(
    world: World,
) -> None:
    answered: list[int] = []

    def noted(answer: Answer) -> Spoilt:
        def look(response: OffsetFetchResponse) -> None:
            answered.append(response.groups[0].error_code)

        return Spoilt(answer.changed(look))

    fetches = Tampering(ApiKey.OFFSET_FETCH, [], for_ever=noted)
    heartbeats = Tampering(ApiKey.CONSUMER_GROUP_HEARTBEAT, [])
    seams = tampered(tampered(world.node("first"), fetches), heartbeats)
    async with served(world, group_consumer_session_timeout_ms="30000") as stage:
        await stage.client.create_topic("u", ((1,),))
        first = Consumer(
            "t", seams=seams, enable_auto_commit=False, request_timeout_ms=2_000, **GROUP
        )
        async with first, member(stage, "u") as elsewhere:
            await settle(first)
            await first.commit({T0: 1})
            heartbeats.for_ever = silence
            # The group goes on to another epoch, which the member does not hear of.
            await pass_time(world, 3, elsewhere)
            heartbeats.for_ever = None
            answered.clear()
            found = await first.committed(T0)
            assert found is not None
            assert found.offset == 1
    assert set(answered[:-1]) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert answered[-1] == ErrorCode.NONE


@played
async def test_a_member_that_the_group_does_not_have_any_more_joins_again(world: World) -> None:
    listener = Noting()
    unknown = Tampering(ApiKey.OFFSET_FETCH, [says(ErrorCode.UNKNOWN_MEMBER_ID)])
    seams = tampered(world.node("first"), unknown)
    async with served(world) as stage:
        await stage.produce("a")
        consumer = Consumer(seams=seams, auto_offset_reset="earliest", **GROUP)
        consumer.subscribe(["t"], listener=listener)
        async with consumer:
            assert (await consumer.getone()).value == b"a"
            await settle(consumer)
            assert consumer.assignment() == ALL
            assert [each[0] for each in listener.noted] == ["assigned", "lost", "assigned"]
            await consumer.commit()
            assert (await consumer.committed(T0)) is not None
