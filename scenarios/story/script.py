"""Stories as text files: commands, a line of four dashes, and the answer.

    # A title.
    # shows: S65            the scenarios it shows (docs/stories.md lists them)
    # rules: KIP-101        the rules that decide how it ends
    # seed: 17              the seed, if it is not 1

    kill b1                 commands, a line each
    wait leader t-0
    ----
    b1 is killed            what they answered when the story was recorded
    t-0: b2 leads

Rule 1: blank lines separate blocks, so an answer has none. A block of lines that begin with `#`
is a comment, and is kept as it is.

Rule 2: a story that runs again must give the same answers. A change is an error that shows both;
an intended change is recorded with `--record`.

Rule 3: an answer holds only what is the same for every seed. Times, random ids and the order of
simultaneous events are in the trace, which has a hash, and not in answers.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import attrs

from replication.errors import UnderstudyError

STORIES = Path(__file__).parent.parent / "stories"
DIVIDER = "----"
DEFAULT_SEED = "1"

_FIELD = re.compile(r"#\s*(shows|rules|seed):\s*(.*)")


class ScriptError(UnderstudyError):
    """A story that cannot be read, or that asks for something that does not exist."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """The number of the line at fault, if it is known."""


class StoryChangedError(UnderstudyError):
    """The answers of a story differ from the recorded ones."""


@attrs.frozen
class Comment:
    lines: tuple[str, ...]


@attrs.frozen
class Step:
    """Commands and their answer; `line` is where the first of them stands."""

    commands: tuple[str, ...]
    answer: tuple[str, ...] = ()
    line: int = attrs.field(default=0, eq=False)


Block: TypeAlias = Comment | Step


@attrs.frozen
class Script:
    """A story as it stands in its file."""

    blocks: tuple[Block, ...]

    @property
    def steps(self) -> list[Step]:
        """The commands and answers, in order."""
        return [block for block in self.blocks if isinstance(block, Step)]

    @property
    def commands(self) -> list[tuple[int, str]]:
        """Return each command with the number of its line."""
        return [
            numbered
            for step in self.steps
            for numbered in enumerate(step.commands, start=step.line)
        ]

    @property
    def passages(self) -> list[tuple[str, Step]]:
        """Return each step with the prose before it."""
        found: list[tuple[str, Step]] = []
        prose: list[str] = []
        for number, block in enumerate(self.blocks):
            match block:
                case Comment(lines):
                    prose += _prose(lines[1:] if number == 0 else lines)
                case Step():
                    found.append((" ".join(prose), block))
                    prose = []
        return found

    @property
    def title(self) -> str:
        """The first line of the head."""
        return self._head[0].lstrip("# ") if self._head else ""

    @property
    def fields(self) -> dict[str, str]:
        """The `# name: value` lines of the head."""
        found = (_FIELD.fullmatch(line) for line in self._head)
        return {each[1]: each[2] for each in found if each}

    @property
    def shows(self) -> list[str]:
        """The numbers of the scenarios that it shows."""
        return re.findall(r"S\d+", self.fields.get("shows", ""))

    @property
    def seed(self) -> int:
        """The seed of its world, unless a run is given another."""
        text = self.fields.get("seed", DEFAULT_SEED)
        if not text.isdecimal():
            raise ScriptError(f"{text!r} is no seed")
        return int(text)

    @property
    def _head(self) -> tuple[str, ...]:
        first = self.blocks[0] if self.blocks else None
        return first.lines if isinstance(first, Comment) else ()

    def answered(self, answers: list[tuple[str, ...]]) -> "Script":
        """Return the same story with these answers, one for each step."""
        left = iter(answers)
        return Script(
            tuple(
                attrs.evolve(block, answer=next(left)) if isinstance(block, Step) else block
                for block in self.blocks
            )
        )

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_lines(block)) for block in self.blocks) + "\n"


def _prose(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield the prose of a comment, without its `# name: value` lines."""
    for line in lines:
        if not _FIELD.fullmatch(line) and (said := line.lstrip("#").strip()):
            yield said


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Comment(lines):
            yield from lines
        case Step(commands, answer):
            yield from (*commands, DIVIDER, *answer)


def parse(text: str) -> Script:
    """Parse a story; raise ScriptError if it is none. Without a divider, a whole block is commands."""
    return Script(tuple(_block(number, lines) for number, lines in _blocks(text)))


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    lines: list[str] = []
    number = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            yield number - len(lines), lines
            lines = []
    if lines:
        yield number + 1 - len(lines), lines


def _block(number: int, lines: list[str]) -> Block:
    if all(line.startswith("#") for line in lines):
        return Comment(tuple(lines))
    divider = lines.index(DIVIDER) if DIVIDER in lines else len(lines)
    if divider == 0:
        raise ScriptError(f"line {number}: an answer without a command", line=number)
    return Step(tuple(lines[:divider]), tuple(lines[divider + 1 :]), number)


def difference(recorded: Script, actual: Script) -> str:
    """Return the changes as a diff; empty if there are none."""
    lines = difflib.unified_diff(
        str(recorded).splitlines(),
        str(actual).splitlines(),
        fromfile="recorded",
        tofile="actual",
        lineterm="",
        n=4,
    )
    return "\n".join(lines)


# Stories of this package.


def stories() -> dict[str, Path]:
    """Return the stories that come with the package, by name: a file's name is a sentence."""
    return {path.stem: path for path in sorted(STORIES.glob("*.txt"))}


def find_story(name: str) -> Path:
    """Return the path of a story, given its name, a beginning of one name only, the number of a
    scenario that only one story shows, or a file.

    Raises ScriptError if there is none, or more than one.
    """
    known = stories()
    wanted = name.strip().lower().replace(" ", "-")
    if wanted in known:
        return known[wanted]
    if Path(name).is_file():
        return Path(name)
    found = [path for stem, path in known.items() if wanted and stem.startswith(wanted)]
    if not found and re.fullmatch(r"[sS]\d+", name):
        found = [path for path in known.values() if name.upper() in read_story(path).shows]
    if len(found) > 1:
        names = ", ".join(path.stem for path in found)
        raise ScriptError(f"{name!r} may be each of {names}")
    if not found:
        raise ScriptError(
            f"there is no story called {name!r}{_resembling(wanted, known)};"
            " `understudy scenario list` shows them all"
        )
    return found[0]


def _resembling(wanted: str, known: Iterable[str]) -> str:
    """Return `; did you mean x?` for a story whose name begins much as `wanted`, or an empty text."""
    beginnings = {name[: len(wanted)]: name for name in known}
    close = difflib.get_close_matches(wanted, beginnings, n=1, cutoff=0.7)
    return f"; did you mean {beginnings[close[0]]}?" if close else ""


def read_story(path: Path) -> Script:
    """Read a story from a file; raise ScriptError if it cannot be read as one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path} cannot be read: {error}") from error
    return parse(text)
