"""Copies the topic `lines` to the topic `shouted`, in capitals. Argument: the servers."""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(sys.argv[1])


@broker.subscriber(
    "lines",
    group_id="shouting",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,  # committed when it is done, and not before
)
@broker.publisher("shouted")
async def shout(line: str) -> str:
    return line.upper()


asyncio.run(FastStream(broker).run())
