"""Dictionaries that are walked at every round, and may have been much larger.

CPython keeps the place of what was removed, and walks over it: a dictionary of 100,000 that is
empty again takes longer to walk than everything else in an idle round. Whoever walks one asks
for it without holes first, which costs nothing while it has few.
"""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

FEW = 64


def without_holes(items: dict[Key, Value], most: int) -> tuple[dict[Key, Value], int]:
    """`items`, written anew where most of its places are empty, and the most it has held since;
    `most`: what this gave last time.
    """
    most = max(most, len(items))
    if most <= FEW or 4 * len(items) >= most:
        return items, most
    return {key: items[key] for key in items}, len(items)
