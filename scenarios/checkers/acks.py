"""Rules about the responses that clients receive, at the moment of the response.

I10   a batch is acknowledged with acks=all only once it is committed
I11   a consumer receives only committed records

Neither is checked for a partition that may have lost records (`contract`). These rules compare
offsets; payloads are compared in the end (`scenarios.story.commands.judge`).
"""

from collections.abc import Iterator
from typing import Protocol

from scenarios.checkers.violation import Wrong
from storage.types import Offset, TopicPartition

ACKED_EARLY = "acks=all is answered once it is committed"
SHOWN_EARLY = "consumers receive only what is committed"


class Rule(Protocol):
    """A rule about a batch or records that end at offset `end`."""

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
