"""Drift that no other check sees: files nobody imports, promises nobody signed, pages gone stale."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from replication.broker.handlers import MODULES
from replication.wire.apis import API
from tests.conformance import disagreements, read_list, shown_ids
from tests.docs.snippets import pages
from tests.language import EXCEPTIONS, complaints, complaints_about

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "replication", "scenarios", "pipeline", "understudy")
# Run by name, so that no import line names them.
ENTRY_POINTS = {
    "replication.__main__",
    "replication.cli.__main__",
    "replication.pytest_plugin",
    "understudy.__main__",
    *(f"replication.wire.{key.name.lower()}" for key in API),
    *(f"replication.broker.handlers.{each}" for each in MODULES.values()),
}
IMPORT_FROM = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)
IMPORT = re.compile(r"^\s*import ([\w.]+)", re.MULTILINE)
QUOTED = re.compile(r"""["']((?:\w+\.)+\w+)(?::\w+)?["']""")

MOST_LINES = 450
SAYS_WHY = re.compile(r"file is long(er than others)?\s+because")

# A name and its value; not what is called or goes on in another line.
CONSTANT = re.compile(
    r'^_?([A-Z][A-Z0-9_]+)(?:: .*?)? = ([^(#\n]*[^\[({ \n])(?<!""")(?:  #.*)?$', re.MULTILINE
)
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)

# Constants that are equal by chance: times, sizes and versions that change for reasons of their own.
EQUAL_BY_CHANCE = {
    "ANSWER_MS",
    "LISTENER",
    "LOOK_SECONDS",
    "OPEN_END",
    "PATIENCE_SECONDS",
    "POLL_MS",
    "READ_BYTES",
    "RETRY_SECONDS",
    "START_SECONDS",
    "VERSION",
    "WAIT_SECONDS",
    "WINDOW_BYTES",
}
# A command that starts quickly, or a room that imports no other, says again what it may not import.
DEFINED_AGAIN = {"COULD_NOT_COMPARE", "KEY", "LOOPBACK"}
# Both have the name of Kafka's exception: one is of the log, and one is what a client raises.
NAMED_ALIKE = {"OffsetOutOfRangeError", "RecordTooLargeError"}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names() -> set[str]:
    """Return every module that some file imports or names in quotes, as the command's table does."""
    names: set[str] = set()
    for path in [*sources(), *(ROOT / "tests").rglob("*.py")]:
        text = path.read_text()
        for package, imported in IMPORT_FROM.findall(text):
            names |= {package, *(f"{package}.{each}" for each in re.findall(r"\w+", imported))}
        names |= {*IMPORT.findall(text), *QUOTED.findall(text)}
    return names


def test_every_module_is_imported_by_another() -> None:
    modules = {module_name(path) for path in sources() if path.name != "__init__.py"}
    assert modules - imported_names() - ENTRY_POINTS == set()


def test_no_module_hides_a_name_that_its_package_re_exports() -> None:
    """Importing a module binds its name in its package, in place of what had it."""
    modules = {module_name(path) for path in sources()}
    hidden = [
        f"{package}.{alias.name}"
        for package, path in ((module_name(path), path) for path in sources())
        if path.name == "__init__.py"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{package}.{alias.name}" in modules and node.module != f"{package}.{alias.name}"
    ]
    assert hidden == []


def test_every_module_opens_with_its_theory() -> None:
    texts = ((path, path.read_text()) for path in sources())
    assert [path.name for path, text in texts if text and not re.match('r?"""', text)] == []


def repeated(pattern: re.Pattern[str]) -> set[str]:
    """Return the first group of each match that several modules have."""
    found = Counter(match for path in sources() for match in pattern.findall(path.read_text()))
    return {match if isinstance(match, str) else match[0] for match, n in found.items() if n > 1}


def test_a_long_file_says_why() -> None:
    long = [
        path
        for package in (*PACKAGES, "tests")
        for path in (ROOT / package).rglob("*.py")
        if len(path.read_text().splitlines()) > MOST_LINES
    ]
    docstrings = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in long}
    assert [path for path, text in docstrings.items() if not SAYS_WHY.search(text)] == []


def test_a_constant_is_defined_once() -> None:
    assert repeated(CONSTANT) == EQUAL_BY_CHANCE | DEFINED_AGAIN


def test_the_name_of_a_class_is_used_once() -> None:
    assert repeated(CLASS) == NAMED_ALIKE


def test_a_todo_has_a_name() -> None:
    # The brackets keep this line from finding itself.
    unsigned = re.compile(r"TOD[O](?!\([a-z])|FIXM[E]")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*sources(), *(ROOT / "tests").rglob("*.py")]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unsigned.search(line)
    ]
    assert found == []


def test_files_that_the_pages_name_are_there() -> None:
    named = re.compile(r"`((?:storage|replication|scenarios|pipeline|tests|docs)/[\w./-]*)`")
    missing = [
        f"{page.name}: {name}"
        for page in pages()
        for name in named.findall(page.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def tracked_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    if not any(listed):
        pytest.skip("not a git checkout")
    return [name for name in listed if name and (ROOT / name).exists()]


def test_nothing_committed_names_this_machine() -> None:
    place = f"{ROOT}/".encode()
    assert [name for name in tracked_files() if place in (ROOT / name).read_bytes()] == []


def test_no_other_folder_joins_the_root() -> None:
    folders = {name.split("/")[0] for name in tracked_files() if "/" in name}
    assert folders == {*PACKAGES, "tests", "docs", ".ci"}


def test_the_conformance_list_and_the_tests_agree() -> None:
    """`python -m tests.conformance --write` brings the list in line."""
    assert disagreements(read_list(), shown_ids()) == []


def test_the_language_is_plain() -> None:
    assert complaints_about(tracked_files()) == []


def test_an_exception_of_the_language_is_needed() -> None:
    assert [
        name for name in EXCEPTIONS if not any(complaints(name, (ROOT / name).read_text()))
    ] == []


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("docs/a.md", "Whoever fetches begins a new reign.", 2),
        ("docs/a.md", "A follower begins a new leader epoch.", 0),
        ("storage/a.py", 'def end():\n    """The end of the log."""\n', 1),
        ("storage/a.py", 'def end():\n    """Return the end of the log."""\n', 0),
        (
            "storage/a.py",
            'class A:\n    @property\n    def end(self):\n        """The end."""\n',
            0,
        ),
        ("tests/a.py", 'def end():\n    """The end of the log."""\n', 0),
        ("tests/a.py", 'def end():\n    """Of the log."""\n', 1),
    ],
)
def test_what_is_not_plain_is_found(name: str, text: str, count: int) -> None:
    assert len(list(complaints(name, text))) == count
