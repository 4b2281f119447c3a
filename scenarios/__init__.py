"""Failover stories, and the simulator that runs them: the real brokers on virtual time.

    story/       a story's text, and the run that answers it
    swarm/       random runs, one for each seed, and the shortest that fails
    world/       clock, network, disk and clients of a run
    checkers/    what must hold at every moment

    run = run_story(read_story(find_story("S65")))
    run.check()                      # StoryChangedError if the answers differ from the recorded ones

Equal seeds give equal runs, to the byte, on every machine. Nothing here waits in real time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.service import ServiceNode, Simulation, simulate
    from scenarios.story.runner import StoryRun, run_story
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
    "ServiceNode",
    "Simulation",
    "StoryChangedError",
    "StoryRun",
    "SwarmRun",
    "as_script",
    "find_story",
    "parse",
    "read_story",
    "run_seed",
    "run_seeds",
    "run_story",
    "shrink",
    "simulate",
    "stories",
]

_MODULES = {
    "ServiceNode": "service",
    "Simulation": "service",
    "simulate": "service",
    "Script": "story.script",
    "ScriptError": "story.script",
    "StoryChangedError": "story.script",
    "SwarmRun": "swarm.runner",
    "StoryRun": "story.runner",
    "as_script": "swarm.shrinking",
    "find_story": "story.script",
    "parse": "story.script",
    "read_story": "story.script",
    "run_seed": "swarm.runner",
    "run_seeds": "swarm.runner",
    "shrink": "swarm.shrinking",
    "stories": "story.script",
    "run_story": "story.runner",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a list of stories needs no world."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
