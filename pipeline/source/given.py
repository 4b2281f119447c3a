"""Options as Spark hands them over: text by names, and the readings of it that refuse by name."""

from collections.abc import Mapping
from typing import Final

import attrs

from pipeline.source.errors import OptionError

KAFKA: Final = "kafka."
_TRUTHS: Final = {"true": True, "false": False}


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options under lower-case names; their case does not matter."""
    return {name.lower(): value for name, value in given.items()}


@attrs.frozen
class GivenOptions:
    """Options as Spark hands them over: text under lower-case names."""

    values: Mapping[str, str]

    def text(self, name: str) -> str | None:
        return self.values.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUTHS:
            raise OptionError(f"option {name}: {text!r} is neither true nor false")
        return _TRUTHS[text.lower()]

    def number(self, name: str, *, default: int, at_least: int = 1) -> int:
        found = self.number_if_given(name, at_least=at_least)
        return default if found is None else found

    def number_if_given(self, name: str, *, at_least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < at_least:
            raise OptionError(f"option {name}: {text!r} is no whole number from {at_least} up")
        return int(text)

    def choice(self, name: str, *choices: str) -> str:
        text = (self.text(name) or choices[0]).lower()
        if text not in choices:
            raise OptionError(f"option {name}: {text!r} is none of {', '.join(choices)}")
        return text

    def kafka(self) -> dict[str, str]:
        return {
            name.removeprefix(KAFKA): value
            for name, value in self.values.items()
            if name.startswith(KAFKA)
        }
