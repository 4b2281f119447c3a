"""One member of a group: what it can do, what it was given, and what it waits for."""

from collections.abc import Iterable
from typing import NamedTuple

import attrs


class Protocol(NamedTuple):
    """A way to assign that a member knows, and its metadata for a leader that assigns so."""

    name: str
    metadata: bytes


@attrs.define(eq=False, kw_only=True)
class Member:
    """`join_ticket` and `sync_ticket` name the request that it has yet to be answered."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has yet to hear of the first generation that it is in."""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    deadline_ms: int | None = None
    """When it is given up, unless it is heard of; None while it waits for us."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def awaits_us(self) -> bool:
        """Whether it cannot heartbeat, since its connection waits for our answer."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    @property
    def protocol_names(self) -> list[str]:
        return [each.name for each in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for `protocol`."""
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of its protocols that is among `candidates`."""
        wanted = set(candidates)
        return next(each.name for each in self.protocols if each.name in wanted)

    def heard_of(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms
