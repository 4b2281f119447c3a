"""A web gateway's part that talks to Kafka: takes events, waits until they are safe."""

import asyncio

from confluent_kafka.aio import AIOProducer


class Gateway:
    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = AIOProducer({"bootstrap.servers": servers, "acks": "all"})

    async def accept(self, *events: str) -> list[int]:
        """The offsets that they were given."""
        waiting = [await self._producer.produce(self._topic, each) for each in events]
        await self._producer.flush()
        return [message.offset() for message in await asyncio.gather(*waiting)]

    async def close(self) -> None:
        await self._producer.close()
