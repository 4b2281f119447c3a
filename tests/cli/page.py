"""The generated half of `docs/commands.md`: every command, its flags and their help, as click has them.

python -m tests.cli.page          writes it anew
"""

from pathlib import Path

import click

from tests.cli.tree import LEAVES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
MARK = "<!-- From here on written by `python -m tests.cli.page`. -->\n"


def generated() -> str:
    return "\n".join(section(name, LEAVES[name]) for name in sorted(LEAVES))


def section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    arguments = [
        each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)
    ]
    usage = " ".join(["understudy", name, "[OPTIONS]", *arguments])
    about = command.get_short_help_str(limit=200)
    lines = [f"### {name}\n", f"{about}\n", f"`{usage}`\n"]
    flags = [row(each, context) for each in command.params if isinstance(each, click.Option)]
    if flags:
        lines += ["| flag | |", "|---|---|", *flags, ""]
    return "\n".join(lines)


def row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None, option.name
    flag, about = (each.replace("|", "\\|") for each in record)
    return f"| `{flag}` | {' '.join(about.split())} |"


def whole() -> str:
    by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{by_hand}{MARK}\n{generated()}"


if __name__ == "__main__":
    PAGE.write_text(whole(), encoding="utf-8")
