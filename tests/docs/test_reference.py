"""The API reference: every public name is in it, with a docstring, and so is whatever it shows.

The pages are `docs/api-*.md`; Sphinx takes the rest from the code. What has no docstring it leaves
out without a word, so that is looked for here.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("api-*.md"))
CLIENT = "replication.client"
PUBLIC = (
    *("storage", "replication", "replication.testing", "scenarios", "pipeline"),
    *(CLIENT, f"{CLIENT}.admin", f"{CLIENT}.consumer", f"{CLIENT}.producer"),
)
_LINE = re.compile(r"\.\. (\w+):: ([\w.]+)|   :([\w-]+):")


@attrs.define
class Entry:
    """A name that a page shows, with the options that follow it."""

    module: str
    name: str
    options: set[str] = attrs.field(factory=set)

    def value(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)


def entries(page: Path) -> Iterator[Entry]:
    module = ""
    entry = None
    for kind, name, option in _LINE.findall(page.read_text()):
        if kind == "currentmodule":
            module = name
        elif kind:
            if entry is not None:
                yield entry
            entry = Entry(module, name)
        elif entry is not None:
            entry.options.add(option)
    assert entry is not None, f"{page.name} shows nothing"
    yield entry


def members(entry: Entry) -> Iterator[str]:
    """Return the public functions and properties of a class that the reference shows."""
    shown = entry.value()
    if "members" not in entry.options:
        return
    every = dir(shown) if "inherited-members" in entry.options else vars(shown)
    for name in every:
        value = inspect.getattr_static(shown, name)
        code = isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value)
        if not name.startswith("_") and code:
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_whatever_the_reference_shows_has_a_docstring(page: Path) -> None:
    if page.stem == "api-pipeline":
        pytest.importorskip("pyspark")
    silent = [entry.name for entry in entries(page) if not inspect.getdoc(entry.value())]
    silent += [
        f"{entry.name}.{name}"
        for entry in entries(page)
        for name in members(entry)
        if not inspect.getdoc(inspect.getattr_static(entry.value(), name))
    ]
    assert silent == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    shown = [entry for page in PAGES for entry in entries(page)]
    names = {entry.name for entry in shown}
    public = importlib.import_module(module)
    assert public.__all__
    assert set(public.__all__) - names == set()
    for entry in shown:
        if entry.module == module:
            assert entry.name in public.__all__
