"""A pool of threads, each a member of one group, works off a topic of pictures."""

import threading
from collections.abc import Callable

from confluent_kafka import Consumer


class Pool:
    def __init__(self, servers: str, topic: str, work: Callable[[bytes], None], size: int) -> None:
        self._servers, self._topic, self._work = servers, topic, work
        self._ended = threading.Event()
        self.busy: set[int] = set()
        self._threads = [threading.Thread(target=self._run, args=[each]) for each in range(size)]

    def __enter__(self) -> "Pool":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "thumbnails",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            message = consumer.poll(0.1)
            if consumer.assignment():
                self.busy.add(number)
            if message is None or message.error():
                continue
            self._work(message.value())
            consumer.commit(message, asynchronous=False)
        consumer.close()
