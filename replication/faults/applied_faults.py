"""The decision about one request, carried out on its connection.

wait ─> close-before, drop-request ─> refuse some, handle the rest
     ─> close-after, drop-answer ─> throttle ─> cut-answer, or the answer
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import trio

from replication.errors import ErrorCode, PeerUnavailableError
from replication.faults import AddedRule, Effect, FaultDecision
from replication.faults.rules.answers import errors_in
from replication.faults.rules.parts import NameOf
from replication.faults.rules.refusing import refusing
from replication.net.framing import send_parts
from replication.net.regions import region_bytes
from replication.net.seams import Connection, NodeClock
from replication.wire.frames import RequestHeader, encode_response
from replication.wire.schema import Part
from storage.log.file_region import FileRegion

Respond: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Returns the real response to a request."""
Gone: TypeAlias = Callable[[AddedRule], Awaitable[None]]
"""Returns when a rule is no longer in force."""

_DISCARDED_BYTES = 4096


class FaultInjectedError(Exception):
    """The connection must be closed because of a rule, which the message names."""


@attrs.frozen(eq=False, kw_only=True)
class AppliedFaults:
    """One decision while it is carried out."""

    decision: FaultDecision
    header: RequestHeader
    connection: Connection
    clock: NodeClock
    gone: Gone
    name_of: NameOf

    async def answer(self, respond: Respond) -> Any:
        """Return the response; raise FaultInjectedError if the connection must be closed instead."""
        try:
            for added in self.decision.fired:
                await self._wait_for(added)
            return await self._answer(respond)
        except FaultInjectedError as closed:
            self.decision.answered(str(closed))
            raise

    async def _wait_for(self, added: AddedRule) -> None:
        if added.rule.delay_ms:
            with self.clock.move_on_after(added.rule.delay_ms / 1000):
                await self.gone(added)

    async def _answer(self, respond: Respond) -> Any:
        end = self.decision.end
        effect = None if end is None else end.rule.effect
        if effect is Effect.CLOSE_BEFORE:
            raise FaultInjectedError(f"{end}: closed, not handled")
        if end is not None and effect is Effect.DROP_REQUEST:
            await self._be_silent(end, "dropped, not handled")
        response = await self._refused_or_real(respond)
        if effect is Effect.CLOSE_AFTER:
            raise FaultInjectedError(f"{end}: handled, closed unanswered")
        if end is not None and effect is Effect.DROP_ANSWER:
            await self._be_silent(end, "handled, never answered")
        if response is None:
            self.decision.answered("no response was wanted")
            return None
        if self.decision.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self.decision.throttle_ms)
        if effect is Effect.CUT_ANSWER:
            await self._send_half(response)
            raise FaultInjectedError(f"{end}: handled, the answer cut")
        self.decision.answered(_error_names(response, self.header.api_version))
        return response

    async def _refused_or_real(self, respond: Respond) -> Any:
        errors = self.decision.errors
        if not errors:
            return await respond(self.decision.call.request)
        plan = refusing(self.decision.call, errors, self.name_of)
        response = None if plan.rest is None else await respond(plan.rest)
        if plan.refusals and getattr(self.decision.call.request, "acks", None) == 0:
            raise FaultInjectedError(f"{errors[0]}: acks=0 has no response, closed")
        return plan.answer(response)

    async def _be_silent(self, added: AddedRule, why: str) -> None:
        """Wait silently until the peer leaves or the rule is removed, then raise."""
        self.decision.answered(why)
        async with trio.open_nursery() as nursery:

            async def discard() -> None:
                room = memoryview(bytearray(_DISCARDED_BYTES))
                try:
                    while await self.connection.receive_into(room):
                        pass
                except PeerUnavailableError:
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(discard)
            await self.gone(added)
            nursery.cancel_scope.cancel()
        raise FaultInjectedError(f"{added}: {why}")

    async def _send_half(self, response: Any) -> None:
        parts = encode_response(
            response,
            version=self.header.api_version,
            correlation_id=self.header.correlation_id,
        )
        data = b"".join(map(_bytes, parts))
        await send_parts(self.connection, [data[: len(data) // 2]])


def _bytes(part: Part) -> bytes:
    if isinstance(part, FileRegion):
        return region_bytes(part)
    assert isinstance(part, bytes | bytearray | memoryview), "in memory or in a file"
    return bytes(part)


def _error_names(response: Any, version: int) -> str:
    """Return the names of the errors in a response, or NONE."""
    codes = sorted(errors_in(response, version) - {ErrorCode.NONE})
    return ", ".join(ErrorCode.of(code).name for code in codes) or "NONE"
