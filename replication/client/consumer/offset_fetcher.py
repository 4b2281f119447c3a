"""Requests to brokers about offsets: where to begin, and whether a position is still valid.

    AWAIT_RESET ── ListOffsets ──> FETCHING, at what the strategy finds
    AWAIT_VALIDATION ── OffsetForLeaderEpoch ──> FETCHING; or moved back, reset, or raised

Rule 1: resets and validations run beside the program. Each asks once and postpones the next
attempt: until its time is up, or by a back-off if it failed.

Rule 2: an error that no attempt would mend is kept, and raised by the next poll.

Rule 3: a response counts for the position that it was asked about, and for no other.

    error of a partition                                        what follows
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, ... retriable  asked again, with newer metadata
    TOPIC_AUTHORIZATION_FAILED                                  raised
    UNSUPPORTED_FOR_MESSAGE_FORMAT, of ListOffsets              there is no such offset
    any other                                                   asked again (Kafka logs it)

(Kafka: OffsetFetcher, OffsetFetcherUtils, OffsetsForLeaderEpochUtils.)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

import attrs
import trio

from replication.client.cluster_view import ClusterView, Node
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.position import FetchPosition, OffsetResetStrategy, timestamp_of
from replication.client.consumer.records import OffsetAndTimestamp
from replication.client.consumer.subscription import SubscriptionState
from replication.client.errors import (
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.requests import ask, nested
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.wire.fetch import CONSUMER_REPLICA_ID
from replication.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from replication.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.attributes import define, frozen
from storage.types import OffsetAndEpoch, TopicPartition

# Before version 1, ListOffsets returns several offsets for a timestamp; before version 3,
# OffsetForLeaderEpoch is not for consumers.
FIRST_LIST_OFFSETS = 1
FIRST_OFFSET_FOR_LEADER_EPOCH = 3

T = TypeVar("T")


@frozen
class BrokerAnswers(Generic[T]):
    """A broker's answers about some partitions, and the partitions to ask about again."""

    again: set[TopicPartition]
    """At first all partitions that were asked about."""
    found: dict[TopicPartition, T] = attrs.field(init=False, factory=dict)
    unauthorized: set[str] = attrs.field(init=False, factory=set)

    def add(self, tp: TopicPartition, code: int, found: T) -> None:
        """Add the answer about one partition; one that was not asked about is ignored."""
        if tp not in self.again or code not in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ):
            return
        self.again.discard(tp)
        if code == ErrorCode.NONE:
            self.found[tp] = found
        else:
            self.unauthorized.add(tp.topic)


@define(eq=False, kw_only=True)
class OffsetFetcher:
    """The requests of one consumer; their tasks call `on_change` at their end."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    metadata: Metadata
    on_change: Callable[[], None]
    transient_topics: set[str] = attrs.field(init=False, factory=set)
    """Topics that the program asks about, and does not read."""
    _error: KafkaError | None = attrs.field(init=False, default=None)

    @property
    def network(self) -> NetworkClient:
        return self.metadata.network

    @property
    def view(self) -> ClusterView:
        return self.metadata.view

    def raise_error(self) -> None:
        """Raise the error of an earlier attempt, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    # -- resets

    def reset_positions(self) -> None:
        """Ask about all partitions that wait for a reset and are due."""
        wanted = self.subscriptions.needing_reset(self._now_ms)
        by_leader = self._by_leader(wanted)
        for node, strategies in by_leader.items():
            self._put_off(strategies, self.config.request_timeout_ms)
            self.network.nursery.start_soon(self._reset, node, strategies)

    async def _reset(
        self, node: Node, strategies: Mapping[TopicPartition, OffsetResetStrategy]
    ) -> None:
        wall_ms = self.network.clock.wall_ms()
        with self._kept(strategies):
            answers = await self._list(
                node, {tp: timestamp_of(each, wall_ms=wall_ms) for tp, each in strategies.items()}
            )
            self._put_off(answers.again, self.config.retry_backoff_ms)
            for tp, found in answers.found.items():
                if found is not None:
                    self._complete_reset(tp, found, strategies[tp])
                else:
                    self._put_off([tp], self.config.retry_backoff_ms)
            self._note_refusals(answers.unauthorized, answers.again)
        self.on_change()

    def _complete_reset(
        self, tp: TopicPartition, found: OffsetAndTimestamp, strategy: OffsetResetStrategy
    ) -> None:
        if self.view.note_epoch(tp, found.leader_epoch):
            self.metadata.request_update()
        position = FetchPosition(found.offset, leader=self.view.leader(tp))
        self.subscriptions.complete_reset(tp, position, strategy)

    # -- validation

    def validate_positions(self) -> None:
        """Ask about all partitions that wait for a validation and are due."""
        wanted = self.subscriptions.needing_validation(self._now_ms)
        for node, positions in self._by_leader(wanted).items():
            self._put_off(positions, self.config.request_timeout_ms)
            self.network.nursery.start_soon(self._validate, node, positions)

    async def _validate(
        self, node: Node, positions: Mapping[TopicPartition, FetchPosition]
    ) -> None:
        with self._kept(positions):
            try:
                answers = await self._list_epoch_ends(node, positions)
            except UnsupportedVersionError:
                # The broker is too old: a position that cannot be checked is used.
                for tp in positions:
                    if (state := self.subscriptions.state_or_none(tp)) is not None:
                        state.complete_validation()
            else:
                self._put_off(answers.again, self.config.retry_backoff_ms)
                for tp, end in answers.found.items():
                    error = self.subscriptions.complete_validation(tp, positions[tp], end)
                    self._error = self._error or error
                self._note_refusals(answers.unauthorized, answers.again)
        self.on_change()

    # -- offsets that a program asks for

    async def offsets_for(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset of each timestamp; KafkaTimeoutError if some are missing in time."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        topics = {tp.topic for tp in timestamps} - self.transient_topics
        self.transient_topics |= topics
        try:
            with self.network.clock.move_on_after(timeout_ms / 1000):
                while missing := {tp: at for tp, at in timestamps.items() if tp not in found}:
                    found |= await self._offsets_round(missing)
        finally:
            self.transient_topics -= topics
        if len(found) < len(timestamps) and timeout_ms > 0:
            names = ", ".join(str(tp) for tp in timestamps if tp not in found)
            raise KafkaTimeoutError(
                f"no offsets of {names} within {timeout_ms:.0f} ms"
            ) from self.metadata.last_error
        return found

    async def _offsets_round(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Ask every leader once; if some partitions are left, wait for new metadata."""
        await trio.lowlevel.checkpoint()
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failures: list[KafkaError] = []

        async def one(node: Node, asked: Mapping[TopicPartition, int]) -> None:
            try:
                answers = await self._list(node, asked)
            except NO_ANSWER as error:
                self.metadata.last_error = error
            except KafkaError as error:
                failures.append(error)
            else:
                found.update(answers.found)
                if answers.unauthorized:
                    failures.append(TopicAuthorizationFailedError(answers.unauthorized))

        async with trio.open_nursery() as nursery:
            for node, asked in self._by_leader(timestamps).items():
                nursery.start_soon(partial(one, node, asked))
        if failures:
            raise failures[0]
        self.metadata.raise_for_topics([tp.topic for tp in timestamps])
        if len(found) < len(timestamps):
            self.metadata.request_update()
            await self.metadata.wait_for_news()
        return found

    # -- shared by the three

    async def _list(
        self, node: Node, wanted: Mapping[TopicPartition, int]
    ) -> BrokerAnswers[OffsetAndTimestamp | None]:
        """Ask for the offsets of timestamps; None for a timestamp after all records."""
        topics = nested(
            wanted,
            ListOffsetsTopic,
            lambda tp: ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=self.view.leader(tp).epoch,
                timestamp=wanted[tp],
            ),
        )
        message = ListOffsetsRequest(topics=topics, isolation_level=int(self.config.read_committed))
        response = await self.network.call(node, ask(message, min_version=FIRST_LIST_OFFSETS))
        answers = BrokerAnswers[OffsetAndTimestamp | None](set(wanted))
        for topic in response.topics:
            for each in topic.partitions:
                tp, code, found = (
                    TopicPartition(topic.name, each.partition_index),
                    each.error_code,
                    None,
                )
                if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    code = ErrorCode.NONE
                elif each.offset >= 0:
                    found = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                answers.add(tp, code, found)
        return answers

    async def _list_epoch_ends(
        self, node: Node, wanted: Mapping[TopicPartition, FetchPosition]
    ) -> BrokerAnswers[OffsetAndEpoch]:
        """Ask where the leader epochs of positions end."""
        topics = nested(
            wanted,
            OffsetForLeaderTopic,
            lambda tp: OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=wanted[tp].leader.epoch,
                leader_epoch=wanted[tp].offset_epoch,
            ),
        )
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)
        response = await self.network.call(
            node, ask(request, min_version=FIRST_OFFSET_FOR_LEADER_EPOCH)
        )
        answers = BrokerAnswers[OffsetAndEpoch](set(wanted))
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic, each.partition)
                answers.add(tp, each.error_code, OffsetAndEpoch(each.end_offset, each.leader_epoch))
        return answers

    def _by_leader(self, wanted: Mapping[TopicPartition, T]) -> dict[Node, dict[TopicPartition, T]]:
        """Group partitions by leader; request metadata for those without one."""
        found: dict[Node, dict[TopicPartition, T]] = {}
        for tp, each in wanted.items():
            node = self.view.leader(tp).node
            if node is None:
                self.metadata.request_update()
            elif not self.network.is_backing_off(node.id):
                found.setdefault(node, {})[tp] = each
        return found

    def _put_off(self, partitions: Iterable[TopicPartition], wait_ms: float) -> None:
        self.subscriptions.retry_at(partitions, self._now_ms + wait_ms)

    def _note_refusals(self, unauthorized: set[str], again: set[TopicPartition]) -> None:
        if unauthorized:
            self._error = self._error or TopicAuthorizationFailedError(unauthorized)
        if again:
            self.metadata.request_update()

    @contextmanager
    def _kept(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        """Catch the failure of an attempt: it is repeated, or its error kept for the next poll."""
        try:
            yield
        except NO_ANSWER:
            self._put_off(partitions, self.config.retry_backoff_ms)
            self.metadata.request_update()
        except KafkaError as error:
            self._error = self._error or error

    @property
    def _now_ms(self) -> float:
        return self.network.clock.now() * 1000
