"""The options that select a cluster, the requests to it, and repeated requests.

    -b, --bootstrap-server HOST:PORT,...    of the command, else of `understudy -b ...`,
                                            else $UNDERSTUDY_BOOTSTRAP_SERVER, else localhost:9092
    --command-config FILE                   the properties of a Kafka client
    -X KEY=VALUE                            one property
    --timeout MS                            the time limit of an answer

If no broker answers, the error names the brokers that were asked; it does not wait for `--timeout`
if nobody listens there.

Brokers learn of a change one after the other, so requests are repeated:

Rule 1: after a change, a command asks until brokers show it (`wait_until`), at most for `--timeout`:
the controller's response does not mean that they know it.

Rule 2: if a broker does not know a topic, a command asks again for a moment
(`retry_while_unknown`): the line before in the same script may have created it.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
import trio

from replication.cli.options import (
    AT_LEAST_ONE,
    client_arguments,
    client_config_option,
    overrides_option,
    properties_of,
)
from replication.cli.output import OUTPUT, CommandError
from replication.client.admin import Admin
from replication.client.admin.values import TopicDescription
from replication.client.config import ClientConfig, keys_of
from replication.errors import ErrorCode, KafkaError
from replication.net.raising import raising_only_one, raising_the_first
from storage.attributes import frozen

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SERVER = "localhost:9092"
LOOK_SECONDS = 0.02
GRACE_SECONDS = 0.5
PATIENCE_SECONDS = 0.2


class NotFoundError(CommandError):
    """A topic or partition is unknown to the brokers that were asked."""


async def retry_while_unknown(question: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
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


async def wait_until(
    holds: Callable[[], Awaitable[bool]], *, what: str, timeout_ms: int, after: str
) -> None:
    """Wait until `holds` is true; raise CommandError, naming `after` and `what`, at the timeout."""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            if await holds():
                return
            await trio.sleep(LOOK_SECONDS)
    raise CommandError(f"{after}, but not within {timeout_ms} ms: {what}")


async def wait_for_leaders(
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
    await wait_until(holds, what=what, timeout_ms=timeout_ms, after=after)
    return found[0]


async def wait_until_topics_gone(admin: Admin, names: Sequence[str], *, timeout_ms: int) -> None:
    """Wait until none of `names` is listed."""

    async def holds() -> bool:
        return not set(names).intersection(await admin.list_topics())

    what = f"{', '.join(names)} no longer listed"
    await wait_until(holds, what=what, timeout_ms=timeout_ms, after="deleted")


async def wait_until_groups_gone(admin: Admin, groups: Sequence[str], *, timeout_ms: int) -> None:
    async def holds() -> bool:
        listed = {each.group_id for each in await admin.list_groups()}
        return not listed.intersection(groups)

    what = f"{', '.join(groups)} no longer listed"
    await wait_until(holds, what=what, timeout_ms=timeout_ms, after="deleted")


def _is_refusal(error: OSError) -> bool:
    """Return whether each of a host's addresses refused the connection."""
    cause = error.__cause__
    causes = cause.exceptions if isinstance(cause, ExceptionGroup) else (cause,)
    return all(isinstance(each, ConnectionRefusedError) for each in causes)


@frozen
class ClusterConnection:
    """The brokers to ask first, and the properties and the time limit of requests."""

    servers: str
    properties: Mapping[str, str] = attrs.field(factory=dict)
    timeout_ms: int = 10_000

    def config(self, **keys: Any) -> dict[str, Any]:
        """Return the arguments of a client: Kafka's keys with underscores; the user's take precedence."""
        given = client_arguments(self.properties)
        return {"bootstrap_servers": self.servers, **keys, **given}

    def for_admin(self) -> "ClusterConnection":
        """Return a connection without the properties that only a consumer or a producer has."""
        shared = keys_of(ClientConfig)
        known = {key: value for key, value in self.properties.items() if key in shared}
        return attrs.evolve(self, properties=known)

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """Return the answer of `question` with an admin client."""
        answer: T = self.run(trio.run, self.ask_within, question)
        return answer

    def ask_retrying(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """Return the answer of a question that changes nothing; its topic may have been created just now."""
        answer: T = self.run(trio.run, self.ask_retrying_within, question)
        return answer

    async def ask_within(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """Do `ask` in a running trio program; CommandError if nobody listens at any address."""
        async with Admin(**self.config(default_api_timeout_ms=self.timeout_ms)) as admin:
            return await self.unless_refused(lambda: question(admin))

    async def unless_refused(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns; CommandError if nobody listens at any address meanwhile."""
        with raising_only_one(), raising_the_first(CommandError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._notice_a_refusal)
                answer = await ask()
                nursery.cancel_scope.cancel()
        return answer

    async def _notice_a_refusal(self) -> None:
        """Raise CommandError if, after a moment, every address refuses a connection.

        The client goes on asking until its time limit, because a broker may be starting.
        """
        await trio.sleep(PATIENCE_SECONDS)
        for address in ClientConfig.of(**self.config()).bootstrap_servers:
            try:
                with trio.fail_after(PATIENCE_SECONDS):
                    stream = await trio.open_tcp_stream(address.host, address.port)
            except OSError as error:
                if not _is_refusal(error):
                    return
            except trio.TooSlowError:
                return
            else:
                await stream.aclose()
                return
        raise CommandError(f"{self.servers}: connection refused: no broker listens there")

    async def ask_retrying_within(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        return await self.ask_within(
            lambda admin: retry_while_unknown(lambda: question(admin), timeout_ms=self.timeout_ms)
        )

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function`; name the brokers in the error if none answers in time."""
        try:
            return function(*arguments)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise CommandError(f"{self.servers}: {error}") from error


def server_option(about: str) -> Callable[[F], F]:
    """Return the option `--bootstrap-server`, `-b`."""
    return click.option(
        *("-b", "--bootstrap-server", "servers"),
        metavar="HOST:PORT,...",
        callback=lambda _, __, given: given or global_servers() or DEFAULT_SERVER,
        help=about,
    )


def global_servers() -> str | None:
    """Return the brokers of `understudy -b` or of the environment; None if there are none."""
    given: str | None = click.get_current_context().find_root().params.get("global_servers")
    return given


def connected(
    *file_names: str, property_names: Sequence[str] = ()
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options above, which the command gets as one `connection`, and `--output`.

    `file_names` and `property_names` are further names, from one of Kafka's tools.
    """
    options = [
        server_option(f"Brokers to ask first.  [default: {DEFAULT_SERVER}]"),
        client_config_option(*file_names),
        overrides_option("A property of the Kafka client; it overrides the file.", *property_names),
        click.option(
            "--timeout", "answer_ms", type=AT_LEAST_ONE, default=10_000,
            show_default=True, help="Milliseconds to wait for an answer.",
        ),
        OUTPUT,
    ]  # fmt: skip

    def with_options(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def with_connection(
            *arguments: Any,
            servers: str,
            config_file: Path | None,
            overrides: Mapping[str, str],
            answer_ms: int,
            **others: Any,
        ) -> T:
            properties = properties_of(config_file, overrides)
            connection = ClusterConnection(servers, properties, answer_ms)
            return command(*arguments, connection=connection, **others)

        for option in reversed(options):
            with_connection = option(with_connection)
        return with_connection

    return with_options
