"""An outbox: what a shop has sold goes to Kafka, and each order's row knows its offset."""

import json
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer


class Outbox:
    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self.sent: dict[str, int] = {}
        self.failed: dict[str, KafkaError] = {}

    def send(self, orders: Iterable[dict[str, object]]) -> None:
        for order in orders:
            self._producer.produce(
                self._topic,
                key=str(order["id"]),
                value=json.dumps(order),
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        name = message.key().decode()
        if error is None:
            self.sent[name] = message.offset()
        else:
            self.failed[name] = error
