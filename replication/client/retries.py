"""Asking until it works: what failed in a way that may pass is asked again, for so long."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from replication.client.backoff import ExponentialBackoff
from replication.client.config import ClientConfig
from replication.client.errors import NO_ANSWER, KafkaTimeoutError
from replication.errors import AuthenticationError, KafkaError
from replication.net.seams import NodeClock

T = TypeVar("T")


async def keep_asking(
    attempt: Callable[[], Awaitable[T]],
    *,
    config: ClientConfig,
    clock: NodeClock,
    chance: random.Random,
    timeout_ms: float,
    on_no_answer: Callable[[], None] = lambda: None,
) -> T:
    """What `attempt` returns once it raises neither a KafkaError that is retriable nor that there
    was no answer; KafkaTimeoutError, and the last of those, where the time is up.
    """
    backoff = ExponentialBackoff(
        first_ms=config.retry_backoff_ms, most_ms=config.retry_backoff_max_ms
    )
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
