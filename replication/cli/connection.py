"""The options that select a cluster, and the requests to it.

    -b, --bootstrap-server HOST:PORT,...    of the command, else of `understudy -b ...`,
                                            else $UNDERSTUDY_BOOTSTRAP_SERVER, else localhost:9092
    --command-config FILE                   the properties of a Kafka client
    -X KEY=VALUE                            one property
    --timeout MS                            the time limit of an answer

If no broker answers, the error names the brokers that were asked.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from replication.cli.options import (
    AT_LEAST_ONE,
    client_config_option,
    overrides_option,
    properties_of,
)
from replication.cli.output import CommandError

if TYPE_CHECKING:
    from replication.client.admin import Admin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SERVER = "localhost:9092"


@attrs.frozen
class ClusterConnection:
    """The brokers to ask first, and the properties and the time limit of requests."""

    servers: str
    properties: Mapping[str, str] = attrs.field(factory=dict)
    timeout_ms: int = 10_000

    def config(self, **keys: Any) -> dict[str, Any]:
        """Return the arguments of a client: Kafka's keys with underscores; the user's take precedence."""
        given = {key.replace(".", "_"): value for key, value in self.properties.items()}
        return {"bootstrap_servers": self.servers, **keys, **given}

    def for_admin(self) -> "ClusterConnection":
        """Return a connection without the properties that only a consumer or a producer has."""
        from replication.client.config import ClientConfig, keys_of

        shared = keys_of(ClientConfig)
        known = {key: value for key, value in self.properties.items() if key in shared}
        return attrs.evolve(self, properties=known)

    def ask(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        """Return the answer of `question` with an admin client."""
        import trio

        answer: T = self.run(trio.run, self.ask_within, question)
        return answer

    def look(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        """Return the answer of a question that changes nothing; its topic may have been created just now."""
        import trio

        answer: T = self.run(trio.run, self.look_within, question)
        return answer

    async def ask_within(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        """Do `ask` in a running trio program."""
        from replication.client.admin import Admin

        async with Admin(**self.config(default_api_timeout_ms=self.timeout_ms)) as admin:
            return await question(admin)

    async def look_within(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        from replication.cli.patience import patiently

        return await self.ask_within(
            lambda admin: patiently(lambda: question(admin), timeout_ms=self.timeout_ms)
        )

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function`; name the brokers in the error if none answers in time."""
        from replication.errors import ErrorCode, KafkaError

        try:
            return function(*arguments)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise CommandError(f"{self.servers}: {error}") from error


def server_option(
    *names: str, default: str | None = DEFAULT_SERVER, about: str = ""
) -> Callable[[F], F]:
    """Return the option `--bootstrap-server`, `-b`, with further names of one command."""
    return click.option(
        "-b",
        "--bootstrap-server",
        *names,
        "servers",
        metavar="HOST:PORT,...",
        callback=functools.partial(_servers, default=default),
        help=about or f"Brokers to ask first.  [default: {default}]",
    )


def global_servers() -> str | None:
    """Return the brokers of `understudy -b` or of the environment; None if there are none."""
    given: str | None = click.get_current_context().find_root().params.get("global_servers")
    return given


def _servers(
    _: click.Context, __: click.Parameter, given: str | None, *, default: str | None
) -> str | None:
    """Return the brokers of the command, or the global ones, or the default."""
    return given or global_servers() or default


def connected(
    *file_names: str, property_names: Sequence[str] = ()
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options above, which the command gets as one `connection`.

    `file_names` and `property_names` are further names, from one of Kafka's tools.
    """
    options = [
        server_option(),
        client_config_option(*file_names),
        overrides_option("A property of the Kafka client; it overrides the file.", *property_names),
        click.option(
            "--timeout", "answer_ms", type=AT_LEAST_ONE, default=10_000,
            show_default=True, help="Milliseconds to wait for an answer.",
        ),
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
