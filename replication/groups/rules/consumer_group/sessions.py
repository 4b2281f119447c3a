"""The time limits of a group's members: sessions, and revocations.

A session ends some time after the last heartbeat. A member that has to give partitions up has its
own rebalance time limit for it, from the moment of that response. A member that is too late is
fenced, so that no other member waits for ever.

The deadlines are not in the log: a coordinator that takes over begins each of them anew.
"""

import attrs

from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
)


@attrs.define(eq=False)
class Sessions:
    """The deadlines of one group, on the monotonic clock, in milliseconds."""

    session_timeout_ms: int
    _sessions: dict[str, int] = attrs.field(factory=dict)
    _revocations: dict[str, tuple[ConsumerMember, int]] = attrs.field(factory=dict)

    def resume(self, group: ConsumerGroup, now_ms: int) -> None:
        """Begin the deadlines of every member."""
        for member_id in group.members:
            self.renew(group, member_id, now_ms)

    def renew(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """Note a heartbeat; `group` is as the heartbeat left it."""
        member = group.members[member_id]
        self._sessions[member_id] = now_ms + self.session_timeout_ms
        if member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
            self._revocations.pop(member_id, None)
        elif self._revocations.get(member_id, (None, 0))[0] != member:
            self._revocations[member_id] = (member, now_ms + member.rebalance_timeout_ms)

    def has(self, member_id: str) -> bool:
        """Return whether the member is expected to send a heartbeat."""
        return member_id in self._sessions

    def follow(self, group: ConsumerGroup) -> None:
        """Forget the members that the group no longer has."""
        for deadlines in (self._sessions, self._revocations):
            for member_id in deadlines.keys() - group.members.keys():
                del deadlines[member_id]

    @property
    def next_deadline_ms(self) -> int | None:
        ends = [end_ms for _, end_ms in self._revocations.values()]
        return min([*self._sessions.values(), *ends], default=None)

    def take_late(self, now_ms: int) -> dict[str, str]:
        """Return the members that are too late, each with the reason; their deadlines are over."""
        found = {
            member_id: "it did not revoke its partitions in time"
            for member_id, (_, end_ms) in self._revocations.items()
            if end_ms <= now_ms
        }
        found |= {
            member_id: "its session has expired"
            for member_id, end_ms in self._sessions.items()
            if end_ms <= now_ms
        }
        for member_id in found:
            self._sessions.pop(member_id, None)
            self._revocations.pop(member_id, None)
        return found
