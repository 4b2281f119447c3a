"""The partitions that a consumer reads, how it got them, and its position in each.

    assign(...)                        by hand: no group
    subscribe([...])                   topics; the group assigns partitions of them
    subscribe(pattern)                 topics whose names match, as they come and go; a
                                       `SubscriptionPattern` is matched by the brokers (KIP-848)

Rule 1: these exclude each other until `unsubscribe`.

Rule 2: assigned partitions have an order, in which they are fetched. A partition that has handed
over records, or failed, goes to the end, so that none is starved.

Rule 3: a call about a partition that is no longer assigned comes too late: a question raises an
error of the program, and a notice is ignored.

(Kafka: SubscriptionState.)
"""

import enum
import re
from collections.abc import Callable, Iterable

import attrs

from replication.client.cluster_view import Leader
from replication.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from replication.client.consumer.position import (
    FetchPosition,
    FetchState,
    OffsetResetStrategy,
    PartitionState,
    PreferredReadReplica,
)
from replication.client.errors import IllegalStateError
from replication.wire.metadata import INTERNAL_TOPICS
from storage.attributes import define, frozen
from storage.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    Offset,
    OffsetAndEpoch,
    TopicId,
    TopicPartition,
)


class SubscriptionType(enum.Enum):
    """The way in which a consumer gets its partitions."""

    NONE = "nothing"
    AUTO_TOPICS = "topics"
    AUTO_PATTERN = "a pattern"
    SERVER_PATTERN = "a pattern that brokers match"
    USER_ASSIGNED = "partitions assigned by hand"


@frozen
class SubscriptionPattern:
    """A regular expression in the syntax of RE2/J, which brokers match with the names of topics."""

    pattern: str


@define(eq=False)
class SubscriptionState:
    """The state of one consumer; `default_strategy` is `auto.offset.reset`."""

    default_strategy: OffsetResetStrategy | None
    exclude_internal_topics: bool = True
    type: SubscriptionType = SubscriptionType.NONE
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    server_pattern: str | None = None
    target_topics: frozenset[TopicId] = frozenset()
    """The topics of which the coordinator wants this member to read partitions (KIP-848)."""
    group_topics: frozenset[str] = frozenset()
    """The topics of the whole group, of which its leader needs metadata."""
    assignment_id: int = 0
    """A number that grows with each new assignment."""
    _assigned: dict[TopicPartition, PartitionState] = attrs.field(init=False, factory=dict)

    # -- subscribing

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to `topics`; return whether that is another set than before."""
        self._set_type(SubscriptionType.AUTO_TOPICS)
        return self._change_topics(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._set_type(SubscriptionType.AUTO_PATTERN)
        self.pattern = pattern

    def subscribe_server_pattern(self, pattern: SubscriptionPattern) -> None:
        self._set_type(SubscriptionType.SERVER_PATTERN)
        self.server_pattern = pattern.pattern

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Subscribe to those of all `topics` that match; return whether that is another set."""
        return self._change_topics(topic for topic in topics if self.matches(topic))

    def matches(self, topic: str) -> bool:
        if self.pattern is None or (self.exclude_internal_topics and topic in INTERNAL_TOPICS):
            return False
        return self.pattern.fullmatch(topic) is not None

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assign partitions by hand; those that stay keep their positions. Return if it changed."""
        self._set_type(SubscriptionType.USER_ASSIGNED)
        wanted = dict.fromkeys(partitions)
        if self._assigned.keys() == wanted.keys():
            return False
        self._take(wanted)
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign the partitions that the group has given."""
        assert self.uses_group, "only a group gives partitions"
        self._take(dict.fromkeys(partitions))

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign what the group has given; new ones wait for the listener and `enable`."""
        before = self._assigned
        self.assign_from_subscribed(partitions)
        for tp, state in self._assigned.items():
            state.pending_on_assigned |= tp not in before

    def enable(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if (state := self._assigned.get(tp)) is not None:
                state.pending_on_assigned = False

    def fits_subscription(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the partitions are of subscribed topics.

        (ConsumerCoordinator.checkAssignmentMatchedSubscription.)
        """
        if self.type is SubscriptionType.AUTO_PATTERN:
            return all(self.matches(tp.topic) for tp in partitions)
        return all(tp.topic in self.topics for tp in partitions)

    def unsubscribe(self) -> None:
        self._take({})
        self.type = SubscriptionType.NONE
        self.topics = self.group_topics = frozenset()
        self.target_topics = frozenset()
        self.pattern = self.server_pattern = None

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Note the topics of a group that we lead; return if more metadata is needed."""
        assert self.uses_group, "only members of a group lead one"
        before, self.group_topics = self.metadata_topics, frozenset(topics)
        return not self.metadata_topics <= before

    def reset_group_subscription(self) -> None:
        self.group_topics = frozenset()

    @property
    def uses_group(self) -> bool:
        return self.type not in (SubscriptionType.NONE, SubscriptionType.USER_ASSIGNED)

    @property
    def has_none(self) -> bool:
        return self.type is SubscriptionType.NONE

    @property
    def metadata_topics(self) -> frozenset[str]:
        if self.type is SubscriptionType.USER_ASSIGNED:
            return frozenset(tp.topic for tp in self._assigned)
        return self.topics | self.group_topics

    def _set_type(self, wanted: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, wanted):
            raise IllegalStateError(
                f"subscribed to {self.type.value}: unsubscribe before subscribing to {wanted.value}"
            )
        self.type = wanted

    def _change_topics(self, topics: Iterable[str]) -> bool:
        before, self.topics = self.topics, frozenset(topics)
        return before != self.topics

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        self.assignment_id += 1
        before = self._assigned
        self._assigned = {tp: before.get(tp) or PartitionState() for tp in partitions}

    # -- what is assigned

    @property
    def assigned(self) -> list[TopicPartition]:
        """The assigned partitions, in the order in which they are fetched."""
        return list(self._assigned)

    def state(self, tp: TopicPartition) -> PartitionState:
        found = self._assigned.get(tp)
        if found is None:
            raise IllegalStateError(f"no current assignment for partition {tp}")
        return found

    def state_or_none(self, tp: TopicPartition) -> PartitionState | None:
        return self._assigned.get(tp)

    def fetchable(self, is_available: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        return [
            tp for tp, state in self._assigned.items() if state.is_fetchable and is_available(tp)
        ]

    def is_fetchable(self, tp: TopicPartition) -> bool:
        state = self._assigned.get(tp)
        return state is not None and state.is_fetchable

    def is_paused(self, tp: TopicPartition) -> bool:
        state = self._assigned.get(tp)
        return state is not None and state.paused

    @property
    def paused(self) -> set[TopicPartition]:
        return {tp for tp, state in self._assigned.items() if state.paused}

    def pause(self, tp: TopicPartition) -> None:
        self.state(tp).paused = True

    def resume(self, tp: TopicPartition) -> None:
        self.state(tp).paused = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over no more records of partitions that are about to be given back."""
        for tp in partitions:
            self.state(tp).pending_revocation = True

    def move_to_end(self, tp: TopicPartition) -> None:
        if tp in self._assigned:
            self._assigned[tp] = self._assigned.pop(tp)

    # -- positions

    def valid_position(self, tp: TopicPartition) -> FetchPosition | None:
        """Return the position from which a partition may be read now, if there is one."""
        state = self._assigned.get(tp)
        return state.position if state is not None and state.has_valid_position else None

    def advance(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Move past records that were handed over or skipped."""
        state = self.state(tp)
        assert state.has_valid_position, "only what is fetched moves on"
        state.position = position

    def seek(self, tp: TopicPartition, position: FetchPosition) -> None:
        self.state(tp).seek_unvalidated(position)

    def has_all_positions(self) -> bool:
        return all(state.has_valid_position for state in self._assigned.values())

    def initializing(self) -> list[TopicPartition]:
        """Return the partitions whose committed offsets are not fetched yet."""
        return self._in(FetchState.INITIALIZING)

    def _in(self, wanted: FetchState) -> list[TopicPartition]:
        return [tp for tp, state in self._assigned.items() if state.state is wanted]

    def consumed(self) -> dict[TopicPartition, FetchPosition]:
        """Return the positions of all partitions that have one."""
        return {
            tp: state.position for tp, state in self._assigned.items() if state.position is not None
        }

    # -- resets

    def request_reset(
        self, tp: TopicPartition, strategy: OffsetResetStrategy | None = None
    ) -> None:
        strategy = strategy or self.default_strategy
        assert strategy is not None, "a reset needs a strategy"
        self.state(tp).reset(strategy)

    def reset_initializing(self) -> None:
        """Reset the partitions without a committed offset; NoOffsetForPartitionError if no policy."""
        without = self.initializing()
        if without and self.default_strategy is None:
            raise NoOffsetForPartitionError(without)
        for tp in without:
            self.request_reset(tp)

    def needing_reset(self, now_ms: float) -> dict[TopicPartition, OffsetResetStrategy]:
        found = {}
        for tp in self._in(FetchState.AWAIT_RESET):
            state = self._assigned[tp]
            if state.is_due(now_ms):
                assert state.reset_strategy is not None, "a reset has a strategy"
                found[tp] = state.reset_strategy
        return found

    def complete_reset(
        self, tp: TopicPartition, position: FetchPosition, strategy: OffsetResetStrategy
    ) -> None:
        """Take the result of a reset; it is ignored if the partition waits for another one."""
        state = self._assigned.get(tp)
        if (
            state is not None
            and state.state is FetchState.AWAIT_RESET
            and state.reset_strategy == strategy
        ):
            state.seek_unvalidated(position)

    def retry_at(self, partitions: Iterable[TopicPartition], at_ms: float) -> None:
        for tp in partitions:
            if (state := self._assigned.get(tp)) is not None:
                state.next_retry_ms = at_ms

    def put_off_for_ms(self, now_ms: float) -> float | None:
        """Return the time until the next postponed partition is due; None if there is none."""
        retries = (state.next_retry_ms for state in self._assigned.values())
        return min((at - now_ms for at in retries if at is not None and at > now_ms), default=None)

    # -- validation (KIP-320)

    def maybe_validate(self, tp: TopicPartition, leader: Leader, *, supported: bool) -> bool:
        """Note the present leader; return whether the position must be validated first."""
        state = self._assigned.get(tp)
        if state is None:
            return False
        if supported or leader.node is None:
            return state.maybe_validate(leader)
        state.take_leader(leader)
        return False

    def needing_validation(self, now_ms: float) -> dict[TopicPartition, FetchPosition]:
        return {
            tp: position
            for tp in self._in(FetchState.AWAIT_VALIDATION)
            if self._assigned[tp].is_due(now_ms)
            and (position := self._assigned[tp].position) is not None
        }

    def complete_validation(
        self, tp: TopicPartition, asked: FetchPosition, end: OffsetAndEpoch
    ) -> LogTruncationError | None:
        """Take the leader's answer: where the leader epoch of the position `asked` ends.

        Return the error for the program if no policy says how to go on.
        """
        state = self._assigned.get(tp)
        if state is None or state.state is not FetchState.AWAIT_VALIDATION:
            return None
        if state.position != asked:
            return None
        unknown = end.offset == NO_OFFSET or end.leader_epoch == NO_LEADER_EPOCH
        if not unknown and end.offset >= asked.offset:
            state.complete_validation()
            return None
        if self.default_strategy is None:
            return LogTruncationError({tp: asked}, {} if unknown else {tp: end})
        if unknown:
            self.request_reset(tp)
        else:
            state.seek_validated(FetchPosition(end.offset, end.leader_epoch, asked.leader))
        return None

    # -- from fetch responses

    def note_offsets(
        self,
        tp: TopicPartition,
        *,
        high_watermark: Offset,
        last_stable_offset: Offset,
        log_start_offset: Offset,
    ) -> None:
        """Note the offsets of a response; negative ones are unknown."""
        state = self.state(tp)
        if high_watermark >= 0:
            state.high_watermark = high_watermark
        if last_stable_offset >= 0:
            state.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            state.log_start_offset = log_start_offset

    def lag(self, tp: TopicPartition, *, read_committed: bool) -> int | None:
        """Return the records between the position and the readable end; None if not known."""
        state = self.state(tp)
        end = state.last_stable_offset if read_committed else state.high_watermark
        return None if end is None or state.position is None else end - state.position.offset

    def lead(self, tp: TopicPartition) -> int | None:
        """Return the records between the start of the log and the position; None if not known."""
        state = self.state(tp)
        start = state.log_start_offset
        return None if start is None or state.position is None else state.position.offset - start

    # -- reading from another replica (KIP-392)

    def preferred_read_replica(self, tp: TopicPartition, now_ms: float) -> int | None:
        state = self._assigned.get(tp)
        if state is None or state.preferred is None:
            return None
        if now_ms > state.preferred.expires_ms:
            state.preferred = None
            return None
        return state.preferred.node_id

    def prefer_read_replica(self, tp: TopicPartition, node_id: int, expires_ms: float) -> None:
        """Prefer a replica until then; the time of one that is preferred already stays."""
        state = self.state(tp)
        if state.preferred is None or state.preferred.node_id != node_id:
            state.preferred = PreferredReadReplica(node_id, expires_ms)

    def clear_preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """Forget the preferred replica; return it if there was one."""
        state = self._assigned.get(tp)
        if state is None or state.preferred is None:
            return None
        cleared, state.preferred = state.preferred, None
        return cleared.node_id
