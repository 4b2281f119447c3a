"""In or out of the ISR, and why: what is remembered and what is seen now, in one sentence.

in, and the leader          it leads
in, nothing lacking         it has all that the leader has
in, something lacking       how long it may go on like that
in, its broker gone         the controller has not missed it yet
out                         why it left, and what keeps it out now
"""

import attrs

from replication.observe.cluster_state import Role, Status


@attrs.frozen(kw_only=True)
class ReplicaFacts:
    """What is seen of a replica now; None is unknown."""

    in_isr: bool
    role: Role
    status: Status
    is_leader: bool
    lag: int | None
    session_ms: int | None = None
    max_lag_ms: int | None = None


def why_in_or_out(facts: ReplicaFacts, reason: str) -> str:
    """`reason`: what was told when it joined or left; empty where nobody has told."""
    if facts.in_isr:
        return _why_in(facts, reason)
    now = _keeps_out(facts, reason)
    if not reason:
        return f"out of the ISR: {now}" if now else "out of the ISR since before anybody looked"
    return f"left the ISR: {reason}" + (f"; {now}" if now else "")


def _why_in(facts: ReplicaFacts, reason: str) -> str:
    if facts.status in (Status.DOWN, Status.FROZEN):
        after = (
            "" if facts.session_ms is None else f" {_seconds(facts.session_ms)} after its last word"
        )
        return (
            f"in the ISR, though its broker is {facts.status}: the controller misses it{after},"
            f" when its session has ended"
        )
    if facts.is_leader:
        return "in the ISR: it leads, and who leads is always in sync"
    if facts.lag is None:
        return "in the ISR, as the controller has it"
    if facts.lag:
        limit = "" if facts.max_lag_ms is None else f" ({_seconds(facts.max_lag_ms)})"
        return (
            f"in the ISR, behind for now: it leaves if that lasts longer than"
            f" replica.lag.time.max.ms{limit}"
        )
    return "in the ISR: it has all that the leader has" + (
        f"; it joined: {reason}" if reason else ""
    )


def _keeps_out(facts: ReplicaFacts, reason: str) -> str:
    if facts.status is Status.DOWN:
        return "its broker is down"
    if facts.status is Status.FROZEN:
        return "its broker is frozen"
    if facts.status is Status.FENCED:
        return "" if "fenced" in reason else "its broker is fenced"
    if facts.role is Role.DEPOSED:
        return "it has not heard yet that its reign is over"
    if facts.lag:
        return "it joins again when it has reached the high watermark"
    return ""


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
