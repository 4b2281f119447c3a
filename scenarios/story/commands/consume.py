"""The commands by which a story consumes.

read t-0                            what a consumer receives now, from the beginning
poll t-0 (or: poll t-0 &)           what the same consumer receives next
poll t-0 rack=r1                    from the replica that the leader prefers for that rack
                                    (KIP-392)
"""

from functools import partial

from scenarios.story.arguments import Options, Words, background, exactly, partition_of
from scenarios.story.stage import Stage


async def read(stage: Stage, words: Words, options: Options) -> list[str]:
    (where,) = exactly(words, 1, options)
    records = await stage.client.read(partition_of(where))
    return [" ".join(["read:", *(record.value for record in records)])]


async def poll(stage: Stage, words: Words, options: Options) -> list[str]:
    words, in_background = background(words)
    rack = options.pop("rack", "")
    (where,) = exactly(words, 1, options)
    consumer = partial(stage.consumer(partition_of(where)).poll, rack=rack)
    if in_background:
        stage.ask_in_background(consumer)
        return []
    return [" ".join(["polled:", *(value for _, value in await stage.patiently(consumer))])]
