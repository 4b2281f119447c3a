r"""A scene as one HTML page, and in the form that ShiViz reads.

The page is a template, its style and its script, with the scene as JSON in it. It loads nothing, so
the file can be mailed, and opened years from now.

ShiViz reads the messages of a run with a vector clock for each line:

    b1 {"b1":3, "c":7}
    LeaderElected: b1 leads t-0 in epoch 0 ...

A node's clock counts its own lines; a message carries the clock of its sender, and its receiver
has then seen all that the sender had. ShiViz draws the same space-time diagram from
that, and compares two runs. Read it there with the expression

    (?<host>\S+) (?<clock>{.*})\n(?<event>.*)
"""

import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files

import attrs

from replication.observe.pages import base_style, drawing_script, legend
from scenarios.story.report.scene import IDLE, Scene

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(scene: Scene) -> str:
    """Return a scene as one self-contained HTML page."""
    parts = {
        "title": html.escape(scene.title),
        "style": base_style() + _file("drawing.css") + _file("page.css"),
        "scene": _as_json(scene),
        "legend": legend(),
        "script": drawing_script() + _file("drawing.js") + _file("page.js"),
    }
    # In one pass: a story's own words, once inserted, are not searched for places.
    return _PLACE.sub(lambda place: parts[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _as_json(scene: Scene) -> str:
    """Return a scene as JSON that cannot end the script element around it."""
    text = json.dumps(attrs.asdict(scene, recurse=False), separators=(",", ":"))
    return text.replace("<", "\\u003c")


PARSER = r"(?<host>\S+) (?<clock>{.*})\n(?<event>.*)"


def to_shiviz(scene: Scene, *, idle: bool = False) -> str:
    """Return the whole file; with empty fetches and heartbeats only if `idle`."""
    clocks: dict[str, dict[str, int]] = {lane: {lane: 0} for lane in scene.lanes}
    carried: dict[int, dict[str, int]] = {}
    lines = [PARSER, ""]
    for _, _, lane, what, sends, receives in sorted(_happenings(scene, idle=idle)):
        clock = clocks[lane]
        for other, count in carried.get(receives, {}).items():
            clock[other] = max(clock.get(other, 0), count)
        clock[lane] += 1
        if sends >= 0:
            carried[sends] = dict(clock)
        lines += [f"{lane} {json.dumps(clock)}", what]
    return "\n".join(lines) + "\n"


def _happenings(scene: Scene, *, idle: bool) -> Iterator[tuple[float, int, str, str, int, int]]:
    """Yield the time, the order within it, the lane and the text of each line, and the number of
    the message that it sends and of the one that it receives, or -1.
    """
    order = 0
    for mark in scene.marks:
        order += 1
        if mark["lane"] in scene.lanes:
            yield (
                mark["at"],
                order,
                mark["lane"],
                f"{mark['name']}: {mark['why']}",
                -1,
                -1,
            )
    for number, arrow in enumerate(scene.arrows):
        if arrow["kind"] == IDLE and not idle:
            continue
        order += 1
        said = f"{arrow['api']} {arrow['says']}".strip()
        source, target = arrow["from"], arrow["to"]
        yield arrow["sent"], order, source, f"to {target}: {said}", number, -1
        if arrow["there"] is not None:
            yield arrow["there"], order, target, f"from {source}: {said}", -1, number
