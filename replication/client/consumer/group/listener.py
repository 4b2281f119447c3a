"""What a program wants to be told when partitions come and go.

    class Mine(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions): ...    still ours: commit here
        async def on_partitions_assigned(self, partitions): ...   seek here
        async def on_partitions_lost(self, partitions): ...       others may have them already

Rule 1: they run inside the program's own call (poll, leaving the block), never beside it.

Rule 2: one that is cancelled is called again by the next poll. One that raises is not: what
it raised comes out of the poll, and the group goes on.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from storage.types import TopicPartition

Partitions: TypeAlias = Collection[TopicPartition]
Told: TypeAlias = Callable[[Partitions], Awaitable[None] | None]


class ConsumerRebalanceListener:
    """Override what is of interest; plain functions do as well as async ones."""

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """They are about to be given back, and are still ours."""
        del partitions
        return None

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """They are ours from now on; nothing of them has been fetched."""
        del partitions
        return None

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """They have not been ours for a while."""
        return self.on_partitions_revoked(partitions)


async def tell(method: Told, partitions: Partitions) -> None:
    """Call it, and wait where there is something to wait for."""
    told = method(partitions)
    if told is not None:
        await told
