"""Meters of the records and requests of each topic led here, and of all topics together.

    kafka.server:type=BrokerTopicMetrics,name=...             all topics, as long as the broker lives
    kafka.server:type=BrokerTopicMetrics,name=...,topic=t     one of them, from the first time on

Rule 1: as in Kafka, a request is counted once for each partition that it names; a fetch when it
arrives, however long it waits. A partition that is settled in a fetch session is not counted
(replication/leader/rules/settled.py).

Rule 2: a broker that leads no partition of a topic any more drops the meters of leaders
(KAFKA-8392); one that holds none of it drops all. A follower's meters (bytes_in.py) count all
topics together.

Rule 3: a partition that is not here counts for all topics only: clients may invent names.

(BrokerTopicStats, BrokerTopicMetrics.)
"""

from collections.abc import Collection

import attrs

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import Answers
from replication.metrics import Meter, MetricsRegistry
from replication.replica_manager.bytes_in import metric
from replication.replica_manager.hosted import HostedPartitions
from storage.attributes import define
from storage.types import TopicPartition

MESSAGES_IN, BYTES_IN = "MessagesInPerSec", "BytesInPerSec"
PRODUCES, FAILED_PRODUCES = "TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec"
FETCHES, BYTES_OUT = "TotalFetchRequestsPerSec", "BytesOutPerSec"
REPLICATION_BYTES_OUT = "ReplicationBytesOutPerSec"
CORRUPT = "InvalidMessageCrcRecordsPerSec"
OF_A_LEADER = (MESSAGES_IN, BYTES_IN, PRODUCES, FAILED_PRODUCES)
OF_ALL_TOPICS = (*OF_A_LEADER, FETCHES, BYTES_OUT, REPLICATION_BYTES_OUT, CORRUPT)

# Errors that Kafka does not count as failures.
_EXPECTED = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


@define(eq=False)
class TopicMeters:
    """Registered as long as the replica manager lives."""

    registry: MetricsRegistry
    hosted: HostedPartitions
    _of_all: dict[str, Meter] = attrs.field(init=False)
    _of_topic: dict[str, dict[str, Meter]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._of_all = {name: self.registry.meter(metric(name)) for name in OF_ALL_TOPICS}

    def unregister(self) -> None:
        for name in self._of_all:
            self.registry.remove(metric(name))
        for topic in list(self._of_topic):
            self._drop(topic, OF_ALL_TOPICS)

    def produced(
        self, topic_partition: TopicPartition, *, size: int, messages: int, error: ErrorCode
    ) -> None:
        """Count one partition of a produce request, appended or refused."""
        topic = None if self.hosted.find(topic_partition) is None else topic_partition.topic
        if error is ErrorCode.NONE:
            self._mark(topic, (PRODUCES, 1), (BYTES_IN, size), (MESSAGES_IN, messages))
        elif error in _EXPECTED:
            self._mark(topic, (PRODUCES, 1))
        else:
            self._mark(topic, (PRODUCES, 1), (FAILED_PRODUCES, 1))
        if error is ErrorCode.CORRUPT_MESSAGE:
            self._mark(None, (CORRUPT, 1))

    def fetch_has_come(self, answers: Answers) -> None:
        """Count a fetch that has arrived, by the answers of its first read."""
        counted: dict[str | None, int] = {}
        for asked, answer in answers:
            is_here = answer.error is ErrorCode.NONE or self.hosted.find(asked.topic_partition)
            topic = asked.topic if is_here else None
            counted[topic] = counted.get(topic, 0) + 1
        for topic, count in counted.items():
            self._mark(topic, (FETCHES, count))

    def fetched(self, answers: Answers, *, by_follower: bool) -> None:
        for asked, answer in answers:
            if answer.records is None:
                continue
            if by_follower:
                self._of_all[REPLICATION_BYTES_OUT].mark(answer.records.size)
            else:
                self._mark(asked.topic, (BYTES_OUT, answer.records.size))

    def _mark(self, topic: str | None, *marks: tuple[str, int]) -> None:
        meters = None
        if topic is not None:
            if topic not in self._of_topic:
                self._of_topic[topic] = {}
            meters = self._of_topic[topic]
        for name, amount in marks:
            self._of_all[name].count += amount
            if meters is not None:
                if name not in meters:
                    meters[name] = self.registry.meter(metric(name, topic))
                meters[name].count += amount

    def roles_lost(self, topics: Collection[str]) -> None:
        """Drop the meters of topics of which nothing is led, or held, here any more (Rule 2)."""
        counted = self._of_topic.keys() & set(topics)
        if not counted:
            return
        led = {each.topic_partition.topic for each in self.hosted if each.is_leader}
        held = {each.topic for each in self.hosted.online}
        for topic in counted - led:
            self._drop(topic, OF_A_LEADER if topic in held else OF_ALL_TOPICS)

    def _drop(self, topic: str, names: Collection[str]) -> None:
        meters = self._of_topic[topic]
        for name in names:
            if meters.pop(name, None) is not None:
                self.registry.remove(metric(name, topic))
        if not meters:
            del self._of_topic[topic]
