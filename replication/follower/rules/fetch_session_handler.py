"""The client side of a fetch session: what the next request names, and whether a response fits.

(FetchSessionHandler, KIP-227; topic ids KIP-516.) One handler belongs to one leader.

    request         response                          next request
    full (0, 0)     session S                         incremental (S, 1)
    full            no session                        full (0, 0)
    full            other partitions than requested   full (0, 0), the response is dropped
    (S, n)          any partitions of the session     incremental (S, n + 1)
    (S, n)          a partition never requested       full (S, 0), the response is dropped
    any             session not found                 full (0, 0)
    any             another error, or none at all     full (S, 0), which closes S

Rule 1: the session's partitions stand in the order in which they joined it. A partition that
changes keeps its place; a request names the new ones first, then the changed ones.

Rule 2: a partition that is not wanted now (delayed, truncating, throttled) is forgotten, and
joins the session again later.

Rule 3: a topic that was deleted and created again has a new id. The partition is sent anew,
and the old id is forgotten in the same request; not below v13, where topics have only names,
because that would forget the new partition too.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from typing import NamedTuple

import attrs

from replication.errors import ErrorCode
from replication.leader.rules.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    next_epoch,
)
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from storage.attributes import define, frozen
from storage.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)


class WantedPartition(NamedTuple):
    """The part of a request about one partition (FetchRequest.PartitionData)."""

    topic_id: TopicId
    fetch_offset: Offset
    log_start_offset: Offset = NO_OFFSET
    max_bytes: int = 1048576
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH


class ForgottenPartition(NamedTuple):
    """A partition that leaves the session, with the topic id that it had there."""

    topic_partition: TopicPartition
    topic_id: TopicId


@frozen
class FetchMetadata:
    """The session of a request, and the request's number in it."""

    session_id: int = INVALID_SESSION_ID
    epoch: int = INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        return self.epoch in {INITIAL_EPOCH, FINAL_EPOCH}

    def next_incremental(self) -> "FetchMetadata":
        return FetchMetadata(self.session_id, next_epoch(self.epoch))

    def close_existing_attempt_new(self) -> "FetchMetadata":
        return FetchMetadata(self.session_id, INITIAL_EPOCH)

    def close_existing(self) -> "FetchMetadata":
        return FetchMetadata(self.session_id, FINAL_EPOCH)


_NO_SESSION = FetchMetadata()


@frozen(kw_only=True)
class FetchRequestParams:
    """The parameters of a fetch that hold for all its partitions."""

    replica: ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    rack_id: str = ""


@frozen(kw_only=True)
class FetchRequestData:
    """The partitions of one request."""

    to_send: Mapping[TopicPartition, WantedPartition]
    to_forget: tuple[ForgottenPartition, ...] = ()
    to_replace: tuple[ForgottenPartition, ...] = ()
    session_partitions: Mapping[TopicPartition, WantedPartition]
    """All partitions of the session; the handler's own dictionary, valid until its next build."""
    metadata: FetchMetadata
    can_use_topic_ids: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to request and nothing to forget."""
        return not self.session_partitions and not self.to_forget

    def to_wire(self, params: FetchRequestParams, *, version: int) -> FetchRequest:
        """Return the message for `version`; it fits all versions that have topic ids, or none."""
        with_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        assert self.can_use_topic_ids or not with_ids, "v13 and later name topics by id alone"
        forgotten = (*self.to_forget, *self.to_replace) if with_ids else self.to_forget
        return FetchRequest(
            replica_id=params.replica.replica_id,
            replica_state=params.replica,
            max_wait_ms=params.max_wait_ms,
            min_bytes=params.min_bytes,
            max_bytes=params.max_bytes,
            isolation_level=params.isolation_level,
            session_id=self.metadata.session_id,
            session_epoch=self.metadata.epoch,
            topics=_topics(self.to_send),
            forgotten_topics_data=_forgotten(forgotten) if forgotten else [],
            rack_id=params.rack_id,
        )


def _topics(to_send: Mapping[TopicPartition, WantedPartition]) -> list[FetchTopic]:
    """Return the topics in order; a topic occurs once for each run of its partitions."""
    topics: list[FetchTopic] = []
    for (topic, partition), wanted in to_send.items():
        last = topics[-1] if topics else None
        if last is None or last.topic != topic or last.topic_id != wanted.topic_id:
            last = FetchTopic(topic=topic, topic_id=wanted.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=wanted.current_leader_epoch,
                fetch_offset=wanted.fetch_offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                log_start_offset=wanted.log_start_offset,
                partition_max_bytes=wanted.max_bytes,
            )
        )
    return topics


def _forgotten(partitions: Iterable[ForgottenPartition]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, TopicId], ForgottenTopic] = {}
    for (topic, partition), topic_id in partitions:
        group = topics.setdefault(
            (topic, topic_id), ForgottenTopic(topic=topic, topic_id=topic_id, partitions=[])
        )
        group.partitions.append(partition)
    return list(topics.values())


@define
class FetchSessionHandler:
    """The session with one leader; each build is followed by one response or error."""

    leader_id: int
    next_metadata: FetchMetadata = _NO_SESSION
    session_partitions: dict[TopicPartition, WantedPartition] = attrs.field(factory=dict)
    session_topic_names: dict[TopicId, str] = attrs.field(factory=dict)
    rejection: str | None = None
    """Why the last response was dropped; for the log."""
    _topic_sizes: dict[TopicId, int] = attrs.field(factory=dict)
    _without_id: int = 0

    # -- requests -------------------------------------------------------------

    def build(self, wanted: Mapping[TopicPartition, WantedPartition]) -> FetchRequestData:
        """Return the next request, given all partitions that are wanted now, in order."""
        session = self.session_partitions
        if not self.next_metadata.is_full:
            left_or_stayed = {tp: wanted.get(tp) for tp in session}
            joined = {tp: new for tp, new in wanted.items() if tp not in session}
            return self.build_changes({**left_or_stayed, **joined})
        self.session_partitions = {}
        self.session_topic_names = {}
        self._topic_sizes = {}
        self._without_id = 0
        for tp, new in wanted.items():
            self._join(tp, new)
        return self._request(self.session_partitions, with_ids=not self._without_id)

    def build_changes(
        self, changes: Mapping[TopicPartition, WantedPartition | None]
    ) -> FetchRequestData:
        """Return the next request of an open session, given what is wanted of changed partitions.

        None stands for a partition that is no longer wanted; all others are wanted as before.
        """
        assert not self.next_metadata.is_full, "a full request names everything"
        session = self.session_partitions
        joined: dict[TopicPartition, WantedPartition] = {}
        altered: dict[TopicPartition, WantedPartition] = {}
        to_forget: list[ForgottenPartition] = []
        to_replace: list[ForgottenPartition] = []
        for tp, new in changes.items():
            old = session.get(tp)
            if old == new:
                continue
            if old is not None and new is not None and old.topic_id == new.topic_id:
                session[tp] = altered[tp] = new
                continue
            if old is not None:
                self._count_out(old)
            if new is None:
                assert old is not None, "only a partition of the session can leave it"
                del session[tp]
                to_forget.append(ForgottenPartition(tp, old.topic_id))
                continue
            (altered if old is not None else joined)[tp] = new
            self._join(tp, new)
            if old is not None and NO_TOPIC_ID not in {old.topic_id, new.topic_id}:
                to_replace.append(ForgottenPartition(tp, old.topic_id))
        # The leader must be asked by name to forget what it knows by name only.
        forgets_by_name = NO_TOPIC_ID in [each.topic_id for each in to_forget]
        return self._request(
            {**joined, **altered},
            with_ids=not self._without_id and not forgets_by_name,
            to_forget=tuple(to_forget),
            to_replace=tuple(to_replace),
        )

    def _join(self, tp: TopicPartition, new: WantedPartition) -> None:
        """Add the partition, or replace it where it stands."""
        self.session_partitions[tp] = new
        if new.topic_id == NO_TOPIC_ID:
            self._without_id += 1
            return
        self.session_topic_names[new.topic_id] = tp.topic
        self._topic_sizes[new.topic_id] = self._topic_sizes.get(new.topic_id, 0) + 1

    def _count_out(self, old: WantedPartition) -> None:
        if old.topic_id == NO_TOPIC_ID:
            self._without_id -= 1
            return
        self._topic_sizes[old.topic_id] -= 1
        if not self._topic_sizes[old.topic_id]:
            del self._topic_sizes[old.topic_id]
            del self.session_topic_names[old.topic_id]

    def _request(
        self,
        to_send: Mapping[TopicPartition, WantedPartition],
        *,
        with_ids: bool,
        to_forget: tuple[ForgottenPartition, ...] = (),
        to_replace: tuple[ForgottenPartition, ...] = (),
    ) -> FetchRequestData:
        return FetchRequestData(
            to_send=to_send,
            to_forget=to_forget,
            to_replace=to_replace,
            session_partitions=self.session_partitions,
            metadata=self.next_metadata,
            can_use_topic_ids=with_ids,
        )

    # -- responses ------------------------------------------------------------

    def handle_response(
        self, response: FetchResponse, *, version: int
    ) -> dict[TopicPartition, PartitionData] | None:
        """Return the response by partition, in the leader's order; None if it must be dropped."""
        self.rejection = None
        if response.error_code != ErrorCode.NONE:
            error = ErrorCode.of(response.error_code)
            not_found = error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._reject(
                error.name,
                _NO_SESSION if not_found else self.next_metadata.close_existing_attempt_new(),
            )
            return None
        answers, unknown_ids = self._by_partition(response, version=version)
        if not self.next_metadata.is_full:
            return self._handle_incremental(response.session_id, answers, unknown_ids)
        if not answers and response.throttle_time_ms > 0:
            self._reject("throttled", _NO_SESSION)
            return None
        if problem := self.verify_full(answers, unknown_ids):
            self._reject(problem, _NO_SESSION)
            return None
        opened = response.session_id != INVALID_SESSION_ID
        self.next_metadata = FetchMetadata(response.session_id, 1) if opened else _NO_SESSION
        return answers

    def _handle_incremental(
        self,
        session_id: int,
        answers: dict[TopicPartition, PartitionData],
        unknown_ids: set[TopicId],
    ) -> dict[TopicPartition, PartitionData] | None:
        if unknown_ids or not answers.keys() <= self.session_partitions.keys():
            problem = self.verify_incremental(answers, unknown_ids)
            assert problem is not None, "what was answered is not in the session"
            self._reject(problem, self.next_metadata.close_existing_attempt_new())
            return None
        closed = session_id == INVALID_SESSION_ID
        self.next_metadata = _NO_SESSION if closed else self.next_metadata.next_incremental()
        return answers

    def handle_error(self) -> None:
        """End the session: without a response it is unknown whether the leader saw the request."""
        self.next_metadata = self.next_metadata.close_existing_attempt_new()

    def notify_close(self) -> None:
        """Make the next request the session's last."""
        self.next_metadata = self.next_metadata.close_existing()

    def _reject(self, why: str, following: FetchMetadata) -> None:
        self.rejection = why
        self.next_metadata = following

    # -- does the response fit? -----------------------------------------------

    def _by_partition(
        self, response: FetchResponse, *, version: int
    ) -> tuple[dict[TopicPartition, PartitionData], set[TopicId]]:
        """Return the response by partition, and the topic ids in it that are not ours."""
        answers: dict[TopicPartition, PartitionData] = {}
        unknown_ids: set[TopicId] = set()
        for topic in response.responses:
            name: str | None = topic.topic
            if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                name = self.session_topic_names.get(topic.topic_id)
            if name is None:
                unknown_ids.add(topic.topic_id)
                continue
            for data in topic.partitions:
                answers[TopicPartition(name, data.partition_index)] = data
        return answers, unknown_ids

    def verify_full(
        self, answered: Iterable[TopicPartition], unknown_ids: Collection[TopicId] = ()
    ) -> str | None:
        """Return what is wrong with a full response, which must name exactly the request's."""
        answered = list(answered)
        omitted = find_missing(self.session_partitions, set(answered))
        problems = [self.verify_incremental(answered, unknown_ids)]
        problems.append(f"omitted {_names(omitted)}" if omitted else None)
        return ", ".join(problem for problem in problems if problem) or None

    def verify_incremental(
        self, answered: Iterable[TopicPartition], unknown_ids: Collection[TopicId] = ()
    ) -> str | None:
        """Return what is wrong with an incremental response, which may leave partitions out."""
        extra = find_missing(answered, self.session_partitions)
        if not extra and not unknown_ids:
            return None
        extra_ids = sorted(topic_id.hex() for topic_id in unknown_ids)
        problems = [f"extra {_names(extra)}"] if extra else []
        problems += [f"extra ids {', '.join(extra_ids)}"] if extra_ids else []
        return ", ".join(problems)


def find_missing(
    wanted: Iterable[TopicPartition], found: Container[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions in `wanted` that are not in `found`, in order."""
    return [partition for partition in wanted if partition not in found]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(str(partition) for partition in partitions)
