"""Events of faults that were injected on request."""

from typing import ClassVar

import attrs

from replication.events.event import Event


@attrs.frozen(kw_only=True)
class FaultApplied(Event):
    """A fault rule was applied to a request (`replication.faults`)."""

    name: ClassVar[str] = "fault_applied"
    rule: int  # its number, in the order in which rules were added
    api: str  # "PRODUCE"
    client: str  # its client id
    parts: tuple[str, ...]  # the topics or partitions that the request names
    fault: str  # "NOT_LEADER_OR_FOLLOWER", "delay 100 ms", "close-after"
