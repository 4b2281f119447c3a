"""Attempts that are repeated: how long to wait before each, and until when (KIP-580).

    failures      1       2       3      ...     n
    wait          first   2x      4x             never over `most`; each +-20% by chance

Chance is an argument: a thousand clients that lost one broker must not come back together.
"""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from replication.client.config import ClientConfig
from replication.client.errors import NO_ANSWER, KafkaTimeoutError
from replication.errors import AuthenticationError, KafkaError
from replication.net.seams import NodeClock

MULTIPLIER = 2
JITTER = 0.2

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ExponentialBackoff:
    """Waits that double with each failure in a row (ExponentialBackoff)."""

    first_ms: int
    most_ms: int

    def wait_ms(self, failures: int, chance: random.Random) -> float:
        """Return the wait after so many failures in a row; none after no failure."""
        if failures <= 0:
            return 0
        # Beyond 2^40 any first wait is over any limit, and a float has an end.
        grown = self.first_ms * float(MULTIPLIER ** min(failures - 1, 40))
        jittered = grown * chance.uniform(1 - JITTER, 1 + JITTER)
        return min(jittered, max(self.most_ms, self.first_ms))


def retry_backoff(config: ClientConfig) -> ExponentialBackoff:
    """Return the waits between attempts at one request."""
    return ExponentialBackoff(first_ms=config.retry_backoff_ms, most_ms=config.retry_backoff_max_ms)


async def keep_asking(
    attempt: Callable[[], Awaitable[T]],
    *,
    config: ClientConfig,
    clock: NodeClock,
    chance: random.Random,
    timeout_ms: float,
    on_no_answer: Callable[[], None] = lambda: None,
) -> T:
    """Repeat `attempt` while it fails with no answer or a retriable KafkaError.

    KafkaTimeoutError, caused by the last failure, when the time is up.
    """
    backoff = retry_backoff(config)
    failures = 0
    last: Exception | None = None
    with clock.move_on_after(timeout_ms / 1000):
        while True:
            try:
                return await attempt()
            except AuthenticationError:
                raise  # asking again would be refused again
            except NO_ANSWER as error:
                on_no_answer()
                last = error
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                last = error
            failures += 1
            await clock.sleep(backoff.wait_ms(failures, chance) / 1000)
    raise KafkaTimeoutError(
        f"not done within {timeout_ms:.0f} ms" + (f": {last}" if last else "")
    ) from last
