"""Failover stories, and the simulator that tells them: the real brokers on virtual time.

    script  telling                  a story's text, and a world that answers it
    swarm  shrinking                 random runs, one for each seed, and the shortest that fails
    simulation/                      clock, network, disk and clients of such a world
      checkers/                      what must hold at every moment
    report/                          a run as a page

    telling = tell(read_story(find_story("S65")))
    telling.check()                  # StoryChangedError where it came out otherwise

The same seed tells the same, to the byte, on every machine. Nothing here waits in real time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.story.runner import Telling, tell
    from scenarios.story.script import (
        Script,
        ScriptError,
        StoryChangedError,
        find_story,
        parse,
        read_story,
        stories,
    )
    from scenarios.swarm.runner import SwarmRun, run_seed, run_seeds
    from scenarios.swarm.shrinking import as_script, shrink

__all__ = [
    "Script",
    "ScriptError",
    "StoryChangedError",
    "SwarmRun",
    "Telling",
    "as_script",
    "find_story",
    "parse",
    "read_story",
    "run_seed",
    "run_seeds",
    "shrink",
    "stories",
    "tell",
]

_MODULES = {
    "Script": "story.script",
    "ScriptError": "story.script",
    "StoryChangedError": "story.script",
    "SwarmRun": "swarm.runner",
    "Telling": "story.runner",
    "as_script": "swarm.shrinking",
    "find_story": "story.script",
    "parse": "story.script",
    "read_story": "story.script",
    "run_seed": "swarm.runner",
    "run_seeds": "swarm.runner",
    "shrink": "swarm.shrinking",
    "stories": "story.script",
    "tell": "story.runner",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a list of stories needs no world."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
