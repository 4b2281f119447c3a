"""The verdict at the top of every page, and the style that every page has.

    PageVerdict  one line: what happened, is anything lost, is anything wrong now
    base_style   `base.css`: the colours of light and dark, the verdict
    legend       `legend.html`: what the words and colours of drawn logs mean
    drawing      `drawing.js`: the functions that pages draw with

    good      nothing is lost, and nothing is wrong
    warning   something happened that is not over, or is not certain
    bad       committed records are lost, or something is wrong now

Rule 1: a level is a word and a colour. Its word begins the line, for readers who see no colour.

Rule 2: internal topics are Kafka's own, and hide what users ask about. A page and a text fold them
away unless they are requested, and say that they did; losses are counted with them.
"""

import enum
from importlib.resources import files

from replication.observe.cluster_state import INTERNAL_PREFIX
from storage.attributes import frozen


class Level(enum.StrEnum):
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


WORDS = {Level.GOOD: "All is well", Level.WARNING: "Look here", Level.BAD: "Something is wrong"}


@frozen
class PageVerdict:
    """The line that a page, and a command that writes one, begins with."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{WORDS[self.level]}: {self.text}"


def base_style() -> str:
    return _file("base.css")


def legend() -> str:
    """Return what the words and colours of drawn logs mean, as terms of a list."""
    return _file("legend.html")


def drawing_script() -> str:
    """Return the functions that pages draw with."""
    return _file("drawing.js")


def _file(name: str) -> str:
    # On a cluster of Spark, this package is in a zip.
    return files("replication.observe").joinpath(name).read_text(encoding="utf-8")


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 partition", "2,000 partitions"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def folded_note(number: int) -> str:
    """Return the sentence that says how many partitions of internal topics are folded away."""
    return f"Not shown: {counted(number, 'partition')} of internal topics (--internal shows them)."
