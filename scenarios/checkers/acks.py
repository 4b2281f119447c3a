"""Rules about what clients are told, as they are told it.

I10   who is told with acks=all that a batch is written is told so once it is committed
I11   what a consumer is given is committed

Where a partition is let off, neither is asked. The payloads are compared in the end
(`scenarios.story.commands.judge`): here are only offsets.
"""

from collections.abc import Iterator
from typing import Protocol

from scenarios.checkers.violation import Wrong
from storage.types import Offset, TopicPartition

ACKED_EARLY = "acks=all is answered once it is committed"
SHOWN_EARLY = "consumers are given what is committed"


class Rule(Protocol):
    """Of what ends at `end`."""

    def __call__(
        self, partition: TopicPartition, *, end: Offset, committed_end: Offset
    ) -> Iterator[Wrong]: ...


def acked(partition: TopicPartition, *, end: Offset, committed_end: Offset) -> Iterator[Wrong]:
    if end > committed_end:
        yield Wrong(
            ACKED_EARLY,
            f"{partition} was acked with acks=all up to {end}, and up to {committed_end} was"
            " committed",
        )


def given(partition: TopicPartition, *, end: Offset, committed_end: Offset) -> Iterator[Wrong]:
    if end > committed_end:
        yield Wrong(
            SHOWN_EARLY,
            f"a consumer of {partition} was given records up to {end}, and up to {committed_end}"
            " was committed",
        )
