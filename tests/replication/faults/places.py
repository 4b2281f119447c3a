"""The places where fault rules are applied: our own brokers, and a proxy in front of them.

Both run the same tests, because the same code carries the rules out.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from replication.faults.node_faults import Faults
from replication.proxy import Proxy, open_proxy
from scenarios.world.client import StoryClient
from scenarios.world.world import World
from tests.replication.broker.stage import played
from tests.replication.client.scene import Scene, scene

PROXY, PORT = "proxy", 9092


class ProxiedScene(Scene):
    """Brokers, and clients that know only a proxy in front of them."""

    def __init__(self, inner: Scene, proxy: Proxy) -> None:
        seams = inner.world.node("client")
        bootstrap = [(PROXY, PORT)]
        client = StoryClient(name="client", seams=seams, bootstrap=bootstrap)
        super().__init__(inner.world, inner.cluster, client)
        self.proxy = proxy

    @property
    def bootstrap_servers(self) -> list[str]:
        return [f"{PROXY}:{PORT}"]

    @property
    def faults(self) -> Faults:
        return self.proxy.faults


@asynccontextmanager
async def proxied_scene(world: World, **how: Any) -> AsyncIterator[ProxiedScene]:
    async with (
        scene(world, **how) as inner,
        open_proxy(
            "b1:9092",
            port=PORT,
            host=PROXY,
            seams=world.node(PROXY),
            sink=world.sink(PROXY),
        ) as proxy,
    ):
        yield ProxiedScene(inner, proxy)


SCENES = {"at the brokers": scene, "at a proxy": proxied_scene}


def at_each_place(
    **how: Any,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Turn a story of a `Scene` into tests, one for each place where rules are applied."""

    def decorate(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(story)

        @wraps(story)
        async def within(world: World, **given: Any) -> None:
            async with SCENES[given.pop("place")](world, **how) as opened:
                await story(opened, **given)

        _, *others = signature.parameters.values()
        place = inspect.Parameter("place", inspect.Parameter.KEYWORD_ONLY)
        vars(within)["__signature__"] = signature.replace(parameters=[*others, place])
        test: Callable[..., None] = played(within)
        of_places: Callable[..., None] = pytest.mark.parametrize("place", list(SCENES))(test)
        return of_places

    return decorate
