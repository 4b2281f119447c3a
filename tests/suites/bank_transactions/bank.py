"""Books transfers exactly once: what is read and what is written are one transaction."""

import json

from confluent_kafka import Consumer, KafkaException, Producer


class Booking:
    """Reads transfers, writes two bookings for each."""

    def __init__(self, servers: str, transfers: str, bookings: str, name: str = "bank") -> None:
        self._bookings = bookings
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([transfers])
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        self._producer.init_transactions(60)

    def book(self, count: int, *, fail_at: int | None = None) -> None:
        for number in range(count):
            while (message := self._consumer.poll(1.0)) is None or message.error():
                pass
            transfer = json.loads(message.value())
            self._producer.begin_transaction()
            self._write(transfer["from"], -transfer["amount"])
            if number == fail_at:
                raise ConnectionAbortedError("the process dies here")
            self._write(transfer["to"], transfer["amount"])
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()),
                self._consumer.consumer_group_metadata(),
                60,
            )
            self._producer.commit_transaction(60)

    def close(self) -> None:
        self._consumer.close()

    def _write(self, account: str, amount: int) -> None:
        self._producer.produce(self._bookings, key=account, value=str(amount))


def is_fenced(error: KafkaException) -> bool:
    return bool(error.args[0].fatal())
