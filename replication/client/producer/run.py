"""Records that are sent together, and how many of them a batch takes at once."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import attrs

from replication.client.producer.batch import record_size
from storage.batch.records import RecordFields


@attrs.define(eq=False)
class Run:
    """Taken from the front."""

    records: Sequence[RecordFields]
    taken: int = attrs.field(default=0, init=False)
    _sizes: list[int] = attrs.field(init=False)
    _ends: list[int] = attrs.field(init=False)
    """Of each record, the bytes of all to its end."""
    _has_keys: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sizes = [record_size(key, value, ()) for _, _, key, value, _, _ in self.records]
        self._ends = list(accumulate(self._sizes))
        self._has_keys = any(key is not None for _, _, key, _, _, _ in self.records)

    @property
    def is_done(self) -> bool:
        return self.taken == len(self.records)

    @property
    def largest(self) -> int:
        return max(self._sizes, default=0)

    @property
    def next_size(self) -> int:
        return self._sizes[self.taken]

    @property
    def next_key(self) -> bytes | None:
        _, _, key, _, _, _ = self.records[self.taken]
        return key

    def take(self, room: int) -> tuple[Sequence[RecordFields], int]:
        """The next ones that fit into `room` bytes, one at least, and what they take.

        Those with keys come one by one: each goes where its key belongs.
        """
        begin, end = self.taken, self.taken + 1
        before = self._ends[begin - 1] if begin else 0
        if not self._has_keys:
            end = max(bisect_right(self._ends, before + room, lo=begin), end)
        self.taken = end
        return self.records[begin:end], self._ends[end - 1] - before
