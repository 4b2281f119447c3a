"""Reads clicks, adds who clicked, writes them on; a click that was written is not read again."""

import json
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def enrich(
    servers: str, source: str, target: str, names: Mapping[int, str], *, clicks: int
) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id="enrich",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with consumer, producer:
        async for record in consumer:
            click = json.loads(record.value)
            click["name"] = names[click["user"]]
            await producer.send_and_wait(target, json.dumps(click).encode(), key=record.key)
            await consumer.commit()
            clicks -= 1
            if clicks == 0:
                return
