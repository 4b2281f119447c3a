"""The process in which a story of the page runs: a request on stdin, its result on stdout, as JSON.

    {"want": "list"}                                          the stories and the exhibits
    {"want": "run", "text": "...", "seed": 7, "bug": "KIP-101"}     a run

A story that exceeds them ends with
a line that says so, as any mistake in it does.
"""

import contextlib
import json
import os
import resource
import sys
from collections.abc import Mapping
from typing import Any, Final

from scenarios.classroom.lesson import lesson_of
from scenarios.classroom.limits import (
    LONGEST_VIRTUAL_SECONDS,
    MOST_CPU_SECONDS,
    MOST_MEMORY_BYTES,
)
from scenarios.museum.catalogue import EXHIBITS, find_exhibit
from scenarios.museum.exhibit import switched_on
from scenarios.story.catalogue import GROUPS, TO_START_WITH, group_of
from scenarios.story.report import Recording
from scenarios.story.runner import run_story
from scenarios.story.script import Script, ScriptError, parse, read_story, stories
from scenarios.world.endless import limit_cpu_time

OUT_OF_MEMORY: Final = {
    "commands": [],
    "differs": False,
    "wrong": {
        "line": None,
        "message": f"the story needs more memory than the {MOST_MEMORY_BYTES >> 20} MiB that a run may have",
    },
}


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    os.nice(10)  # the brokers come first
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, hard))
    try:
        answer = json.dumps(answer_of(request), separators=(",", ":"))
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        answer = json.dumps(OUT_OF_MEMORY)
    sys.stdout.write(answer)


def answer_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if request["want"] == "list":
        return catalogue()
    return run(request["text"], seed=request["seed"], bug=request["bug"])


def catalogue() -> Mapping[str, Any]:
    """Return all stories, in the order of their groups, and the exhibits of the museum."""
    order = list(GROUPS.values())
    found = [
        {
            "name": name,
            "title": story.title,
            "group": group_of(story),
            "shows": story.shows,
            "to_start_with": name in TO_START_WITH,
        }
        for name, story in ((name, read_story(path)) for name, path in stories().items())
    ]
    exhibits = [
        {"name": each.name, "title": each.title, "year": each.year, "story": each.story}
        for each in EXHIBITS.values()
    ]
    return {
        "stories": sorted(found, key=lambda each: order.index(str(each["group"]))),
        "exhibits": exhibits,
    }


def run(text: str, *, seed: int | None, bug: str | None) -> Mapping[str, Any]:
    """Return the run of a story, whatever ends it; with the bug of an exhibit, if one is named."""
    recording = Recording()
    script = Script(())
    error: BaseException | None = None
    try:
        script = _parsed(text)
        with contextlib.ExitStack() as stack:
            if bug is not None:
                stack.enter_context(switched_on(find_exhibit(bug).switch))
            with limit_cpu_time(MOST_CPU_SECONDS):
                run_story(script, seed=seed, recording=recording, limit=LONGEST_VIRTUAL_SECONDS)
    except Exception as raised:
        if _ran_out_of_memory(raised):
            raise MemoryError from raised
        error = raised  # whatever ended the story is its result
    return lesson_of(script, recording, error)


def _parsed(text: str) -> Script:
    script = parse(text)
    if not script.steps:
        raise ScriptError("the story has no command")
    return script


def _ran_out_of_memory(error: BaseException | None) -> bool:
    """Return whether a MemoryError is behind `error`, in a task of a group or as its cause."""
    if error is None or isinstance(error, MemoryError):
        return error is not None
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return any(map(_ran_out_of_memory, (*inside, error.__cause__)))
