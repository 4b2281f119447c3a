"""A broken rule, and the error that ends the run for it."""

import attrs


@attrs.frozen
class Wrong:
    """A rule that does not hold."""

    rule: str
    """The rule: the same text for every way in which it can be broken."""
    what: str


@attrs.define(eq=False)
class InvariantViolatedError(AssertionError):
    """Something that must never happen has happened: a bug of ours, whatever the story."""

    rule: str
    what: str

    def __str__(self) -> str:
        return self.what
