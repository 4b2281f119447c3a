"""The commands that produce.

    produce t-0 acks=1 one two          one batch, and its answer
    produce t-0 acks=all three &        the same, without waiting for the answer
    produce t-0 acks=1 to=b1 four       to a broker that does not lead
    produce t-0 a:five b:six            with keys: the part before the colon is the key as well

    produce t-0 as=p1 seven             from an idempotent producer of that name (KIP-98)
    produce t-0 as=p1 sequence=5 eight  with a sequence out of order
    produce t-0 as=p1 epoch=1 nine      with a new epoch: its sequences count from 0
    produce t-0 as=p1 delivery.timeout.ms=9000 ten &    sent again until it is answered, each
                                        batch in its order; without as=, it may be there twice
    again one                           the batch of `one`, as after a lost answer

    answers                             the answers of all batches sent with `&`

Except by `again` no value is sent twice: the ledger identifies records by their values.

The commands for a producer in the background:

    load t-0 p1 records=60 every=250ms  p1-1 to p1-60, one after the other, in the background
    loaded p1 within=1s                 once the last is acked: whether none took longer

It behaves as a stock client: idempotent (KIP-98), acks=all, and a record that was not acked is sent
again, unchanged, before the next. So none is lost, none is there twice, and all are in order,
whatever happens to the cluster; the end of the story shows it.
"""

from functools import partial

from replication.wire.produce import ACKS_ALL
from scenarios.story.arguments import (
    Options,
    Words,
    background,
    broker_id_of,
    exactly,
    number_of,
    partition_of,
    refuse_any,
    seconds_of,
)
from scenarios.story.client_stage import BackgroundProducer, ClientStage
from scenarios.story.script import ScriptError
from scenarios.world.client import (
    RETRY_SECONDS,
    AckedBatch,
    Address,
    NoAnswer,
    Refused,
    SentRecords,
)
from scenarios.world.cluster import BROKER_PORT
from storage.types import TopicPartition

PRODUCE_TIMEOUT_MS = 30_000
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}


async def produce(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    where, *values = words or [""]
    acks = _ACKS.get(options.pop("acks", "all"))
    timeout_ms, to = _how(stage, options)
    delivery_timeout = options.pop("delivery.timeout.ms", None)
    producer = options.pop("as", None)
    of_producer = {
        key: number_of(options.pop(key)) for key in ("epoch", "sequence") if key in options
    }
    refuse_any([], options)
    if acks is None or not values or (of_producer and producer is None):
        raise ScriptError("produce PARTITION acks=0|1|all VALUE...; epoch= and sequence= with as=")
    if delivery_timeout is not None and (not in_background or to or of_producer):
        raise ScriptError("delivery.timeout.ms goes with `&`, without to=, epoch= and sequence=")
    batch = stage.new_batch(partition_of(where), tuple(values), acks)
    if delivery_timeout is not None:
        stage.deliver_in_background(
            batch,
            producer,
            timeout_ms=timeout_ms,
            delivery_timeout_ms=number_of(delivery_timeout),
        )
        return []
    if producer is not None:
        await stage.put_in_sequence(batch, producer, **of_producer)
    return await _send(stage, batch, timeout_ms, to, in_background=in_background)


async def again(stage: ClientStage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    timeout_ms, to = _how(stage, options)
    (value,) = exactly(words, 1, options)
    found = [batch for batch in stage.batches if value in batch.values]
    if not found:
        raise ScriptError(f"{value!r} was not sent before")
    return await _send(stage, found[0], timeout_ms, to, in_background=in_background)


def _how(stage: ClientStage, options: Options) -> tuple[int, Address | None]:
    timeout_ms = number_of(options.pop("timeout.ms", str(PRODUCE_TIMEOUT_MS)))
    broker = options.pop("to", None)
    if broker is None:
        return timeout_ms, None
    broker_id_of(stage, broker)
    return timeout_ms, (broker, BROKER_PORT)


async def _send(
    stage: ClientStage,
    batch: SentRecords,
    timeout_ms: int,
    to: Address | None,
    *,
    in_background: bool,
) -> list[str]:
    if in_background:
        stage.send_in_background(batch, timeout_ms=timeout_ms, to=to)
        return []
    await stage.client.send(batch, timeout_ms=timeout_ms, to=to)
    return [outcome_of(batch)]


async def answers(stage: ClientStage, words: Words, options: Options) -> list[str]:
    refuse_any(words, options)
    return [outcome_of(batch) for batch in await stage.answers()]


def outcome_of(batch: SentRecords) -> str:
    values = " ".join(batch.values)
    match batch.outcome:
        case AckedBatch(base_offset):
            last = base_offset + len(batch.values) - 1
            return f"{values}: acked at {base_offset}" + (f"-{last}" if last > base_offset else "")
        case Refused(error):
            return f"{values}: refused, {error.name}"
        case NoAnswer(cause):
            return f"{values}: no answer: {cause}"
        case None:
            return f"{values}: nothing yet"


ATTEMPT_MS = 2_000


async def load(stage: ClientStage, words: Words, options: Options) -> list[str]:
    records = number_of(options.pop("records", "10"))
    every = seconds_of(options.pop("every", "100ms"))
    where, name = exactly(words, 2, options)
    if name in stage.work:
        raise ScriptError(f"{name} is at work already")
    work = stage.work[name] = BackgroundProducer(records)
    stage.ask_in_background(partial(_produce, stage, partition_of(where), name, work, every))
    return []


async def _produce(
    stage: ClientStage, partition: TopicPartition, name: str, work: BackgroundProducer, every: float
) -> None:
    for number in range(1, work.records + 1):
        batch = stage.new_batch(partition, (f"{name}-{number}",), ACKS_ALL)
        await stage.put_in_sequence(batch, name)
        if not await _is_acked(stage, batch):
            work.gave_up = f"{batch.values[0]} was not acked: {batch.outcome}"
            return
        work.acked += 1
        work.longest = max(work.longest, batch.answered_at - batch.sent_at)
        await stage.cluster.clock.sleep(every)


async def _is_acked(stage: ClientStage, batch: SentRecords) -> bool:
    while True:
        await stage.client.send(batch, timeout_ms=ATTEMPT_MS)
        if isinstance(batch.outcome, Refused) and not batch.outcome.error.retriable:
            return False
        if batch.acked:
            return True
        await stage.cluster.clock.sleep(RETRY_SECONDS)


async def loaded(stage: ClientStage, words: Words, options: Options) -> list[str]:
    within = options.pop("within", None)
    (name,) = exactly(words, 1, options)
    if name not in stage.work:
        raise ScriptError(f"no producer in the background is called {name!r}")
    work = stage.work[name]
    await stage.cluster.until(lambda: work.done, what=f"{name} has done its work")
    if work.gave_up is not None:
        return [f"{name}: {work.acked} acked; {work.gave_up}"]
    summary = f"{name}: {work.acked} acked"
    if within is not None:
        summary += f", {'' if work.longest <= seconds_of(within) else 'not '}each within {within}"
    return [summary]
