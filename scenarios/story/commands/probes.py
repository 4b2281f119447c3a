"""The commands that break a protocol on purpose, and fail where the leader answers wrongly.

    probe-session t-0                a fetch session whose requests come twice, forget, diverge
    probe-producer t-0 a b c d e f g h    an idempotent producer whose batches come again, leave a
                                     sequence out, are of an earlier epoch, wrap

They say nothing while all is well (`scenarios.world.probes`).
"""

from collections.abc import AsyncIterator

from replication.errors import PeerUnavailableError
from replication.wire.produce import ACKS_ALL
from scenarios.checkers.observed import InvariantViolatedError
from scenarios.story.arguments import Options, Words, exactly, partition_of
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world import probes
from scenarios.world.client import closing
from storage.types import LeaderEpoch, TopicPartition

SESSION = "a fetch session is answered as its requests say"
PRODUCER = "a producer's batches are taken in their order"
BATCHES = 8


async def probe_session(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    partition = partition_of(where)
    epoch = _leader_epoch(stage, partition)
    try:
        async with closing(await stage.client.connect(partition, None)) as client:
            await _judge(SESSION, partition, probes.probe_session(client, partition, epoch))
    except PeerUnavailableError:
        pass
    return []


async def probe_producer(stage: Stage, words: Words, options: Options) -> list[str]:
    where, *values = exactly(words, None, options)
    if len(values) != BATCHES:
        raise ScriptError(f"probe-producer PARTITION VALUE... takes {BATCHES} values")
    partition = partition_of(where)
    batches = [stage.new_batch(partition, (value,), ACKS_ALL) for value in values]
    try:
        async with closing(await stage.client.connect(partition, None)) as client:
            epoch = _leader_epoch(stage, partition)
            answers = probes.probe_producer(
                stage.client, client, batches, lambda: _leader_epoch(stage, partition) == epoch
            )
            await _judge(PRODUCER, partition, answers)
    except PeerUnavailableError:
        pass
    return []


async def _judge(rule: str, partition: TopicPartition, answers: AsyncIterator[str]) -> None:
    async for what in answers:
        raise InvariantViolatedError(rule, f"{partition}: {what}")


def _leader_epoch(stage: Stage, partition: TopicPartition) -> LeaderEpoch:
    registration = stage.cluster.partition(partition)
    return -1 if registration is None else registration.leader_epoch
