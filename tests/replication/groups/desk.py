"""One group and its clients, without a broker: requests, answers, and what was written."""

from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.events import Event
from replication.groups.rules.classic import ClassicGroup, GroupLimits
from replication.groups.rules.effects import Answer, Emit, JoinResult, Moment, Store, SyncResult
from replication.groups.rules.group import Group, GroupState, Protocol
from replication.groups.rules.joining import Join, join
from replication.groups.rules.presence import sync

LIMITS = GroupLimits(
    min_session_timeout_ms=1,
    max_session_timeout_ms=1_000_000,
    initial_rebalance_delay_ms=0,
    max_size=1000,
)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000
RANGE = Protocol("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")


@attrs.define(eq=False)
class Desk:
    """Answers by ticket, as they came; a write is held back until `finish_writes`."""

    limits: GroupLimits = LIMITS
    machine: ClassicGroup = attrs.field(init=False)
    now_ms: int = 1_000
    answers: dict[int, JoinResult | SyncResult] = attrs.field(factory=dict, init=False)
    writes: list[Store] = attrs.field(factory=list, init=False)
    events: list[Event] = attrs.field(factory=list, init=False)
    _tickets: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = ClassicGroup(Group("g"), self.limits)

    @property
    def group(self) -> Group:
        return self.machine.group

    @property
    def state(self) -> GroupState:
        return self.group.state

    @property
    def at(self) -> Moment:
        return Moment(now_ms=self.now_ms, wall_ms=WALL_MS + self.now_ms)

    def settle(self) -> None:
        for effect in self.machine.take():
            match effect:
                case Answer():
                    assert effect.ticket not in self.answers, "no answer is given twice"
                    self.answers[effect.ticket] = effect.result
                case Store():
                    self.writes.append(effect)
                case Emit():
                    self.events.append(effect.event)

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def pass_time(self, milliseconds: int) -> None:
        """Tick at every deadline on the way, as the coordinator's task does."""
        end = self.now_ms + milliseconds
        while (due := self.machine.next_deadline_ms) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.machine.tick(self.at)
            self.settle()
        self.now_ms = end

    def finish_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        writes, self.writes = self.writes, []
        for write in writes:
            self.machine.on_stored(write.purpose, error, self.at)
            self.settle()

    def join(self, member_id: str = "", **how: Any) -> int:
        """Ask to join; the ticket."""
        ticket = self.ticket()
        asked: dict[str, Any] = {
            "new_member_id": f"m{ticket}",
            "group_instance_id": None,
            "client_id": "client",
            "client_host": "/host",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (RANGE,),
        }
        join(self.machine, Join(ticket=ticket, member_id=member_id, **(asked | how)), self.at)
        self.settle()
        return ticket

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **how: Any) -> int:
        ticket = self.ticket()
        asked: dict[str, Any] = {
            "group_instance_id": None,
            "generation": self.group.generation,
            "protocol_type": None,
            "protocol_name": None,
        }
        sync(
            self.machine,
            ticket=ticket,
            member_id=member_id,
            assignments=assignments or {},
            at=self.at,
            **(asked | how),
        )
        self.settle()
        return ticket

    def joined(self, ticket: int) -> JoinResult:
        result = self.answers[ticket]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, ticket: int) -> SyncResult:
        result = self.answers[ticket]
        assert isinstance(result, SyncResult)
        return result

    def stable(self, *instances: str | None) -> list[str]:
        """A stable group, a member for each instance id (None: a dynamic one); their ids."""
        tickets = [self.join(group_instance_id=instance) for instance in instances]
        self.pass_time(self.limits.initial_rebalance_delay_ms)
        ids = [self.joined(ticket).member_id for ticket in tickets]
        for member_id in ids:
            self.sync(member_id, {each: each.encode() for each in ids})
        self.finish_writes()
        assert self.state is GroupState.STABLE
        return ids
