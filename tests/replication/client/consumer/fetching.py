"""The consumer's fetching without a network: its requests, the responses, the records.

    rig = reading(T0)                                  t-0, t-1, t-2, u-0; brokers 1 and 2, 1 leads all
    [sent] = rig.send()                                the requests that would go out
    rig.answer(sent, {T0: data(batch([...]))})         goes through the wire's codec, both ways
    rig.collect()                                      what a poll would hand over

The parts are the consumer's own; brokers are the test.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from replication.client.cluster_view import ClusterView, Node
from replication.client.consumer.completed_fetch import FetchBuffer, ReadSettings
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.fetch_collector import FetchCollector
from replication.client.consumer.fetcher import FetchRequests
from replication.client.consumer.metrics import FetchMetrics
from replication.client.consumer.position import EARLIEST, FetchPosition, OffsetResetStrategy
from replication.client.consumer.records import ConsumerRecord, deserialize_function
from replication.client.consumer.subscription import SubscriptionState
from replication.errors import ErrorCode
from replication.follower.rules.fetch_session_handler import FetchRequestData
from replication.metrics import MetricsRegistry
from replication.wire.apis import ApiKey
from replication.wire.fetch import (
    AbortedTransactionData,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from replication.wire.frames import decode_request, decode_response, encode_request, encode_response
from replication.wire.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage.batch.records import Record, encode_batch
from storage.types import NO_TOPIC_ID, TopicPartition

T0, T1, T2, U0 = (TopicPartition(*each) for each in [("t", 0), ("t", 1), ("t", 2), ("u", 0)])
TOPIC_IDS = {"t": b"t" * 16, "u": b"u" * 16}
SESSION = 77


def values(first: int, last: int, **options: Any) -> bytes:
    """A batch of the offsets `first` to `last`."""
    return batch_of(
        [Record(offset=each, value=b"%d" % each) for each in range(first, last + 1)], **options
    )


def batch_of(records: Sequence[Record], **options: Any) -> bytes:
    options.setdefault("base_offset", records[0].offset if records else 0)
    return encode_batch(records, **options)


def data(*batches: bytes, error: ErrorCode = ErrorCode.NONE, **options: Any) -> dict[str, Any]:
    """One partition's part of an answer."""
    options.setdefault("high_watermark", 100)
    return {"records": b"".join(batches), "error_code": error, **options}


def aborted(*transactions: tuple[int, int]) -> list[AbortedTransactionData]:
    """(producer id, first offset) each."""
    return [
        AbortedTransactionData(producer_id=each, first_offset=first) for each, first in transactions
    ]


class Sent(NamedTuple):
    """A request on its way."""

    node: Node
    data: FetchRequestData
    version: int
    request: FetchRequest

    def offsets(self) -> dict[str, int]:
        """Return the fetch offsets of this request, by `topic or id-partition`."""
        return {
            f"{each.topic or each.topic_id[:1].decode()}-{partition.partition}": partition.fetch_offset
            for each in self.request.topics
            for partition in each.partitions
        }

    def forgotten(self) -> list[str]:
        return [
            f"{each.topic or each.topic_id[:1].decode()}-{partition}"
            for each in self.request.forgotten_topics_data
            for partition in each.partitions
        ]


@attrs.define(eq=False)
class Rig:
    """A consumer's fetching, and a clock that is turned by hand."""

    policy: OffsetResetStrategy | None = EARLIEST
    max_poll_records: int = 500
    read_committed: bool = False
    check_crcs: bool = True
    key_deserializer: Any = None
    value_deserializer: Any = None
    rack: str = ""
    now_ms: float = 0.0
    metadata_requested: int = 0
    unavailable: set[int] = attrs.field(factory=set)
    topic_ids: dict[str, bytes] = attrs.field(factory=lambda: dict(TOPIC_IDS))
    leaders: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)
    newest: int = 17
    view: ClusterView = attrs.field(init=False, factory=ClusterView)
    buffer: FetchBuffer = attrs.field(init=False, factory=FetchBuffer)
    subscriptions: SubscriptionState = attrs.field(init=False)
    registry: MetricsRegistry = attrs.field(init=False)
    metrics: FetchMetrics = attrs.field(init=False)
    requests: FetchRequests = attrs.field(init=False)
    collector: FetchCollector = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.subscriptions = SubscriptionState(self.policy)
        self.registry = MetricsRegistry(self.now)
        self.metrics = FetchMetrics(self.registry, self.now)
        config = ConsumerConfig.of(
            bootstrap_servers="b1:9092",
            client_rack=self.rack,
            max_poll_records=self.max_poll_records,
            max_partition_fetch_bytes=1 << 16,
            isolation_level="read_committed" if self.read_committed else "read_uncommitted",
        )
        self.requests = FetchRequests(
            config=config,
            subscriptions=self.subscriptions,
            view=self.view,
            buffer=self.buffer,
            read_settings=ReadSettings(
                check_crcs=self.check_crcs,
                read_committed=self.read_committed,
                key_deserializer=deserialize_function(self.key_deserializer),
                value_deserializer=deserialize_function(self.value_deserializer),
            ),
            metrics=self.metrics,
            is_unavailable=lambda node: node.id in self.unavailable,
            request_metadata=self.request_metadata,
        )
        self.collector = FetchCollector(
            config=config,
            subscriptions=self.subscriptions,
            buffer=self.buffer,
            request_metadata=self.request_metadata,
            now_ms=lambda: self.now_ms,
            metrics=self.metrics,
        )
        self.update_metadata()

    def now(self) -> float:
        return self.now_ms / 1000

    def request_metadata(self) -> None:
        self.metadata_requested += 1

    def update_metadata(self, *, brokers: Sequence[int] = (1, 2), epoch: int = 1) -> None:
        """Broker 1 leads everything, but for what `leaders` says."""
        topics = []
        for topic, count in [("t", 20), ("u", 1)]:
            partitions = []
            for index in range(count):
                default = (1, epoch)
                leader, leader_epoch = self.leaders.get(TopicPartition(topic, index), default)
                partitions.append(
                    MetadataResponsePartition(
                        partition_index=index, leader_id=leader, leader_epoch=leader_epoch
                    )
                )
            topic_id = self.topic_ids.get(topic, NO_TOPIC_ID)
            topics.append(
                MetadataResponseTopic(name=topic, topic_id=topic_id, partitions=partitions)
            )
        nodes = [
            MetadataResponseBroker(node_id=each, host=f"b{each}", port=9092) for each in brokers
        ]
        self.view.update(MetadataResponse(brokers=nodes, topics=topics))
        self.requests.validate_positions()

    # -- the program's side

    def assign(self, *partitions: TopicPartition, at: int | None = None) -> None:
        self.subscriptions.assign_from_user(partitions)
        if at is not None:
            for tp in partitions:
                self.seek(tp, at)

    def assign_from_group(self, *partitions: TopicPartition, at: int | None = None) -> None:
        self.subscriptions.subscribe({tp.topic for tp in partitions} or self.subscriptions.topics)
        self.subscriptions.assign_from_subscribed(partitions)
        if at is not None:
            for tp in partitions:
                self.seek(tp, at)

    def seek(self, tp: TopicPartition, offset: int, *, epoch: int = -1) -> None:
        self.subscriptions.seek(tp, FetchPosition(offset, epoch, self.view.leader(tp)))

    def position(self, tp: TopicPartition) -> int | None:
        position = self.subscriptions.state(tp).position
        return None if position is None else position.offset

    def collect(self) -> dict[TopicPartition, list[int]]:
        """Offsets by partition."""
        return {
            tp: [record.offset for record in records]
            for tp, records in self.collector.collect().records.items()
        }

    def records(self) -> list[ConsumerRecord]:
        return list(self.collector.collect().handed_over())

    # -- the network's side

    def send(self) -> list[Sent]:
        self.requests.validate_positions()
        sent = []
        for node, asked in self.requests.prepare(now_ms=self.now_ms):
            request = self.requests.request(asked)
            version = min(self.newest, request.max_version)
            frame = _frame(
                encode_request(
                    request.build(version), version=version, correlation_id=1, client_id="c"
                )
            )
            message = decode_request(frame)[1]
            assert isinstance(message, FetchRequest)
            sent.append(Sent(node, asked, version, message))
        return sent

    def answer(
        self,
        sent: Sent,
        answers: Mapping[TopicPartition, dict[str, Any]],
        *,
        session_id: int = SESSION,
        **options: Any,
    ) -> None:
        """Full ones name every partition of the session, so those left out have nothing new."""
        named = dict(answers)
        if sent.data.metadata.is_full and "error_code" not in options:
            named = {tp: named.get(tp, data()) for tp in sent.data.session_partitions} | named
        topics = [
            FetchableTopicResponse(
                topic=tp.topic,
                topic_id=self.topic_ids.get(tp.topic, NO_TOPIC_ID),
                partitions=[PartitionData(partition_index=tp.partition, **each)],
            )
            for tp, each in named.items()
        ]
        response = FetchResponse(session_id=session_id, responses=topics, **options)
        frame = _frame(encode_response(response, version=sent.version, correlation_id=1))
        decoded = decode_response(frame, api_key=ApiKey.FETCH, version=sent.version)[1]
        assert isinstance(decoded, FetchResponse)
        self.requests.on_response(sent.node, sent.data, decoded, version=sent.version)

    def fetch(self, answers: Mapping[TopicPartition, dict[str, Any]], **options: Any) -> Sent:
        """One request and its answer."""
        [sent] = self.send()
        self.answer(sent, answers, **options)
        return sent

    def metric(self, name: str, tp: TopicPartition | None = None) -> float:
        return self.registry.read(self.metrics.name(name, tp))


def reading(*partitions: TopicPartition, at: int = 0, **config: Any) -> Rig:
    """Return a rig that reads these partitions from offset `at` on."""
    rig = Rig(**config)
    rig.assign(*partitions, at=at)
    return rig


def _frame(parts: Sequence[Any]) -> memoryview:
    return memoryview(b"".join(bytes(each) for each in parts))[4:]
