"""Partitions that are not looked at in a fetch session until something about them changes.

A follower of a hundred thousand partitions, most of them idle, asks for all of them twice a
second. Looking at each to find that nothing is new costs a leader most of its time. So a
partition that has been read to its end, and whose answer said nothing new, is *settled* in
that session: it is not looked at again until something about it changes, which calls `unsettle`.

    read to its end, nothing new ──> settled ──an offset or the role changes──> to be read again
                                        └──the session requests something else──┘

Rule 1: a partition is settled only if its next answer would be the same. Everything that an
answer consists of (log end, high watermark, log start, role, ISR, the session's own request)
calls `unsettle` when it changes. A change that does not would never reach the follower.

Rule 2: a fetch also says that its follower is alive and how far it has come. For settled
partitions that is one number for the whole session, its `Pulse`: a follower's times are read
through it, and are copied when the partition changes, before anything is decided by them.

Rule 3: a session that ends releases its settled partitions; its pulse is no longer used.
"""

from typing import Protocol

import attrs

from replication.leader.rules.isr import FollowerState, Pulse
from storage.attributes import define


class SessionWatch(Protocol):
    """One partition in a fetch session."""

    @property
    def pulse(self) -> Pulse: ...

    def settle(self, settled: "Settled") -> None:
        """Note that the partition is settled."""

    def unsettle(self) -> None:
        """Read the partition again with the session's next request."""


@define(eq=False)
class Settled:
    """The sessions in which one partition is settled."""

    _watches: dict[SessionWatch, FollowerState | None] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._watches)

    def settle(self, watch: SessionWatch, follower: FollowerState | None) -> None:
        """Settle the partition in the session of `follower`; None stands for a consumer."""
        self._watches[watch] = follower
        watch.settle(self)
        if follower is not None:
            follower.follow_pulse(watch.pulse)

    def release(self, watch: SessionWatch) -> None:
        """End the settling in one session: it reads the partition again, or has ended."""
        follower = self._watches.pop(watch, None)
        if follower is not None and follower.pulse is watch.pulse:
            follower.keep_times()

    def unsettle(self) -> None:
        """Make every session read the partition again: something about it has changed."""
        if not self._watches:
            return
        watches, self._watches = self._watches, {}
        for watch, follower in watches.items():
            if follower is not None:
                follower.keep_times()
            watch.unsettle()
