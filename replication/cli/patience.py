"""Brokers hear of a change one after the other: how commands ask again until they have.

Rule 1: a change is looked for after it was made (`until`, `led`, `gone`), for as long as an answer
may take: what the controller answers is a promise.

Rule 2: a topic that a broker does not know is asked for again for a moment (`patiently`): it may
have been made just now, by the line before in the same script.
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


class NotThereError(CommandError):
    """No broker that was asked knows it."""


async def patiently(question: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
    """What it answers, once it asks of no topic that nobody knows, or the moment is over."""
    deadline = trio.current_time() + min(GRACE_SECONDS, timeout_ms / 1000)
    while True:
        try:
            return await question()
        except (NotThereError, KafkaError) as error:
            if not _is_unknown(error) or trio.current_time() >= deadline:
                raise
        await trio.sleep(LOOK_SECONDS)


def _is_unknown(error: NotThereError | KafkaError) -> bool:
    return not isinstance(error, KafkaError) or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def until(
    holds: Callable[[], Awaitable[bool]], *, what: str, timeout_ms: int, after: str
) -> None:
    """CommandError, which says what was done and what has not come of it, where it never does."""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            if await holds():
                return
            await trio.sleep(LOOK_SECONDS)
    raise CommandError(f"{after}, but not within {timeout_ms} ms: {what}")


async def led(
    admin: Admin, topic: str, partitions: int, *, timeout_ms: int, after: str
) -> TopicDescription:
    """Once it has that many partitions, or more, and all of them are led."""
    found: list[TopicDescription] = []

    async def holds() -> bool:
        try:
            found[:] = [(await admin.describe_topics([topic]))[topic]]
        except KafkaError as error:
            if not _is_unknown(error):
                raise
            return False
        told = found[0].partitions
        return len(told) >= max(1, partitions) and all(each.leader >= 0 for each in told)

    what = f"{partitions} partitions of {topic}, and a leader of each"
    await until(holds, what=what, timeout_ms=timeout_ms, after=after)
    return found[0]


async def gone(admin: Admin, names: Sequence[str], *, timeout_ms: int) -> None:
    """Once none of them is listed."""

    async def holds() -> bool:
        return not set(names).intersection(await admin.list_topics())

    what = f"{', '.join(names)} being listed no more"
    await until(holds, what=what, timeout_ms=timeout_ms, after="deleted")


async def groups_gone(admin: Admin, groups: Sequence[str], *, timeout_ms: int) -> None:
    async def holds() -> bool:
        listed = {each.group_id for each in await admin.list_groups()}
        return not listed.intersection(groups)

    what = f"{', '.join(groups)} being listed no more"
    await until(holds, what=what, timeout_ms=timeout_ms, after="deleted")
