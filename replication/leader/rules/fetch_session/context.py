"""One fetch request against its session, on the leader's side (KIP-227, FetchManager).

    request (id, epoch)     context        answer
    (any, -1)               Sessionless    everything, id 0; a session of that id is closed
    (any,  0)               Full           everything; a session is opened if there is a slot
    (S, session.epoch)      Incremental    what changed, id S
    (S, another epoch)      SessionError   INVALID_FETCH_SESSION_EPOCH; S is kept
    (unknown, > 0)          SessionError   FETCH_SESSION_ID_NOT_FOUND

A session that is told to forget its last partition is closed, and answered without one.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol

import attrs

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import Answers, TopicIdPartition, Wanted
from replication.leader.rules.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    next_epoch,
)
from replication.leader.rules.fetch_session.cache import FetchSessionCache
from replication.leader.rules.fetch_session.session import (
    CachedPartition,
    FetchSession,
    partition_key,
)
from replication.steps import STEP, Steps, at_once, each_of
from storage.types import TopicId

MOST_UNKNOWN = 10_000
_TOPIC_IDS_SINCE = 13
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@attrs.frozen(kw_only=True)
class SessionResponse:
    """What to answer: `partitions` are those that the peer is told about."""

    error: ErrorCode = ErrorCode.NONE
    session_id: int = INVALID_SESSION_ID
    partitions: Answers = attrs.Factory(list)


class FetchContext(Protocol):
    """One fetch request against its session."""

    def wanted(self) -> Wanted:
        """The partitions to read, in order; one without a name is answered UNKNOWN_TOPIC_ID."""

    @property
    def session(self) -> FetchSession | None:
        """The one in which what has been read may be settled."""

    def response(self, answers: Answers) -> SessionResponse:
        """What to say, given an answer for every partition of `wanted()`."""

    def throttled_response(self) -> SessionResponse:
        """Nothing now, and the session stays as it is."""


@attrs.frozen
class SessionErrorContext:
    error: ErrorCode
    session: None = None

    def wanted(self) -> Wanted:
        return []

    def response(self, answers: Answers) -> SessionResponse:
        assert not answers, "a session error has no partitions"
        return SessionResponse(error=self.error)

    def throttled_response(self) -> SessionResponse:
        return SessionResponse(error=self.error)


@attrs.frozen
class SessionlessContext:
    requested: Wanted
    session: None = None

    def wanted(self) -> Wanted:
        return self.requested

    def response(self, answers: Answers) -> SessionResponse:
        return SessionResponse(partitions=answers)

    def throttled_response(self) -> SessionResponse:
        return SessionResponse()


@attrs.frozen(kw_only=True)
class FullContext:
    requested: Wanted
    cache: FetchSessionCache
    is_follower: bool
    uses_topic_ids: bool
    now_ms: int
    session: None = None

    def wanted(self) -> Wanted:
        return self.requested

    def response(self, answers: Answers) -> SessionResponse:
        """Everything, and a session from here on if there is a slot for one."""
        return at_once(self.response_in_steps(answers))

    def response_in_steps(self, answers: Answers) -> Steps[SessionResponse]:
        """Return the same; a request may name many partitions.

        There is no session of more than `MOST_UNKNOWN` that do not exist: each of its requests,
        however short, would have to look for all of these again.
        """
        unknown = sum(answer.error in _UNKNOWN for _, answer in answers)
        if unknown > MOST_UNKNOWN:
            return SessionResponse(partitions=answers)
        keys = yield from each_of(lambda pair: partition_key(pair[0]), self.requested)
        infos = {key: info for key, (_, info) in zip(keys, self.requested, strict=True)}
        partitions = {}
        for number, (partition, answer) in enumerate(answers, start=1):
            if number % STEP == 0:
                yield STEP
            key = partition_key(partition)
            partitions[key] = CachedPartition((partition, infos[key]))
            partitions[key].remember(answer)
        session = self.cache.next_shard().maybe_create(
            partitions,
            privileged=self.is_follower,
            uses_topic_ids=self.uses_topic_ids,
            now_ms=self.now_ms,
        )
        session_id = INVALID_SESSION_ID if session is None else session.session_id
        return SessionResponse(session_id=session_id, partitions=answers)

    def throttled_response(self) -> SessionResponse:
        return SessionResponse()


def response_in_steps(context: FetchContext, answers: Answers) -> Steps[SessionResponse]:
    """Return what `context.response` does, in steps where a request has named everything."""
    if isinstance(context, FullContext):
        return (yield from context.response_in_steps(answers))
    return context.response(answers)


@attrs.frozen(kw_only=True)
class IncrementalContext:
    session: FetchSession
    epoch: int
    topic_names: Mapping[TopicId, str]

    def wanted(self) -> Wanted:
        return self.session.wanted(self.topic_names)

    def response(self, answers: Answers) -> SessionResponse:
        if self._overtaken():
            return self._invalid_epoch()
        return SessionResponse(
            session_id=self.session.session_id, partitions=self.session.changed(answers)
        )

    def throttled_response(self) -> SessionResponse:
        if self._overtaken():
            return self._invalid_epoch()
        return SessionResponse(session_id=self.session.session_id)

    def _overtaken(self) -> bool:
        """Another request at the same epoch was accepted while this one waited."""
        return self.session.epoch != next_epoch(self.epoch)

    def _invalid_epoch(self) -> SessionResponse:
        return SessionResponse(
            error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self.session.session_id
        )


@attrs.frozen
class FetchManager:
    """Finds the context of each fetch request."""

    cache: FetchSessionCache

    def new_context(
        self,
        *,
        session_id: int,
        session_epoch: int,
        is_follower: bool,
        version: int,
        wanted: Wanted,
        forgotten: Iterable[TopicIdPartition],
        topic_names: Mapping[TopicId, str],
        now_ms: int,
        terms: Hashable = None,
    ) -> FetchContext:
        """The table at the head of this module. `terms`: see FetchSession."""
        if session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            if session_id != INVALID_SESSION_ID:
                self.cache.remove(session_id)
            if session_epoch == FINAL_EPOCH:
                return SessionlessContext(wanted)
            return FullContext(
                requested=wanted,
                cache=self.cache,
                is_follower=is_follower,
                uses_topic_ids=version >= _TOPIC_IDS_SINCE,
                now_ms=now_ms,
            )
        session = self.cache.get(session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _TOPIC_IDS_SINCE):
            return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten)
        if not session.partitions:
            self.cache.remove(session_id)
            return SessionlessContext(wanted)
        session.agree_on(terms)
        self.cache.touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session=session, epoch=session_epoch, topic_names=topic_names)
