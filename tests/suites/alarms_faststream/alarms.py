"""Sensors' readings come in, alarms go out; FastStream over confluent-kafka."""

from collections.abc import Callable

from faststream.confluent import KafkaBroker

LIMIT = 90


def alarms(servers: str, readings: str, raise_alarm: Callable[[str], None]) -> KafkaBroker:
    broker = KafkaBroker(servers)

    @broker.subscriber(readings, group_id="alarms", auto_offset_reset="earliest")
    async def read(reading: dict[str, int]) -> None:
        for sensor, value in reading.items():
            if value > LIMIT:
                raise_alarm(sensor)

    return broker
