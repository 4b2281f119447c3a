"""The partitions of fetch sessions (KIP-227), as far as a proxy has seen them.

A fetch in a session names only what changed, so a rule for a topic needs what was named before. The
proxy reads fetches only while a rule is about them. A session that it did not see from its beginning
is refused once (FETCH_SESSION_ID_NOT_FOUND, as by a broker that has evicted it), and the client
names all of its partitions again.
"""

from typing import Final

import attrs

from replication.errors import ErrorCode
from replication.faults.rules.parts import WantedPartition
from replication.leader.rules.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from replication.wire.fetch import FetchRequest, FetchResponse
from storage.attributes import define

MOST_SESSIONS: Final = 1_000
"""The sessions that are kept, the last used; a broker has as many by default."""


@define(eq=False)
class SeenSessions:
    """The sessions at one broker, by their ids."""

    _partitions: dict[int, dict[WantedPartition, None]] = attrs.field(init=False, factory=dict)

    def refusal(self, request: FetchRequest) -> FetchResponse | None:
        """Return the response to a fetch in a session that is not known here; None for another."""
        if not _is_incremental(request) or request.session_id in self._partitions:
            return None
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def partitions(self, session_id: int) -> list[WantedPartition]:
        return list(self._partitions.get(session_id, ()))

    def note(self, request: FetchRequest, response: FetchResponse) -> None:
        """Note what the session has after this request and its response."""
        before = self._partitions.pop(request.session_id, {})
        if request.session_epoch == FINAL_EPOCH or response.session_id == INVALID_SESSION_ID:
            return
        wanted = before if _is_incremental(request) else {}
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                wanted.pop((gone.topic_id, gone.topic, partition), None)
        for topic in request.topics:
            for each in topic.partitions:
                wanted[topic.topic_id, topic.topic, each.partition] = None
        self._partitions[response.session_id] = wanted
        if len(self._partitions) > MOST_SESSIONS:
            del self._partitions[next(iter(self._partitions))]

    def forget_all(self) -> None:
        """Forget every session: from now on fetches pass unread."""
        self._partitions.clear()


def _is_incremental(request: FetchRequest) -> bool:
    return request.session_id != INVALID_SESSION_ID and request.session_epoch not in (
        INITIAL_EPOCH,
        FINAL_EPOCH,
    )
