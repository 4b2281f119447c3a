"""How much is tried: what `make test` has time for, or, where DEEP is set, all (`make deep`).

Every rule is tried in both, and from the same seeds; here only how often.
"""

import os
from typing import TypeVar

T = TypeVar("T")

DEEP = bool(os.environ.get("DEEP"))


def tried(quick: T, *, deep: T) -> T:
    """`quick` in `make test`, `deep` in `make deep`."""
    return deep if DEEP else quick
