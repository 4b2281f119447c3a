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
    from scenarios.script import (
        Script,
        ScriptError,
        StoryChangedError,
        find_story,
        parse,
        read_story,
        stories,
    )
    from scenarios.shrinking import as_script, shrink
    from scenarios.swarm import SwarmRun, run_seed, run_seeds
    from scenarios.telling import Telling, tell

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
    "Script": "script",
    "ScriptError": "script",
    "StoryChangedError": "script",
    "SwarmRun": "swarm",
    "Telling": "telling",
    "as_script": "shrinking",
    "find_story": "script",
    "parse": "script",
    "read_story": "script",
    "run_seed": "swarm",
    "run_seeds": "swarm",
    "shrink": "shrinking",
    "stories": "script",
    "tell": "telling",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a list of stories needs no world."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
