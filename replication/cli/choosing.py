"""The choice of topics, of partitions by their state, and of groups, on the command line.

`--topic 'orders.*,audit'` is a regular expression for whole names, in which commas separate several
(TopicFilter.IncludeList). An argument is a plain name.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from replication.cli import completion
from replication.cli.connection import NotFoundError
from replication.client.admin import Admin
from storage.attributes import frozen

T = TypeVar("T")

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

READING = ("consumer", "")
"""The protocol types of consumer groups; a group that only commits offsets has none."""


@frozen(kw_only=True)
class WantedTopics:
    """A choice of topics; without names and pattern, all of them."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    exclude_internal: bool = False
    if_exists: bool = False

    @property
    def all(self) -> bool:
        return not self.names and self.pattern is None

    def matches(self, topic: str) -> bool:
        if self.exclude_internal and topic in INTERNAL:
            return False
        return (
            self.all
            or topic in self.names
            or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)
        )

    async def found(self, admin: Admin) -> list[str]:
        """Return the chosen topics of a cluster; raise NotFoundError for an unknown one."""
        listed = await admin.list_topics()
        missing = [name for name in self.names if name not in listed]
        found = [name for name in listed if self.matches(name)]
        if self.pattern is not None and not any(map(self._by_pattern, listed)):
            missing.append(self.pattern)
        if missing and not self.if_exists:
            raise NotFoundError(f"Topic '{missing[0]}' does not exist as expected")
        return found

    def _by_pattern(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None


def pattern(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return Kafka's list of regular expressions as one; None for an empty list."""
    if not value:
        return None
    text = value.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{value}: {error}", param=option) from error
    return text


TOPICS = click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=completion.topics)
PATTERN = click.option(
    "--topic",
    "pattern",
    callback=pattern,
    shell_complete=completion.topics,
    metavar="PATTERN",
    help="Choose the topics whose whole name matches.",
)


@frozen(kw_only=True)
class Only:
    """The choice of partitions by their state; without any of these, all of them."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    overrides: bool = False
    """Only topics with configurations of their own, without their partitions."""

    @property
    def some_partitions(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


def only_some(command: Callable[..., T]) -> Callable[..., T]:
    """Add kafka-topics' flags for partitions in trouble, which the command gets as one `only`."""
    flags = {
        "under_replicated": "Show only partitions whose ISR lacks a replica.",
        "unavailable": "Show only partitions whose leader is not available.",
        "under_min_isr": "Show only partitions whose ISR is below min.insync.replicas.",
        "at_min_isr": "Show only partitions whose ISR is exactly min.insync.replicas.",
    }

    @functools.wraps(command)
    def with_only(*arguments: Any, **given: Any) -> T:
        only = Only(**{name: given.pop(name) for name in flags})
        return command(*arguments, only=only, **given)

    for name, about in reversed(flags.items()):
        flag = f"--{name.replace('_', '-')}-partitions"
        with_only = click.option(flag, name, is_flag=True, help=about)(with_only)
    return with_only


def assignment(
    _: click.Context, option: click.Parameter, value: str | None
) -> tuple[tuple[int, ...], ...]:
    """Return the brokers of each partition: `1:2,2:3` puts partition 0 on brokers 1 and 2."""
    partitions = [] if not value else value.split(",")
    try:
        replicas = tuple(tuple(int(each) for each in part.split(":")) for part in partitions)
    except ValueError as error:
        raise click.BadParameter(
            f"{value}: expected brokers such as 1:2,2:3", param=option
        ) from error
    for number, brokers in enumerate(replicas):
        if len(set(brokers)) != len(brokers):
            raise click.BadParameter(f"partition {number} names a broker twice", param=option)
        if len(brokers) != len(replicas[0]):
            raise click.BadParameter(
                f"partition {number} has another replication factor than partition 0", param=option
            )
    return replicas


def check_topics_given(names: Sequence[str], pattern: str | None) -> None:
    """Raise UsageError if no topic is given."""
    if not names and pattern is None:
        raise click.UsageError("give the TOPIC, or --topic")


@frozen
class ChosenGroups:
    """A choice of groups; `names` is None for all of them."""

    names: Sequence[str] | None

    async def found(self, admin: Admin) -> list[str]:
        if self.names is not None:
            return list(self.names)
        listed = await admin.list_groups()
        return [each.group_id for each in listed if each.protocol_type in READING]


def groups_named(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that choose groups, which the command gets as one `chosen`."""

    @functools.wraps(command)
    def with_chosen(
        *arguments: Any,
        names: Sequence[str],
        more_names: Sequence[str],
        all_groups: bool,
        **others: Any,
    ) -> T:
        named = tuple(dict.fromkeys((*names, *more_names)))
        if bool(named) == all_groups:
            raise click.UsageError("give either GROUP or --all-groups")
        return command(*arguments, chosen=ChosenGroups(None if all_groups else named), **others)

    options = [
        click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=completion.groups),
        click.option(
            "--group",
            "more_names",
            multiple=True,
            metavar="GROUP",
            shell_complete=completion.groups,
            help="A group, as the argument GROUP; may be repeated.",
        ),
        click.option("--all-groups", is_flag=True, help="Choose all consumer groups."),
    ]
    for option in reversed(options):
        with_chosen = option(with_chosen)
    return with_chosen
