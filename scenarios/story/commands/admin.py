"""The administrative commands of a story.

alter t retention.ms=60000      set a key of a topic; or of a broker: alter b1
delete-topic t
remake t replicas=b1,b2         delete a topic, and create it again on these brokers
delete-records t-0 5            delete the records before 5; `all` for all that is committed
grow t 2 b2,b3                  add a second partition on these brokers; `&` as in `start b1 &`
reassign t-0 b2,b3              move it there; `back` cancels a move
elect t-0 preferred             or unclean
offsets t-0                     its first and last offset, as a consumer receives them
"""

from collections.abc import Awaitable
from functools import partial

from replication.errors import ErrorCode, PeerUnavailableError
from replication.wire.delete_records import HIGH_WATERMARK
from replication.wire.elect_leaders import PREFERRED, UNCLEAN
from replication.wire.list_offsets import EARLIEST, LATEST
from scenarios.story.arguments import (
    Options,
    Words,
    background,
    broker_id_of,
    exactly,
    number_of,
    partition_of,
    refuse_any,
    replicas_of,
)
from scenarios.story.script import ScriptError
from scenarios.story.stage import Stage
from scenarios.world import admin
from scenarios.world.cluster import BROKER_PORT
from storage.types import TopicId

_ELECTIONS = {"preferred": PREFERRED, "unclean": UNCLEAN}


async def alter(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1)
    if not options:
        raise ScriptError("alter TOPIC|BROKER KEY=VALUE...")
    if topic in stage.cluster.broker_names:
        broker, at = broker_id_of(stage, topic), (topic, BROKER_PORT)
        return await _answer(admin.alter_broker(stage.client, broker, at, options))
    if any(key.startswith("retention.") for key in options):
        stage.trimmed.add(topic)
    return await _answer(admin.alter_topic(stage.client, topic, options))


async def delete_topic(stage: Stage, words: Words, options: Options) -> list[str]:
    (topic,) = exactly(words, 1, options)
    stage.deleted[topic] = stage.cluster.clock.now()
    return _refusal(await admin.delete_topic(stage.client, topic))


async def remake(stage: Stage, words: Words, options: Options) -> list[str]:
    """Delete a topic and create it again; ask as often as needed, until every running broker knows
    it.
    """
    (topic,) = exactly(words, 1)
    replicas = replicas_of(stage, options)
    refuse_any([], options)
    cluster = stage.cluster
    was = cluster.image.topic_id(topic)
    stage.deleted[topic] = cluster.clock.now()

    def known() -> set[TopicId | None]:
        return {each.metadata.image.topic_id(topic) for each in cluster.brokers.values()}

    await stage.insistently(
        partial(admin.delete_topic, stage.client, topic),
        until=lambda: cluster.image.topic_id(topic) != was,
    )
    await stage.insistently(
        partial(stage.client.create_topic, topic, replicas),
        until=lambda: cluster.image.topic_id(topic) is not None,
    )
    await cluster.until(lambda: known().isdisjoint({was, None}), what=f"all know the new {topic}")
    stage.made_again(topic)
    return [f"{topic} is another topic"]


async def delete_records(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    where, before = exactly(words, 2, options)
    offset = HIGH_WATERMARK if before == "all" else number_of(before)
    partition = partition_of(where)
    stage.trimmed.add(partition.topic)
    if in_background:
        stage.ask_in_background(partial(admin.delete_records, stage.client, partition, offset))
        return []
    error, low_watermark = await admin.delete_records(stage.client, partition, offset)
    return _refusal(error) or [f"{where}: low watermark {low_watermark}"]


async def grow(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    topic, count, brokers = exactly(words, 3, options)
    replicas = [broker_id_of(stage, name) for name in brokers.split(",")]
    ask = partial(admin.add_partition, stage.client, topic, number_of(count), replicas)
    if in_background:
        stage.ask_in_background(ask)
        return []
    return await _answer(ask())


async def reassign(stage: Stage, words: Words, options: Options) -> list[str]:
    where, brokers = exactly(words, 2, options)
    back = brokers == "back"
    replicas = None if back else [broker_id_of(stage, name) for name in brokers.split(",")]
    return await _answer(admin.reassign(stage.client, partition_of(where), replicas))


async def elect(stage: Stage, words: Words, options: Options) -> list[str]:
    where, kind = exactly(words, 2, options)
    if kind not in _ELECTIONS:
        raise ScriptError(f"elect PARTITION {' or '.join(_ELECTIONS)}")
    if kind == "unclean":
        stage.checkers.unclean_requested.add(partition_of(where))
    return await _answer(admin.elect(stage.client, partition_of(where), _ELECTIONS[kind]))


async def _answer(asked: Awaitable[ErrorCode]) -> list[str]:
    try:
        return _refusal(await asked)
    except PeerUnavailableError as error:
        return [f"no answer: {error}"]


async def offsets(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    found = []
    for name, timestamp in (("begins at", EARLIEST), ("ends at", LATEST)):
        error, offset = await stage.client.list_offset(partition_of(where), timestamp)
        found.append(f"{name} {error.name if error else offset}")
    return [f"{where}: {', '.join(found)}"]


def _refusal(error: ErrorCode) -> list[str]:
    return [f"refused, {error.name}"] if error else []
