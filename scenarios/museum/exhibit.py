"""One exhibit: what happened, which rule was missing, and the switch that takes the rule out.

A switch is a function that replaces attributes of the product, through `setattr` of whatever it is
given: `Replaced` for a run of the museum, pytest's monkeypatch in a test.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeAlias

import attrs


class Replacing(Protocol):
    """Whatever replaces an attribute, and restores it later."""

    def setattr(self, target: object, name: str, value: object, /) -> None: ...


Switch: TypeAlias = Callable[[Replacing], None]


@attrs.frozen(kw_only=True)
class Exhibit:
    """One bug, and the story that shows it."""

    name: str
    """The ticket or proposal by which the bug is known."""
    title: str
    year: int
    """The year of the fix."""
    versions: str
    happened: str
    missing: str
    """The rule that was missing."""
    fixed: str
    story: str
    damage: str
    """A part of the error with which the story ends if the switch is on: the rule of a checker
    that is broken, or a line of an answer that has changed."""
    switch: Switch
    also: tuple[str, ...] = ()
    """Other tickets and proposals of the same bug."""


@attrs.frozen
class Replaced:
    """The attributes that a switch has replaced, each restored when the stack is closed."""

    stack: ExitStack

    def setattr(self, target: object, name: str, value: object, /) -> None:
        self.stack.callback(setattr, target, name, vars(target)[name])
        setattr(target, name, value)


@contextmanager
def switched_on(switch: Switch) -> Iterator[None]:
    """Let the process have the bug until the block ends."""
    with ExitStack() as stack:
        switch(Replaced(stack))
        yield
