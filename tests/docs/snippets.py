"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and the comments above them.

    ```python          a program, or tests: run, a page's blocks one after the other
    ```sh              commands, a line each: run
    ```console         the same behind a `$`, with what they print
    ```output          what the block above prints; `...` stands for whatever there is
    ```text, ```        a drawing, or what a file holds

A comment above a block says what its reader need not know:

    <!-- not run: why -->                           none of it
    <!-- not run, understudy scenario swarm: why -->   the lines that begin so
    <!-- exits with 1: why -->                      the last command does
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENTS: Final = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*)+\Z", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_NOT_RUN: Final = re.compile(r"not run(?:, ([^:]+))?: (.+)", re.DOTALL)
_EXITS: Final = re.compile(r"exits with (\d+): .+", re.DOTALL)
# What somebody would type; a block of it has to say that it is one.
_TYPED: Final = re.compile(
    r"^(\$ |(understudy|make|pip|python3?|pytest|curl|spark-submit|git|docker) \S)", re.MULTILINE
)


@attrs.frozen(kw_only=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    comments: tuple[str, ...] = ()
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> dict[str, str]:
        """Why, by how the lines begin that are meant; all lines begin with nothing."""
        found = (_NOT_RUN.fullmatch(each) for each in self.comments)
        return {each[1] or "": each[2] for each in found if each}

    @property
    def is_left_out(self) -> bool:
        return "" in self.not_run

    @property
    def exit_code(self) -> int:
        found = [_EXITS.fullmatch(each) for each in self.comments]
        return next((int(each[1]) for each in found if each), 0)

    @property
    def is_tests(self) -> bool:
        return (
            self.language == "python"
            and re.search(r"^(async )?def test_", self.text, re.MULTILINE) is not None
        )

    @property
    def looks_typed(self) -> bool:
        """Whether the block has commands and no language that says so."""
        return self.language in ("", "text") and _TYPED.search(self.text) is not None

    @property
    def shown(self) -> str | None:
        """The output that the page shows, or None."""
        if self.language != "console":
            return self.output
        return "".join(each for each in self.text.splitlines(True) if not each.startswith("$ "))

    def commands(self) -> Iterator[str]:
        """Yield its commands without comments and prompts; a backslash joins two lines."""
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            if self.language == "console" and not line.startswith("$ "):
                continue  # what it prints
            command = re.split(r"\s#(?:\s|$)", line.removeprefix("$ "))[0].strip()
            if command and not command.startswith("#"):
                yield command

    def is_run(self, command: str) -> bool:
        return not any(command.startswith(each) for each in self.not_run)


def pages() -> list[Path]:
    """Return every page that people read; the changelog speaks of files that are gone."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for fence in _FENCE.finditer(text):
        above = _COMMENTS.search(text, 0, fence.start())
        if fence[1] == "output":
            assert found, f"{page.name} begins with an output"
            found[-1] = attrs.evolve(found[-1], output=fence[2])
            continue
        block = Block(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, fence.start()) + 1,
            language=fence[1],
            text=fence[2],
            comments=tuple(_COMMENT.findall(above[0])) if above else (),
        )
        found.append(block)
    return found


def every_block() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


# Whole pages that need a session, and what shows a block that does.
SPARK_PAGES: Final = ("docs/pipeline.md", "docs/how-to-pyspark.md")
_OF_SPARK: Final = ("spark", "understudy pipeline", "understudy audit-headers")


def is_of_spark(block: Block) -> bool:
    """Return whether tests/pipeline/test_pages.py, which has a session, runs the block."""
    return block.page in SPARK_PAGES or any(word in block.text for word in _OF_SPARK)


def same_output(shown: str, printed: str) -> bool:
    """Return whether the output is what the page shows, where `...` stands for anything."""
    pattern = ".*?".join(map(re.escape, _tidy(shown).split("...")))
    return re.fullmatch(pattern, _tidy(printed), re.DOTALL) is not None


def _tidy(text: str) -> str:
    """A terminal pads lines, and ports are whichever were free."""
    tidy = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", tidy)
