"""The tests that `make test` has no time for: they bear the marker `deep`, and `make deep` runs them.

`make deep` also gives every property of Hypothesis more examples (the profile `deep` in
`tests/conftest.py`).
"""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Return `values` as parameters of a test, of which all but every `count`th are `deep`.

    A tuple has a value for each name of the parameters.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[pytest.mark.deep] if number % count else [],
        )
        for number, value in enumerate(values)
    ]
