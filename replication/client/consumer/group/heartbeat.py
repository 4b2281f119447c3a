"""The task that keeps a membership alive, whatever the program does.

    every heartbeat.interval.ms            Heartbeat, while joined
    no response for session.timeout.ms     the coordinator is away: it is searched for again
    no poll for max.poll.interval.ms       the program is stuck: leave, so that others go on.
                                           A static member falls silent instead (KIP-345)

(Kafka: HeartbeatThread, Heartbeat.)
"""

from collections.abc import Callable

import attrs
import trio

from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.membership import (
    HEARTBEAT,
    Membership,
    MemberState,
    act_upon,
)
from replication.client.coordinators import CoordinatorFinder
from replication.client.requests import ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from replication.wire.leave_group import LeaveGroupRequest, LeavingMember

_LEAVE_ATTEMPTS = 3


@attrs.define(eq=False, kw_only=True)
class Heartbeats:
    """The heartbeats of one member; `run` is the task, `wake` is called when it has joined."""

    config: ConsumerConfig
    membership: Membership
    finder: CoordinatorFinder
    on_change: Callable[[], None]
    on_error: Callable[[KafkaError], None]
    last_poll: float = attrs.field(init=False, default=0.0)
    last_answer: float = attrs.field(init=False, default=0.0)
    _joined: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def clock(self) -> NodeClock:
        return self.finder.metadata.network.clock

    def wake(self) -> None:
        self.last_answer = self.clock.now()
        self._joined.set()

    @property
    def poll_is_overdue(self) -> bool:
        return self.clock.now() - self.last_poll > self.config.max_poll_interval_ms / 1000

    async def run(self) -> None:
        while True:
            if not self.membership.has_joined:
                self._joined = trio.Event()
                await self._joined.wait()
            await self.clock.sleep(self.config.heartbeat_interval_ms / 1000)
            if not self.membership.has_joined:
                continue
            if self.poll_is_overdue:
                if self.membership.is_dynamic:
                    await self.leave("the program has not polled for max.poll.interval.ms")
            else:
                await self._beat()

    async def _beat(self) -> None:
        member = self.membership
        sent = (member.generation_id, member.member_id)
        request = HeartbeatRequest(
            group_id=member.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )
        try:
            response: HeartbeatResponse = await self.finder.call(ask(request))
        except NO_ANSWER:
            if self.clock.now() - self.last_answer > self.config.session_timeout_ms / 1000:
                self.finder.forget()
        except KafkaError as error:
            self.on_error(error)
        else:
            self.last_answer = self.clock.now()
            if sent == (member.generation_id, member.member_id) and member.has_joined:
                self._act_upon(ErrorCode.of(response.error_code))

    def _act_upon(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        member = self.membership
        # A member that is joining is part of that rebalance.
        is_known = (
            error is ErrorCode.REBALANCE_IN_PROGRESS and member.state is not MemberState.STABLE
        )
        try:
            if not is_known:
                act_upon(HEARTBEAT, error, member, self.finder, request="heartbeat")
        except KafkaError as fatal:
            self.on_error(fatal)
        self.on_change()

    async def leave(self, reason: str) -> None:
        """Leave the group, so that others go on at once; a silent member is dropped anyway."""
        member = self.membership
        leaving = LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=reason[:255],
        )
        request = LeaveGroupRequest(
            group_id=member.group_id, member_id=member.member_id, members=[leaving]
        )
        member.reset(reason)
        self.on_change()
        for failures in range(_LEAVE_ATTEMPTS):
            if not leaving.member_id or self.finder.known is None:
                return
            try:
                await self.finder.call(ask(request))
            except NO_ANSWER:
                await self.finder.pause(failures + 1)
            except KafkaError:
                return
            else:
                return
