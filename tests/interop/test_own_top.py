"""`understudy top` reads each replica's end and epochs from Apache Kafka, over its protocol."""

from functools import partial

import pytest

from replication.client.admin import Admin, NewTopic
from replication.net.clock import TrioClock
from replication.observe.cluster_state import ObservedPartition, Role
from replication.observe.protocol_source import ProtocolSource
from replication.observe.state_reader import StateReader
from tests.clients.sample import in_thread
from tests.interop.kafka import Kafka
from tests.interop.own_clients import admin_of, asked_until, producer_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC = "looked-at"


def looking(admin: Admin) -> StateReader:
    source = ProtocolSource(
        admin=admin,
        now_ms=TrioClock().now_ms,
        wanted=lambda topic: topic == TOPIC,
        in_detail=True,
        timeout_ms=10_000,
    )
    return StateReader(source=source)


async def only(state: StateReader) -> ObservedPartition:
    (found,) = (await state.read()).partitions
    return found


async def produce(kafka: Kafka, count: int) -> None:
    async with producer_of(kafka) as producer:
        for number in range(count):
            await producer.send(TOPIC, b"%d" % number)


def all_have_seven(found: ObservedPartition) -> bool:
    ends = [each.log_end_offset for each in found.replicas]
    return ends == [7, 7, 7] and found.replicas[0].high_watermark == 7


async def test_each_replicas_end_and_where_epochs_begin(three: Kafka) -> None:
    async with admin_of(three) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, replicas=((1, 2, 3),))])
        await produce(three, 7)
        state = looking(admin)
        found = await asked_until(partial(only, state), all_have_seven)
        first = found.replicas[0].epochs
        assert first is not None
        assert [tuple(each) for each in first] == [(found.leader_epoch, 0)]
        assert [each.role for each in found.replicas] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
        assert len({each.bytes for each in found.replicas} - {0, None}) == 1
        assert (found.min_isr, found.lag) == (1, 0)

        await in_thread(three.kill, 1)
        await asked_until(partial(only, state), lambda found: found.leader not in (1, None))
        await produce(three, 2)
        found = await only(state)
        leads, dead = found.replica(found.leader), found.replica(1)
        assert leads is not None
        assert leads.epochs is not None
        assert tuple(leads.epochs[-1]) == (found.leader_epoch, 7)
        assert dead is not None
        assert (dead.role, dead.is_live, dead.log_end_offset) == (Role.DOWN, False, 7)
        assert dead.why.startswith("out of the ISR: its broker is down or fenced")
