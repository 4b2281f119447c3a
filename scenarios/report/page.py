"""The page: a template, its style and its script, and the scene as JSON within it.

Nothing is loaded from anywhere, so the file can be mailed, and opened years from now.
"""

import html
import json
from importlib.resources import files

import attrs

from scenarios.report.scene import Scene


def page(scene: Scene) -> str:
    """One self-contained HTML page."""
    parts = files("scenarios.report")
    template = parts.joinpath("page.html").read_text(encoding="utf-8")
    return (
        template.replace("{{title}}", html.escape(scene.title))
        .replace("{{style}}", parts.joinpath("page.css").read_text(encoding="utf-8"))
        .replace("{{scene}}", _as_json(scene))
        .replace("{{script}}", parts.joinpath("page.js").read_text(encoding="utf-8"))
    )


def _as_json(scene: Scene) -> str:
    """Fit for a script element, which nothing inside it may end."""
    text = json.dumps(attrs.asdict(scene, recurse=False), separators=(",", ":"))
    return text.replace("<", "\\u003c")
