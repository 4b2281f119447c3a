"""A log as a list of batches, and what follows from the list: the twin that a log must agree with.

    batches     [p1 e0 0-4][p2 e0 0-1][p1 e0 5-5][p2 e0 abort]
    producers   p1: epoch 0, last sequence 5    p2: epoch 0, last sequence 1, nothing open
    aborted     p2, from its first record to the marker

Everything is derived anew each time it is asked for, in the plainest way.
"""

from collections.abc import Iterator

import attrs

from storage.batch.record_batch import BatchHeader, read_header
from storage.batch.records import ControlRecordType, read_marker
from storage.types import Offset


@attrs.define
class NaiveProducer:
    """What a log must know of one; the offsets say from where on it can know it."""

    epoch: int
    last_sequence: int = -1
    last_data_offset: Offset = -1
    last_offset: Offset = -1
    open_since: Offset | None = None


@attrs.frozen
class NaiveAbort:
    producer_id: int
    first_offset: Offset
    last_offset: Offset


@attrs.define
class NaiveLog:
    batches: list[bytes] = attrs.field(factory=list)
    end: Offset = 0

    def headers(self) -> Iterator[tuple[BatchHeader, bytes]]:
        for each in self.batches:
            yield read_header(each), each

    def held(self, start: Offset) -> list[bytes]:
        """The batches that reach to `start` or further."""
        return [each for header, each in self.headers() if header.last_offset >= start]

    def took(self, each: bytes) -> None:
        self.batches.append(each)
        self.end = read_header(each).next_offset

    def cut(self, offset: Offset) -> None:
        """A batch that reaches past `offset` goes whole."""
        self.batches = [each for header, each in self.headers() if header.last_offset < offset]
        self.end = offset

    # What follows from them.

    def producers(self) -> dict[int, NaiveProducer]:
        return self._replayed()[0]

    def aborted(self) -> list[NaiveAbort]:
        return self._replayed()[1]

    def _replayed(self) -> tuple[dict[int, NaiveProducer], list[NaiveAbort]]:
        producers: dict[int, NaiveProducer] = {}
        aborted: list[NaiveAbort] = []
        for header, each in self.headers():
            if not header.has_producer:
                continue
            state = producers.get(header.producer_id)
            if state is None or state.epoch != header.producer_epoch:
                since = state.open_since if state else None
                state = NaiveProducer(header.producer_epoch, open_since=since)
                producers[header.producer_id] = state
            state.last_offset = header.base_offset
            if header.is_control:
                marker = read_marker(each)
                if marker is not None and state.open_since is not None:
                    if marker.type is ControlRecordType.ABORT:
                        ended = NaiveAbort(header.producer_id, state.open_since, header.base_offset)
                        aborted.append(ended)
                    state.open_since = None
            else:
                state.last_sequence, state.last_data_offset = (
                    header.last_sequence,
                    header.base_offset,
                )
                if header.is_transactional and state.open_since is None:
                    state.open_since = header.base_offset
        return producers, aborted
