"""Members of a consumer group (librdkafka's), many in one process; what they do is JSON, a line each.

    python -m tests.bench.kafka.group_members SERVERS TOPIC GROUP COUNT

A line tells of a member's partitions each time that they change, with the time. The words
`gap FROM TO` on standard input have it tell the longest time in which one of its members read
nothing, within these two times. All times are the machine's monotonic clock in seconds, which is
the same for all processes.
"""

import itertools
import json
import select
import sys
import time
from typing import Any

import attrs
from confluent_kafka import Consumer

LOOK_SECONDS = 0.01


@attrs.define
class Member:
    """A consumer, its partitions, and when it read something."""

    number: int
    consumer: Consumer
    partitions: set[int] = attrs.field(factory=set)
    read_at: list[float] = attrs.field(factory=list)

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[Any]) -> None:
        self.partitions |= {each.partition for each in partitions}
        self._tell()

    def _on_revoke(self, _: Consumer, partitions: list[Any]) -> None:
        self.partitions -= {each.partition for each in partitions}
        self._tell()

    def _tell(self) -> None:
        say(at=time.monotonic(), member=self.number, partitions=sorted(self.partitions))

    def read(self) -> None:
        if self.consumer.consume(1000, timeout=0):
            self.read_at.append(time.monotonic())

    def longest_gap(self, begin: float, end: float) -> float:
        times = [begin, *(each for each in self.read_at if begin < each < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(servers: str, topic: str, group: str, count: str) -> None:
    config = {"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"}
    members = [Member(number, Consumer(config)) for number in range(int(count))]
    for member in members:
        member.subscribe(topic)
    while True:
        for member in members:
            member.read()
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            words = sys.stdin.readline().split()
            if not words:
                return
            begin, end = map(float, words[1:])
            say(gap=max(member.longest_gap(begin, end) for member in members))


if __name__ == "__main__":
    main(*sys.argv[1:])
