"""Each worker begins elsewhere, and none leaves anything out."""

from itertools import chain
from pathlib import Path

import pytest

from tests.collecting import files_of, share_first

FILES = [Path(f"test_{name}.py") for name in "abcdefg"]


@pytest.mark.parametrize("workers", range(1, 10))
def test_every_worker_has_all_files_and_together_they_begin_with_all(workers: int) -> None:
    orders = [share_first(FILES, number, of=workers) for number in range(workers)]
    assert all(sorted(order) == FILES for order in orders)
    longest = -(-len(FILES) // workers)
    assert set(chain.from_iterable(order[:longest] for order in orders)) == set(FILES)


def test_only_what_is_asked_for_is_imported(pytestconfig: pytest.Config) -> None:
    asked = {Path(each.partition("::")[0]).resolve() for each in pytestconfig.args}
    files = files_of(pytestconfig)
    assert Path(__file__) in files
    assert all(asked & {file, *file.parents} for file in files)
