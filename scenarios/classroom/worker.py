"""The process in which a story of the page runs: a request on stdin, its result on stdout, as JSON.

    {"want": "list"}                                          the stories and the exhibits
    {"want": "run", "text": "...", "seed": 7, "bug": "KIP-101"}     a run

A run has the limits of `limits.py`. A story that exceeds one ends with a line that says so, as any
mistake in it does.

The process looks at its memory by itself, and ends when it has too much. Below the system's own
limit (RLIMIT_AS) any allocation raises MemoryError, also between the end of a wait and the wake-up
of its task: a wake-up was lost so, and the run waited for ever. That limit is twice as high, for
what a single allocation asks.
"""

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from replication.observe.served_metrics import resident_bytes
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

LOOK_SECONDS: Final = 0.05
"""The processor time between two looks at the memory."""


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    os.nice(10)  # the brokers come first
    with limit_memory(MOST_MEMORY_BYTES):
        answer = json.dumps(answer_of(request), separators=(",", ":"))
    sys.stdout.write(answer)


@contextlib.contextmanager
def limit_memory(most_bytes: int) -> Iterator[None]:
    """End the process with an answer that says so once it has more than so many bytes in memory."""

    def look(*_: object) -> None:
        if resident_bytes() > most_bytes:
            os.write(sys.stdout.fileno(), json.dumps(too_much_memory(most_bytes)).encode())
            os._exit(0)

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_AS, (2 * most_bytes, hard))
    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def too_much_memory(most_bytes: int) -> Mapping[str, Any]:
    """Return the answer of a run that has ended for its memory."""
    message = f"the story needs more memory than the {most_bytes >> 20} MiB that a run may have"
    return {"commands": [], "differs": False, "wrong": {"line": None, "message": message}}


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
    except Exception as raised:  # noqa: BLE001 - whatever ended the story is its result
        error = raised
    return lesson_of(script, recording, error)


def _parsed(text: str) -> Script:
    script = parse(text)
    if not script.steps:
        raise ScriptError("the story has no command")
    return script
