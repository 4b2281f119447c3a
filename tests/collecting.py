"""What several workers do once instead of each: rewriting the asserts of files.

Where nothing is compiled yet, most of a collection is pytest's rewriting. xdist's workers collect
side by side, the same files in the same order, so each would rewrite all of them. But what one has
rewritten it writes down, and who comes later reads it. So each worker imports what it will collect
from a place of its own on, round to where it began:

    gw0   a b c d e f        of which a b c are rewritten here
    gw1   d e f a b c        of which d e f are
"""

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from tests.marked import may_match, written_in


def import_from_a_place_of_its_own(config: pytest.Config) -> None:
    """In one of xdist's workers; elsewhere nothing is imported before it is collected."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    for file in share_first(files_of(config), number, of=worker["workercount"]):
        module = file.relative_to(config.rootpath).with_suffix("")
        # What fails or is skipped here is imported again, and told, when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(module.parts))


def files_of(config: pytest.Config) -> list[Path]:
    """Those with tests, of what was asked for."""
    asked = [Path(each.partition("::")[0]).resolve() for each in config.args]
    files = [[path] if path.is_file() else sorted(path.rglob("test_*.py")) for path in asked]
    markexpr = config.getoption("markexpr")
    return [file for file in chain.from_iterable(files) if may_match(markexpr, written_in(file))]


def share_first(files: Sequence[Path], number: int, *, of: int) -> list[Path]:
    """All of them, beginning where this worker's share begins."""
    first = len(files) * number // of
    return [*files[first:], *files[:first]]
