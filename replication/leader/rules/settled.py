"""Partitions about which a fetch session has nothing to be told, until they move.

A follower of a hundred thousand partitions, most of them idle, asks for all of them twice a
second. Looking at each to find that nothing is new costs a leader most of its time. So a
partition that has been read to its end, and whose answer said nothing new, is *settled* in
that session: it is not looked at again until something about it moves, and the move says so.

    read to its end, nothing new ──> settled ──a mark or the role moves──> to be read again
                                        └─────the session asks for something else──┘

Rule 1: settled is only what would be answered the same again. Whatever an answer is made of
(log end, high watermark, log start, role, ISR, the session's own question) calls `unsettle`
when it changes. A change that nobody tells of would be a change that a follower never hears.

Rule 2: a fetch also says that its follower is alive and where it stands. For settled
partitions that is one number for the whole session, its `Pulse`: a follower's times are read
through it, and are written down when the partition moves, before anything is decided by them.

Rule 3: a session that ends lets go of what it had settled; its pulse beats no more.
"""

from typing import Protocol

import attrs

from replication.leader.rules.isr import FollowerState, Pulse


class Watch(Protocol):
    """What a session keeps of one partition."""

    @property
    def pulse(self) -> Pulse: ...

    def settle(self, settled: "Settled") -> None:
        """It is settled there now."""

    def unsettle(self) -> None:
        """It has moved: read it again."""


@attrs.define(eq=False)
class Settled:
    """The sessions in which one partition is settled."""

    _watches: dict[Watch, FollowerState | None] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._watches)

    def settle(self, watch: Watch, follower: FollowerState | None) -> None:
        """`follower` is whose session it is; None for a consumer's."""
        self._watches[watch] = follower
        watch.settle(self)
        if follower is not None:
            follower.follow_pulse(watch.pulse)

    def release(self, watch: Watch) -> None:
        """The session reads it again, or never."""
        follower = self._watches.pop(watch, None)
        if follower is not None and follower.pulse is watch.pulse:
            follower.keep_times()

    def unsettle(self) -> None:
        """Something about the partition has moved."""
        if not self._watches:
            return
        watches, self._watches = self._watches, {}
        for watch, follower in watches.items():
            if follower is not None:
                follower.keep_times()
            watch.unsettle()
