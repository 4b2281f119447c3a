"""docs/museum.md: the exhibits of `scenarios.museum`, from the texts beside their switches."""

import inspect
from collections.abc import Iterator
from typing import Final

from scenarios.museum.catalogue import EXHIBITS
from scenarios.museum.exhibit import Exhibit

_HEAD: Final = """
Each exhibit is a bug that Apache Kafka had, a story in which it does its damage, and a switch that restores it.
The switch replaces one rule or function of understudy by what Kafka's code did before the fix, for the time of one run.
With its switch a story fails, in the checker or the answer that names the damage; without it the story passes.

```sh
understudy scenario museum                  # the list
understudy scenario museum KIP-101          # one story, with the bug and without it
understudy scenario museum --all            # all of them, as a table
```

`tests/scenarios/test_museum.py` runs all of them.
No run takes a second of processor time; `--all` shows the seconds that yours took.
The facts are those of Apache Kafka's commits, tickets and pull requests; the switch is as near to the former code as ours allows.

| exhibit | fixed | what happened |
|---|---|---|
"""


def museum_lines() -> Iterator[str]:
    yield from _HEAD.strip().splitlines()
    for exhibit in EXHIBITS.values():
        yield f"| [{exhibit.name}](#{exhibit.name.lower()}) | {exhibit.year} | {exhibit.title} |"
    for exhibit in EXHIBITS.values():
        yield from _section(exhibit)


def _section(exhibit: Exhibit) -> Iterator[str]:
    also = f" Also {', '.join(exhibit.also)}." if exhibit.also else ""
    switch = inspect.getdoc(exhibit.switch) or ""
    yield from (
        "",
        f"## {exhibit.name}",
        "",
        f"**{exhibit.title}.** Apache Kafka {exhibit.versions}.{also}",
        "",
        *_sentences(f"What happened: {exhibit.happened}"),
        "",
        *_sentences(f"Which rule was missing: {exhibit.missing}"),
        "",
        *_sentences(f"What fixed it: {exhibit.fixed}"),
        "",
        f"How to see it: `understudy scenario museum {exhibit.name}` runs the story `{exhibit.story}`.",
        f"The switch: {' '.join(switch.split())}",
        f"The story then fails by: `{exhibit.damage}`.",
    )


def _sentences(text: str) -> list[str]:
    """Return the sentences of `text`, a line each."""
    return text.replace(". ", ".\n").splitlines()
