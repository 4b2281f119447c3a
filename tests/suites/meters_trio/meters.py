"""Meters report, and a roll-up is kept of each; in trio, with understudy's client."""

from replication.client import Consumer, Producer


async def report(servers: str, topic: str, readings: dict[str, list[int]]) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for meter, values in readings.items():
            for value in values:
                await producer.send(topic, key=meter.encode(), value=str(value).encode())


async def roll_up(servers: str, topic: str, partitions: int) -> dict[str, int]:
    """The sum of each meter, over all that is in the topic now."""
    sums: dict[str, int] = {}
    async with Consumer(bootstrap_servers=servers) as consumer:
        assigned = [(topic, each) for each in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning()
        left = sum((await consumer.end_offsets(assigned)).values())
        while left > 0:
            for record in await consumer.poll(timeout_ms=1000):
                meter = record.key.decode()
                sums[meter] = sums.get(meter, 0) + int(record.value)
                left -= 1
    return sums
