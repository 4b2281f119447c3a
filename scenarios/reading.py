"""The commands by which a story consumes.

read t-0                            what a consumer is given now, from the beginning
fetch t-0 at=5 from=b3 rack=r2      what one fetch is given, from whoever leads or from that one
poll t-0 (or: poll t-0 &)           what the same consumer is given next
"""

from replication.errors import KafkaError
from scenarios.arguments import (
    Options,
    Words,
    background,
    broker_id_of,
    exactly,
    number_of,
    partition_of,
)
from scenarios.simulation.cluster import BROKER_PORT, node_name
from scenarios.stage import Stage


async def read(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    records = await stage.client.read(partition_of(where))
    return [" ".join(["read:", *(record.value for record in records)])]


async def fetch(stage: Stage, words: Words, options: Options) -> list[str]:
    position = number_of(options.pop("at", "0"))
    broker, rack = options.pop("from", None), options.pop("rack", "")
    (where,) = exactly(words, 1, options)
    if broker is not None:
        broker_id_of(stage, broker)
    address = None if broker is None else (broker, BROKER_PORT)
    try:
        found = await stage.client.fetch_from(address, partition_of(where), position, rack=rack)
    except KafkaError as error:
        return [f"refused, {error.code.name}"]
    if found.preferred >= 0:
        return [f"{node_name(found.preferred)} is to be asked"]
    return [" ".join(["fetched:", *(record.value for record in found.records)])]


async def poll(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    (where,) = exactly(words, 1, options)
    consumer = stage.consumer(partition_of(where))
    if in_background:
        stage.ask_in_background(consumer.poll)
        return []
    return [" ".join(["polled:", *(value for _, value in await consumer.poll())])]
