"""Repeated requests, because brokers learn of a change one after the other.

Rule 1: after a change, a command asks until brokers show it (`until`, `led`, `gone`), at most for
`--timeout`: the controller's response does not mean that they know it.

Rule 2: if a broker does not know a topic, a command asks again for a moment (`patiently`): the line
before in the same script may have created it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from replication.cli.output import CommandError
from replication.client.admin import Admin
from replication.client.admin.values import TopicDescription
from replication.errors import ErrorCode, KafkaError

T = TypeVar("T")

LOOK_SECONDS = 0.02
GRACE_SECONDS = 0.5


class NotFoundError(CommandError):
    """A topic or partition is unknown to the brokers that were asked."""


async def patiently(question: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
    """Return the answer of `question`, which is repeated for a moment while a topic is unknown."""
    deadline = trio.current_time() + min(GRACE_SECONDS, timeout_ms / 1000)
    while True:
        try:
            return await question()
        except (NotFoundError, KafkaError) as error:
            if not _is_unknown(error) or trio.current_time() >= deadline:
                raise
        await trio.sleep(LOOK_SECONDS)


def _is_unknown(error: NotFoundError | KafkaError) -> bool:
    return not isinstance(error, KafkaError) or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def until(
    holds: Callable[[], Awaitable[bool]], *, what: str, timeout_ms: int, after: str
) -> None:
    """Wait until `holds` is true; raise CommandError, naming `after` and `what`, at the timeout."""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            if await holds():
                return
            await trio.sleep(LOOK_SECONDS)
    raise CommandError(f"{after}, but not within {timeout_ms} ms: {what}")


async def led(
    admin: Admin, topic: str, partitions: int, *, timeout_ms: int, after: str
) -> TopicDescription:
    """Wait until `topic` has at least `partitions` partitions, all with a leader; return it."""
    found: list[TopicDescription] = []

    async def holds() -> bool:
        try:
            found[:] = [(await admin.describe_topics([topic]))[topic]]
        except KafkaError as error:
            if not _is_unknown(error):
                raise
            return False
        there = found[0].partitions
        return len(there) >= max(1, partitions) and all(each.leader >= 0 for each in there)

    what = f"{partitions} partitions of {topic} with a leader"
    await until(holds, what=what, timeout_ms=timeout_ms, after=after)
    return found[0]


async def gone(admin: Admin, names: Sequence[str], *, timeout_ms: int) -> None:
    """Wait until none of `names` is listed."""

    async def holds() -> bool:
        return not set(names).intersection(await admin.list_topics())

    what = f"{', '.join(names)} no longer listed"
    await until(holds, what=what, timeout_ms=timeout_ms, after="deleted")


async def groups_gone(admin: Admin, groups: Sequence[str], *, timeout_ms: int) -> None:
    async def holds() -> bool:
        listed = {each.group_id for each in await admin.list_groups()}
        return not listed.intersection(groups)

    what = f"{', '.join(groups)} no longer listed"
    await until(holds, what=what, timeout_ms=timeout_ms, after="deleted")
