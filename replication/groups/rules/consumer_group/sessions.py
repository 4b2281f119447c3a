"""The time limits of a group's members.

    session      ends some time after the last heartbeat; a classic member names that time itself
    revocation   a member that has to give partitions up: its rebalance timeout, from that response
    join, sync   a classic member that has to join again, or has joined and has to sync:
                 its rebalance timeout

A member that is too late is fenced, so that no other member waits for ever.
The deadlines are not in the log: a coordinator that takes over begins each of them anew.
"""

import enum

import attrs

from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
)
from storage.attributes import define


class TimeLimit(enum.Enum):
    """The time limits that a member has; each value names the outcome of one that has passed."""

    SESSION = "its session has expired"
    REVOKE = "it did not revoke its partitions in time"
    JOIN = "it did not join again in time"
    SYNC = "it did not sync in time"


@define(eq=False)
class Sessions:
    """The deadlines of one group, on the monotonic clock, in milliseconds."""

    _deadlines: dict[TimeLimit, dict[str, int]] = attrs.field(
        factory=lambda: {each: {} for each in TimeLimit}
    )
    _revoking: dict[str, ConsumerMember] = attrs.field(factory=dict)

    def renew(
        self, group: ConsumerGroup, member_id: str, now_ms: int, *, session_timeout_ms: int
    ) -> None:
        """Note a heartbeat; `group` is as the heartbeat left it."""
        member = group.members[member_id]
        if member.classic is not None:
            session_timeout_ms = member.classic.session_timeout_ms
        self._deadlines[TimeLimit.SESSION][member_id] = now_ms + session_timeout_ms
        is_revoking = member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        if not is_revoking or member.classic is not None:
            self._deadlines[TimeLimit.REVOKE].pop(member_id, None)
        elif not self._is_timed(member):
            self._revoking[member_id] = member
            self.begin(TimeLimit.REVOKE, member, now_ms)

    def _is_timed(self, member: ConsumerMember) -> bool:
        known = member.member_id in self._deadlines[TimeLimit.REVOKE]
        return known and self._revoking[member.member_id] == member

    def begin(self, limit: TimeLimit, member: ConsumerMember, now_ms: int) -> None:
        """Give a member its rebalance timeout from now on."""
        self._deadlines[limit][member.member_id] = now_ms + member.rebalance_timeout_ms

    def begin_join(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a classic member its rebalance timeout to join again, unless that runs already."""
        if member.member_id not in self._deadlines[TimeLimit.JOIN]:
            self.begin(TimeLimit.JOIN, member, now_ms)

    def end(self, limit: TimeLimit, member_id: str) -> None:
        """Note that the member has done in time what it had to."""
        self._deadlines[limit].pop(member_id, None)

    def has(self, member_id: str) -> bool:
        """Return whether the member is expected to send a heartbeat."""
        return member_id in self._deadlines[TimeLimit.SESSION]

    def follow(self, group: ConsumerGroup | None) -> None:
        """Forget the members that the group no longer has; all, if there is no group."""
        members = {} if group is None else group.members
        for deadlines in self._deadlines.values():
            for member_id in deadlines.keys() - members.keys():
                del deadlines[member_id]
        for member_id in self._revoking.keys() - self._deadlines[TimeLimit.REVOKE].keys():
            del self._revoking[member_id]

    @property
    def next_deadline_ms(self) -> int | None:
        return min((min(each.values()) for each in self._deadlines.values() if each), default=None)

    def take_late(self, now_ms: int) -> dict[str, str]:
        """Return the members that are too late, each with the reason; their deadlines are over."""
        found = {
            member_id: limit.value
            for limit in reversed(TimeLimit)
            for member_id, end_ms in self._deadlines[limit].items()
            if end_ms <= now_ms
        }
        for deadlines in self._deadlines.values():
            for member_id in found.keys() & deadlines.keys():
                del deadlines[member_id]
        return found
