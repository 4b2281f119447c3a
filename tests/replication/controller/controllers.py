"""Controllers for brokers to talk to: they answer as one would, on virtual time."""

from collections.abc import Callable
from typing import Any

import attrs

from replication.errors import PeerUnavailableError
from replication.net.clock import TrioClock

CLOCK = TrioClock()


@attrs.define
class FakeController:
    """Answers each request by `answer`; None stands for a controller that is away."""

    answer: Callable[[Any], Any]
    latency_seconds: float = 0.001
    requests: list[Any] = attrs.field(factory=list)
    asked_at: list[float] = attrs.field(factory=list)

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        self.requests.append(request)
        self.asked_at.append(CLOCK.now())
        await CLOCK.sleep(self.latency_seconds)
        response = self.answer(request)
        if response is None:
            raise PeerUnavailableError("the controller is away")
        return response
