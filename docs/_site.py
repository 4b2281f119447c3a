"""The parts of the site beyond the pages: contents, links between pages, docstrings as they are meant.

index.md      each heading with its list of links   ->  a part of the contents
any page      `docs/storage.md` in code quotes       ->  the same, as a link
a docstring   code quotes and indented drawings      ->  what reStructuredText has for them
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

HOME = "index"
REST = "Reference"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")
_NAMED = re.compile(r"docs/([\w/-]+)\.md")
_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note):$")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def parts_of(home: str) -> dict[str, list[str]]:
    """Return the pages that the home page lists under each of its headings."""
    texts = _HEADING.split(home)
    return {
        heading: listed
        for heading, text in zip(texts[1::2], texts[2::2], strict=True)
        if (listed := list(dict.fromkeys(_PAGE.findall(text))))
    }


def with_contents(home: str, pages: Iterable[str]) -> str:
    """Return the home page with a hidden table of contents for each of its headings."""
    parts = parts_of(home)
    listed = {page for part in parts.values() for page in part}
    parts[REST] = [*parts[REST], *sorted(set(pages) - listed - {HOME})]
    trees = (
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *part, "```", ""])
        for heading, part in parts.items()
    )
    return home + "".join(trees)


def _contents(app: Sphinx, name: str, content: list[str]) -> None:
    if name == HOME:
        content[0] = with_contents(content[0], app.env.found_docs)


class LinkPages(SphinxTransform):
    """A page that another names in code quotes is a link to it."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        for node in list(self.document.findall(nodes.literal)):
            named = _NAMED.fullmatch(node.astext())
            page = named and named[1]
            linked = isinstance(node.parent, (nodes.reference, addnodes.pending_xref))
            if page in self.env.found_docs and page != self.env.docname and not linked:
                node.replace_self(self._link(page, node))

    def _link(self, page: str, node: nodes.literal) -> addnodes.pending_xref:
        asked = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{page}"}
        link = addnodes.pending_xref(
            "", **asked, refdoc=self.env.docname, refexplicit=True, refwarn=True
        )
        link += node.deepcopy()
        return link


def as_rest(lines: Iterable[str]) -> Iterator[str]:
    """Yield a docstring as reStructuredText: drawings are literal, code quotes are doubled."""
    before, in_section, in_drawing = "", False, False
    for line in lines:
        if not line.strip():
            yield line
        elif line.startswith("  ") and not in_section:
            if not in_drawing and not before.strip():
                yield from ("::", "")
                in_drawing = True
            yield line if in_drawing else _prose(line)
        else:
            in_drawing = False
            if not line.startswith(" "):
                in_section = _SECTION.fullmatch(line) is not None
            yield line if line.startswith(".. ") else _prose(line)
        before = line


def _prose(line: str) -> str:
    """Return a line with doubled code quotes; markup outside them is escaped."""
    parts = _CODE.split(line)
    parts[::2] = [re.sub(r"(?<!^)(?<![*])([*|])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    # An escaped space, which is not shown, separates the rest of a word: `number`th.
    parts[2::2] = [re.sub(r"^(?=\w)", r"\\ ", part) for part in parts[2::2]]
    return "".join(parts)


def _docstring(
    app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = as_rest(list(lines))


def _signature(
    app: Sphinx,
    kind: str,
    name: str,
    thing: Any,
    options: Any,
    given: str | None,
    answer: str | None,
) -> tuple[str | None, str | None]:
    """Show dots for attrs' NOTHING, a default that is made for each value."""
    return given and given.replace("NOTHING", "..."), answer


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx asks for this."""
    app.connect("source-read", _contents)
    app.connect("autodoc-process-docstring", _docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    app.add_transform(LinkPages)
    # The home page changes with every page that is added.
    app.connect("env-get-outdated", lambda *_: [HOME])
    return {"version": str(Path(__file__).stat().st_mtime_ns), "parallel_read_safe": True}
