"""The tests that `make test` has no time for: they bear the marker `deep`, and `make deep` runs them.

`make deep` also gives every property of Hypothesis more examples (the profile `deep` in
`tests/conftest.py`).
"""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Return `values` as parameters of a test, of which all but every `count`th are `deep`."""
    return [
        value if number % count == 0 else pytest.param(value, marks=pytest.mark.deep)
        for number, value in enumerate(values)
    ]
