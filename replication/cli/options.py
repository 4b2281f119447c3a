"""The options that several commands share, and the types of their values.

    -X KEY=VALUE        a property; a password in it is overwritten in this process's arguments,
                        which `ps` shows to everyone; before that it is visible, and a shell may
                        remember it
    --config FILE       properties in a file, visible only to users who may read it

A property of the command line overrides the same one of the file.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from replication.faults import FaultRule

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_DIRECTORY = click.Path(file_okay=False, path_type=Path)
AT_LEAST_ONE = click.IntRange(min=1)
AT_LEAST_ZERO = click.IntRange(min=0)

_SECRET: Final = re.compile(r"password|secret|jaas|keystore\.key$|add\.scram$", re.IGNORECASE)
# Fields of /proc/self/stat, counted after the program's name, which may contain blanks.
_ARG_START, _ARG_END = 45, 46


def exact_key_values(
    _: click.Context, option: click.Parameter, value: Sequence[str]
) -> dict[str, str]:
    """Return the pairs of repeated `KEY=VALUE` options; values keep their blanks."""
    found = {}
    for each in value:
        key, equals, text = each.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{each}: expected KEY=VALUE", param=option)
        found[key.strip()] = text
    hide_in_arguments(secrets_of(found))
    return found


def key_values(ctx: click.Context, option: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Return the pairs of repeated `KEY=VALUE` options, without blanks around values."""
    return {key: text.strip() for key, text in exact_key_values(ctx, option, value).items()}


def key_values_option(
    *names: str, about: str, callback: Callable[..., Any] = key_values
) -> Callable[[F], F]:
    """Return an option for KEY=VALUE pairs, which may be repeated."""
    return click.option(*names, callback=callback, multiple=True, metavar="KEY=VALUE", help=about)


def overrides_option(about: str, *names: str) -> Callable[[F], F]:
    """Return the option -X, which the command gets as `overrides`; `names` are further names."""
    return key_values_option("-X", *names, "overrides", about=about)


def client_config_option(*names: str, of: str = "") -> Callable[[F], F]:
    """Return the option --command-config, which the command gets as `config_file`."""
    about = f"A file of Kafka client properties{of}: TLS, SASL, timeouts, ..."
    return click.option("--command-config", *names, "config_file", type=FILE, help=about)


def properties_of(file: Path | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a file, overridden by those of the command line."""
    from replication.config import parse_properties

    found = {} if file is None else parse_properties(file.read_text(encoding="utf-8"))
    return found | {**given}


rule_file_option = click.option(
    "--faults",
    "rule_file",
    type=FILE,
    help="A file of fault rules, in force from the start (docs/control.md).",
)


def rules_of(file: Path | None) -> "list[FaultRule]":
    """Return the fault rules of a file; RuleFileError, with the line, if they are wrong."""
    if file is None:
        return []
    from replication.faults.rules.rule_file import rules_in

    return rules_in(file.read_text(encoding="utf-8"), name=str(file))


def client_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties as the arguments of a client: with underscores in their names."""
    return {key.replace(".", "_"): value for key, value in properties.items()}


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """Return the values that must stay secret."""
    return [value for key, value in properties.items() if value and _SECRET.search(key)]


def hide_in_arguments(values: Iterable[str]) -> None:
    """Overwrite `values` in the arguments that this process and its forks show.

    Only Linux has a way to do that; elsewhere they stay.
    """
    encoded = [os.fsencode(value) for value in values]
    if not encoded:
        return
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            arguments = memory.read(end - start)
            for value in encoded:
                arguments = arguments.replace(b"=" + value, b"=" + b"*" * len(value))
            memory.seek(start)
            memory.write(arguments)
    except (OSError, ValueError, IndexError):  # not Linux, or /proc is not mounted
        return
