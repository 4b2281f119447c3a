"""`understudy completion bash|zsh|fish`, and the completion of topics, groups and stories.

    source <(understudy completion bash)

Topics and groups come from the brokers that the command line names so far, or from the default
ones. If no broker answers, there is no message and only a short wait.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from replication.cli.output import show_line
from replication.visible import visible_line

if TYPE_CHECKING:
    from replication.client.admin import Admin

WAIT_MS = 1_500
COMMAND, VARIABLE = "understudy", "_UNDERSTUDY_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


# Not a docstring: click's mark for a block that it must not wrap is a backspace.
_HELP = """Print the script that teaches a shell to complete this command.

\b
bash    source <(understudy completion bash)          in ~/.bashrc
zsh     source <(understudy completion zsh)           in ~/.zshrc
fish    understudy completion fish | source           in config.fish
"""


@click.command(name="completion", help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    found = get_completion_class(shell)
    assert found is not None, "click knows the shells that it is given"
    show_line(found(click.Command(COMMAND), {}, COMMAND, VARIABLE).source())


def topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def names(admin: "Admin") -> Iterable[str]:
        return await admin.list_topics()

    return _from_cluster(ctx, names, incomplete)


def groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def names(admin: "Admin") -> Iterable[str]:
        return [each.group_id for each in await admin.list_groups()]

    return _from_cluster(ctx, names, incomplete)


def stories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from scenarios.story.script import stories as all_stories

    return _beginning(all_stories(), incomplete)


def exhibits(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from scenarios.museum.catalogue import EXHIBITS

    return _beginning(EXHIBITS, incomplete)


def _from_cluster(
    ctx: click.Context, names: "Callable[[Admin], Awaitable[Iterable[str]]]", incomplete: str
) -> list[CompletionItem]:
    from replication.cli.connection import DEFAULT_SERVER, ClusterConnection
    from replication.cli.options import properties_of

    given: dict[str, Any] = ctx.find_root().params | ctx.params
    servers = given.get("servers") or given.get("global_servers") or DEFAULT_SERVER
    try:
        properties = properties_of(given.get("config_file"), given.get("overrides") or {})
        connection = ClusterConnection(servers, properties, WAIT_MS).for_admin()
        return _beginning(connection.ask(names), incomplete)
    except Exception:  # noqa: BLE001 - a traceback in the middle of a command line helps nobody
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    # A shell writes names to the terminal unchanged: those with control characters are left out.
    shown = [name for name in sorted(names) if name == visible_line(name)]
    return [CompletionItem(name) for name in shown if name.startswith(incomplete)]
