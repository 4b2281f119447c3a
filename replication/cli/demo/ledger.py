"""What became of every record: the loss ledger.

    acked and committed   the producer was told so, and a consumer reads it back
    acked and lost        the producer was told so, and it is not there: what must not happen
    never acked           the producer was not told; it may or may not be there
    duplicated            it is there more than once

Rule: a record counts as there only if its bytes are the ones that were sent.
"""

import zlib

import attrs


@attrs.frozen
class Verdict:
    """The four numbers, and how many of the never acked are there all the same."""

    sent: int
    acked_and_committed: int
    acked_and_lost: int
    never_acked: int
    duplicated: int
    never_acked_but_there: int


@attrs.define
class Ledger:
    """One entry per record sent, by its number; a record is known by that number and its CRC."""

    _checksums: list[int] = attrs.field(factory=list)
    _is_acked: bytearray = attrs.field(factory=bytearray)
    _times_seen: bytearray = attrs.field(factory=bytearray)
    acked: int = 0
    altered: int = 0

    @property
    def sent(self) -> int:
        return len(self._checksums)

    @property
    def in_flight(self) -> int:
        """Sent and not yet acked."""
        return self.sent - self.acked

    def on_send(self, value: bytes) -> int:
        """Note a record about to be sent; its number."""
        self._checksums.append(zlib.crc32(value))
        self._is_acked.append(0)
        self._times_seen.append(0)
        return len(self._checksums) - 1

    def on_ack(self, number: int) -> None:
        assert not self._is_acked[number], f"record {number} was acked twice"
        self._is_acked[number] = 1
        self.acked += 1

    def on_read(self, number: int, value: bytes) -> None:
        """Note a record that a consumer was given."""
        if not 0 <= number < self.sent or zlib.crc32(value) != self._checksums[number]:
            self.altered += 1
            return
        self._times_seen[number] = min(2, self._times_seen[number] + 1)

    def verdict(self) -> Verdict:
        pairs = list(zip(self._is_acked, self._times_seen, strict=True))
        return Verdict(
            sent=self.sent,
            acked_and_committed=sum(1 for acked, seen in pairs if acked and seen),
            acked_and_lost=sum(1 for acked, seen in pairs if acked and not seen),
            never_acked=sum(1 for acked, _ in pairs if not acked),
            duplicated=sum(1 for _, seen in pairs if seen > 1),
            never_acked_but_there=sum(1 for acked, seen in pairs if seen and not acked),
        )
