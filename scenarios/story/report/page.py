"""The page: a template, its style and its script, with the scene as JSON in it.

It loads nothing, so the file can be mailed, and opened years from now.
"""

import html
import json
import re
from importlib.resources import files

import attrs

from scenarios.story.report.scene import Scene

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(scene: Scene) -> str:
    """Return a scene as one self-contained HTML page."""
    template, style, script = map(_file, ("page.html", "page.css", "page.js"))
    parts = {
        "title": html.escape(scene.title),
        "style": style,
        "scene": _as_json(scene),
        "script": script,
    }
    # In one pass: a story's own words, once inserted, are not searched for places.
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _file(name: str) -> str:
    return files("scenarios.story.report").joinpath(name).read_text(encoding="utf-8")


def _as_json(scene: Scene) -> str:
    """Return a scene as JSON that cannot end the script element around it."""
    text = json.dumps(attrs.asdict(scene, recurse=False), separators=(",", ":"))
    return text.replace("<", "\\u003c")
