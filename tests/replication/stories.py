"""Tests that are played in a simulated world, on virtual time.

    @played(staged, brokers=3)
    async def test_a_leader_is_elected(stage: Stage) -> None: ...

The test gets what the scene opens, as its first argument, and `world` if it names that. Without a
scene it gets the world alone. Other arguments are pytest's.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, TypeAlias

from scenarios.world.world import World

Scene: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
Test: TypeAlias = Callable[..., Awaitable[None]]


def played(
    scene: Scene | None = None, /, *, seed: int = 1, **how: Any
) -> Callable[[Test], Callable[..., None]]:
    """Play a test in a world of `seed`, inside `scene(world, **how)`."""

    def decorate(test: Test) -> Callable[..., None]:
        signature = inspect.signature(test)
        parameters = list(signature.parameters.values())
        given_by_us = 0 if scene is None else 1
        asks_for_world = "world" in signature.parameters

        @wraps(test)
        def play(**arguments: Any) -> None:
            async def story(world: World) -> None:
                if asks_for_world:
                    arguments["world"] = world
                if scene is None:
                    await test(**arguments)
                    return
                async with scene(world, **how) as opened:
                    await test(opened, **arguments)

            World(seed=seed).run(story)

        del play.__dict__["__wrapped__"]
        visible = [each for each in parameters[given_by_us:] if each.name != "world"]
        play.__dict__["__signature__"] = signature.replace(parameters=visible)
        return play

    return decorate
