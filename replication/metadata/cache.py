"""The newest metadata image at this broker, and waiting for a newer one."""

from collections.abc import Callable

import attrs
import trio

from replication.metadata.rules.image import MetadataImage
from replication.net.seams import NodeClock
from storage.attributes import define

CATCH_UP_MS = 500


@define(eq=False, repr=False)
class MetadataCache:
    """The image that the metadata follower last applied."""

    clock: NodeClock
    image: MetadataImage = attrs.field(factory=MetadataImage)
    fetched: "MetadataCache | None" = None
    """The cache of the newest image that was fetched; the broker acts on it before it is shown."""
    kraft_version: int = 0
    """The level of `kraft.version`, which stands in control records and so in no image."""
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def publish(self, image: MetadataImage) -> None:
        """Show `image`, and wake the tasks that wait for a newer one."""
        self.image = image
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, predicate: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Return the first image, from now on, for which `predicate` holds."""
        while not predicate(self.image):
            await self._changed.wait()
        return self.image

    async def wait_for_change(self, known: MetadataImage) -> MetadataImage:
        """Wait until there is another image than `known`, and return the newest."""
        return await self.wait_for(lambda image: image is not known)

    async def catch_up(self) -> None:
        """Wait until the newest fetched image is shown here, for `CATCH_UP_MS` at most."""
        if self.fetched is not None:
            end = self.fetched.image.offset
            await self.wait_at_most(lambda image: image.offset >= end, timeout_ms=CATCH_UP_MS)

    async def wait_at_most(
        self, predicate: Callable[[MetadataImage], bool], *, timeout_ms: int
    ) -> bool:
        """Wait until `predicate` holds, `timeout_ms` at most; return whether it holds."""
        if predicate(self.image):
            return True
        with self.clock.move_on_after(timeout_ms / 1000):
            await self.wait_for(predicate)
        return predicate(self.image)
