"""Plain English, as far as a program can judge it: phrases and first words that are not used here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conformance import TESTS

ROOT = TESTS.parent
# Each file with the reason why its phrases may stay.
EXCEPTIONS = {
    "tests/language.py": "it lists the phrases",
    "tests/test_tidy.py": "it has examples of what is found",
    "CHANGELOG.md": "entries of the past name what is gone",
}
PHRASES = re.compile(
    r"\breigns?\b|\btold\b|\bwho(m)?ever\b|\bsuch (a )?ones?\b|\bparted by\b|\bknows? no case\b"
    r"|\bwho asks\b|\bis said to\b|\bnobody who\b|\bthose who\b|\bhe who\b"
    r"|\bwhom? it (may )?concerns?\b"
    r"|\bbelated|\bestranged|\bfrailty|\bmisfortune|\bmishearing|\bintrigue"
)
RIDDLES = {"of", "those"}
# No docstring of a file without a match begins with a riddle.
MAYBE_A_RIDDLE = re.compile(r"[\"']\W*(of|those|the same\.)", re.IGNORECASE)
FIRST_WORDS = (
    "what whether the a an who whom whose which how where when why for with without if as in on by"
    " nobody nothing no none one every each all only its their it such there that this these to"
    " from at between beside before after both two three some any is are was were has have had"
    " does did can may must they he she whoever but and or not also more most same"
)
NOT_A_VERB = RIDDLES | set(FIRST_WORDS.split())
PROPERTIES = {"property", "cached_property"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def complaints(name: str, text: str) -> Iterator[str]:
    """Yield what is not plain in the file `name`, a path below the root."""
    # To ignore case in the pattern, or to search line by line, takes more than twice as long.
    lower = text.lower()
    for found in PHRASES.finditer(lower):
        line = lower.count("\n", 0, found.start()) + 1
        yield f"{name}:{line}: {found[0]!r}"
    is_test = name.startswith("tests/")
    if name.endswith(".py") and (not is_test or MAYBE_A_RIDDLE.search(text)):
        for node in _documented(ast.parse(text)):
            if said := ast.get_docstring(node):
                yield from _of_docstring(name, node, said, is_test=is_test)


def _documented(node: ast.AST) -> Iterator[Documented]:
    """Yield what may have a docstring; to walk through expressions too would take ten times as long."""
    if isinstance(node, Documented):
        yield node
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for each in getattr(node, part, ()):
            yield from _documented(each)


def _of_docstring(name: str, node: Documented, said: str, *, is_test: bool) -> Iterator[str]:
    found = re.match(r"\W*([\w']*)", said)
    first = found[1].lower() if found else ""
    place = f"{name}:{getattr(node, 'lineno', 1)}"
    if first in RIDDLES or said.startswith("The same."):
        yield f"{place}: a docstring begins with {said[:20]!r}"
    elif not is_test and _is_called(node) and first in NOT_A_VERB:
        yield f"{place}: a function's docstring begins with {said[:20]!r}, not with a verb"


def _is_called(node: Documented) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = {ast.unparse(each).split("(")[0].split(".")[-1] for each in node.decorator_list}
    return not decorators & PROPERTIES


def complaints_about(names: list[str]) -> list[str]:
    """Return what is not plain in the Python and Markdown files among `names`."""
    judged = (name for name in names if name.endswith((".py", ".md")) and name not in EXCEPTIONS)
    return [each for name in judged for each in complaints(name, Path(ROOT / name).read_text())]
