"""The commands for a producer in the background.

load t-0 p1 records=60 every=250ms      p1-1 to p1-60, one after the other, in the background
loaded p1 within=1s                     once the last is acked: whether none took longer

It behaves as a stock client: idempotent (KIP-98), acks=all, and a record that was not acked is sent
again, unchanged, before the next. So none is lost, none is there twice, and all are in order,
whatever happens to the cluster; the end of the story shows it.
"""

from functools import partial

from replication.wire.produce import ACKS_ALL
from scenarios.story.arguments import Options, Words, exactly, number_of, partition_of, seconds_of
from scenarios.story.script import ScriptError
from scenarios.story.stage import BackgroundProducer, Stage
from scenarios.world.client import RETRY_SECONDS, Refused, SentRecords
from storage.types import TopicPartition

ATTEMPT_MS = 2_000


async def load(stage: Stage, words: Words, options: Options) -> list[str]:
    records = number_of(options.pop("records", "10"))
    every = seconds_of(options.pop("every", "100ms"))
    where, name = exactly(words, 2, options)
    if name in stage.work:
        raise ScriptError(f"{name} is at work already")
    work = stage.work[name] = BackgroundProducer(records)
    stage.ask_in_background(partial(_produce, stage, partition_of(where), name, work, every))
    return []


async def _produce(
    stage: Stage, partition: TopicPartition, name: str, work: BackgroundProducer, every: float
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


async def _is_acked(stage: Stage, batch: SentRecords) -> bool:
    while True:
        await stage.client.send(batch, timeout_ms=ATTEMPT_MS)
        if isinstance(batch.outcome, Refused) and not batch.outcome.error.retriable:
            return False
        if batch.acked:
            return True
        await stage.cluster.clock.sleep(RETRY_SECONDS)


async def loaded(stage: Stage, words: Words, options: Options) -> list[str]:
    within = options.pop("within", None)
    (name,) = exactly(words, 1, options)
    if name not in stage.work:
        raise ScriptError(f"nobody is called {name!r}")
    work = stage.work[name]
    await stage.cluster.until(lambda: work.done, what=f"{name} has done its work")
    if work.gave_up is not None:
        return [f"{name}: {work.acked} acked; {work.gave_up}"]
    summary = f"{name}: {work.acked} acked"
    if within is not None:
        summary += f", {'' if work.longest <= seconds_of(within) else 'not '}each within {within}"
    return [summary]
