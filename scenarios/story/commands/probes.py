"""The commands that break a protocol on purpose, and fail where the leader answers wrongly.

    probe-session t-0                a fetch session whose requests come twice, forget, diverge
    probe-producer t-0 a b c d e f g h    an idempotent producer whose batches come again, leave a
                                     sequence out, are of an earlier epoch, wrap
    probe-transactions u             transactional producers that write to a topic of two partitions
    probe-quiet-session u            a session that has read both partitions, which have one leader
    probe-group u                    a member of a group of KIP-848 that names an epoch of its own, and
                                     a static one that upgrades a classic group
    probe-join u                     a member that joins a group, and is silent from then on
    probe-silent-member u            the next member of that group, which is to have everything
    probe-throttle slow-0 free-0 b2  b2 comes back and lacks all of slow-0, which its leader throttles
    probe-expiry u b1                producers and transactional ids that fall silent for longer than
                                     b1 keeps them, their leader and coordinator, which then restarts

They say nothing while all is well (`scenarios.world.probes`, `scenarios.world.transaction_probes`).
"""

from collections.abc import AsyncIterator
from contextlib import suppress

from replication.errors import PeerUnavailableError
from replication.wire.produce import ACKS_ALL
from scenarios.checkers.observed import HeldLog, InvariantViolatedError
from scenarios.story.arguments import Options, Words, exactly, partition_of
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world import probes, throttle_probe, transaction_probes
from scenarios.world.client import closing
from storage.types import LeaderEpoch, Offset, TopicPartition

SESSION = "a fetch session is answered as its requests say"
PRODUCER = "a producer's batches are taken in their order"
EPOCH_END = "an epoch that has not begun has no end"
GROUP = "a member of a group is known by its epoch"
UPGRADE = "a member that upgrades its group has what it reads"
SILENT_MEMBER = "a member that is silent leaves its group"
THROTTLE = "throttled replicas catch up at their rate, and no others are held back"
QUIET_SESSION = "a fetch session hears of what has changed, and of nothing else"
TRANSACTIONS = "a transaction has one producer, and ends"
EXPIRY = "what has been silent for its time expires, and nothing else"
BATCHES = 8
LONG_EXPIRATION_MS = "604800000"


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


async def probe_quiet_session(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    partition = TopicPartition(topic, 0)
    try:
        async with (
            closing(await stage.client.connect(partition, None)) as client,
            closing(await stage.client.connect(partition, None)) as other,
        ):
            await _judge(EPOCH_END, partition, probes.probe_epoch_end(client, partition))
            answers = probes.probe_quiet_session(stage.client, client, other, topic)
            await _judge(QUIET_SESSION, topic, answers)
    except PeerUnavailableError:
        pass
    return []


async def probe_transactions(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    answers = transaction_probes.probe_transactions(stage.client, topic)
    await _judge(TRANSACTIONS, topic, answers)
    return []


async def probe_expiry(stage: Stage, words: Words, options: Options) -> list[str]:
    topic, name = exactly(words, 2, options)
    if not stage.cluster.is_running(name):
        return []
    config = stage.cluster.brokers[name].config
    times = transaction_probes.Expiration(
        config.producer_id_expiration_ms + config.producer_id_expiration_check_interval_ms,
        config.transactional_id_expiration_ms,
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )

    async def restart() -> None:
        stage.cluster.configure(name, {"transactional.id.expiration.ms": LONG_EXPIRATION_MS})
        await stage.cluster.stop(name)
        await stage.cluster.start(name)

    answers = transaction_probes.probe_expiry(stage.client, topic, times, restart)
    await _judge(EXPIRY, topic, answers)
    return []


async def probe_group(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    await _judge(GROUP, topic, transaction_probes.probe_group(stage.client, topic))
    await _judge(UPGRADE, topic, transaction_probes.probe_upgrade(stage.client, topic))
    return []


async def probe_join(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    with suppress(PeerUnavailableError):
        await transaction_probes.join_once(stage.client, topic)
    return []


async def probe_silent_member(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    answers = transaction_probes.probe_silent_member(stage.client, topic)
    await _judge(SILENT_MEMBER, topic, answers)
    return []


async def probe_throttle(stage: Stage, words: Words, options: Options) -> list[str]:
    slow, free, follower = exactly(words, 3, options)
    partition = partition_of(slow)
    leader = stage.cluster.leader(partition) or ""
    log = stage.online(leader)[partition].log
    held = HeldLog(stage.world.disk(leader), log)
    held.read_on()

    def log_end() -> Offset:
        replica = stage.online(follower).get(partition)
        return 0 if replica is None else replica.log.log_end_offset

    if stage.cluster.is_running(follower) or not held.batches:
        return []
    quota = stage.cluster.replica_managers[leader].quotas.leader
    await stage.cluster.until(
        lambda: quota.is_throttled(partition), what=f"{leader} throttles {partition}"
    )
    await stage.cluster.start(follower)
    catching_up = throttle_probe.CatchingUp(
        story=stage.client,
        slow=partition,
        free=partition_of(free),
        log_end=log_end,
        sizes=tuple(len(held.content_from(each.base_offset)) for each in held.batches),
        wait_seconds=stage.cluster.brokers[leader].config.replica_fetch_wait_max_ms / 1000,
    )
    await _judge(THROTTLE, partition, throttle_probe.probe_throttle(catching_up))
    await stage.cluster.until(
        lambda: _is_whole(stage, partition), what=f"all replicas of {partition} are in sync"
    )
    await _judge(THROTTLE, partition, throttle_probe.probe_in_sync(catching_up))
    return []


async def _judge(rule: str, where: object, answers: AsyncIterator[str]) -> None:
    async for what in answers:
        raise InvariantViolatedError(rule, f"{where}: {what}")


def _is_whole(stage: Stage, partition: TopicPartition) -> bool:
    registration = stage.cluster.partition(partition)
    return registration is not None and set(registration.isr) == set(registration.replicas)


def _leader_epoch(stage: Stage, partition: TopicPartition) -> LeaderEpoch:
    registration = stage.cluster.partition(partition)
    return -1 if registration is None else registration.leader_epoch
