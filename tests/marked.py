"""Which files have what `-m` asks for: a run of some hundred tests need not import ten thousand.

A mark is written out in the file whose tests bear it, as `pytest.mark.slow`. So a file that never
says so cannot have such a test, whatever else it has; `unwritten` finds who bears one all the same.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain, combinations
from pathlib import Path

MARKS = ("client", "spark", "slow", "interop", "seeds", "sparks")
# What is asked in other words than these is left to pytest.
_PLAIN = re.compile(r"[\w\s()]+")


@cache
def written_in(file: Path) -> frozenset[str]:
    return written(file.read_text(encoding="utf-8"))


def written(text: str) -> frozenset[str]:
    return frozenset(re.findall(rf"\bmark\.({'|'.join(MARKS)})\b", text))


def may_match(expression: str, marks: Iterable[str]) -> bool:
    """Whether any test can be chosen that bears some of these marks, or none."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    if not _PLAIN.fullmatch(expression) or not names <= set(MARKS):
        return True
    found = names & set(marks)
    some = chain.from_iterable(combinations(found, count) for count in range(len(found) + 1))
    try:
        code = compile(expression.strip(), "-m", "eval")
    except SyntaxError:
        return True
    return any(eval(code, {name: name in each for name in names}) for each in some)


def unwritten(file: Path, borne: Iterable[str]) -> list[str]:
    """Marks that a test bears and its file does not write out."""
    return sorted(set(borne) & set(MARKS) - written_in(file))
