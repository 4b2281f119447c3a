"""One fetch request against its session, on the leader's side (KIP-227, FetchManager).

    request (id, epoch)     context        answer
    (any, -1)               Sessionless    everything, id 0; a session of that id is closed
    (any,  0)               Full           everything; a session is opened if there is a slot
    (S, session.epoch)      Incremental    what changed, id S
    (S, another epoch)      SessionError   INVALID_FETCH_SESSION_EPOCH; S is kept
    (unknown, > 0)          SessionError   FETCH_SESSION_ID_NOT_FOUND

A request that forgets the last partition of a session closes it, and is answered without one.

A request may name many partitions, so all of this is done in steps (`replication.steps`).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import attrs

from replication.errors import NO_SUCH_TOPIC, ErrorCode
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
from replication.steps import STEP, Steps, each_of
from replication.wire.fetch import FIRST_VERSION_WITH_TOPIC_IDS
from storage.attributes import frozen
from storage.types import TopicId

MOST_UNKNOWN = 10_000
"""The most partitions of a session that do not exist: each request of the session, however short,
looks for all of them again."""


@frozen(kw_only=True)
class SessionResponse:
    """The answer to a fetch; `partitions` are those that the response contains."""

    error: ErrorCode = ErrorCode.NONE
    session_id: int = INVALID_SESSION_ID
    partitions: Answers = attrs.Factory(list)


class FetchContext(Protocol):
    """One fetch request against its session."""

    def wanted(self) -> Steps[Wanted]:
        """Return what to read, in order; a partition without a name is UNKNOWN_TOPIC_ID."""

    @property
    def session(self) -> FetchSession | None:
        """The session in which partitions may be settled after this read; None without one."""

    def response(self, answers: Answers) -> Steps[SessionResponse]:
        """Return the response, given an answer for every partition of `wanted()`."""


@frozen
class SessionErrorContext:
    error: ErrorCode
    session: None = None

    def wanted(self) -> Steps[Wanted]:
        yield 1
        return []

    def response(self, answers: Answers) -> Steps[SessionResponse]:
        assert not answers, "a session error has no partitions"
        yield 1
        return SessionResponse(error=self.error)


@frozen
class SessionlessContext:
    requested: Wanted
    session: None = None

    def wanted(self) -> Steps[Wanted]:
        yield 1
        return self.requested

    def response(self, answers: Answers) -> Steps[SessionResponse]:
        yield 1
        return SessionResponse(partitions=answers)


@frozen(kw_only=True)
class FullContext:
    requested: Wanted
    cache: FetchSessionCache
    is_follower: bool
    uses_topic_ids: bool
    now_ms: int
    session: None = None

    def wanted(self) -> Steps[Wanted]:
        yield 1
        return self.requested

    def response(self, answers: Answers) -> Steps[SessionResponse]:
        """Return everything, with a new session if there is a slot for one."""
        if (yield from _are_unknown(answers)):
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


@frozen(kw_only=True)
class IncrementalContext:
    session: FetchSession
    cache: FetchSessionCache
    epoch: int
    """The session's epoch since this request."""
    topic_names: Mapping[TopicId, str]

    def wanted(self) -> Steps[Wanted]:
        return self.session.wanted(self.topic_names)

    def response(self, answers: Answers) -> Steps[SessionResponse]:
        """Return what has changed; end the session if too many of its partitions do not exist."""
        session_id = self.session.session_id
        if self.session.epoch != self.epoch:
            # Another request was accepted while this one waited.
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return SessionResponse(error=error, session_id=session_id)
        if len(answers) > MOST_UNKNOWN and (yield from _are_unknown(answers)):
            self.cache.remove(session_id)
            session_id = INVALID_SESSION_ID
        changed = yield from self.session.changed(answers)
        return SessionResponse(session_id=session_id, partitions=changed)


def _are_unknown(answers: Answers) -> Steps[bool]:
    """Return whether more than `MOST_UNKNOWN` partitions do not exist."""
    if len(answers) <= MOST_UNKNOWN:
        return False
    unknown = yield from each_of(lambda pair: pair[1].error in NO_SUCH_TOPIC, answers)
    return sum(unknown) > MOST_UNKNOWN


@frozen
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
        forgotten: Sequence[TopicIdPartition],
        topic_names: Mapping[TopicId, str],
        now_ms: int,
        terms: Hashable = None,
    ) -> Steps[FetchContext]:
        """Return the context by the table at the head of this module.

        `terms` is what every answer depends on beside the partitions (`FetchSession`, Rule 3).
        """
        if session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            if session_id != INVALID_SESSION_ID:
                self.cache.remove(session_id)
            if session_epoch == FINAL_EPOCH:
                return SessionlessContext(wanted)
            return FullContext(
                requested=wanted,
                cache=self.cache,
                is_follower=is_follower,
                uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_IDS,
                now_ms=now_ms,
            )
        shard = self.cache.shard_of(session_id)
        session = None if shard is None else shard.get(session_id)
        if shard is None or session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_VERSION_WITH_TOPIC_IDS):
            return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # Before a pause: no other request may have it.
        epoch = session.epoch = next_epoch(session_epoch)
        yield from session.update(wanted, forgotten)
        if not session.partitions:
            shard.remove(session_id)
            return SessionlessContext(wanted)
        yield from session.agree_on(terms)
        if session.has_ended:  # it was evicted in a pause
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        shard.touch(session, now_ms)
        return IncrementalContext(
            session=session, cache=self.cache, epoch=epoch, topic_names=topic_names
        )
