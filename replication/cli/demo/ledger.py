"""What became of every record: the loss ledger.

    acked and committed   the producer has its acknowledgement, and a consumer reads it back
    acked and lost        the producer has its acknowledgement, and it is missing: a failure
    never acked           the producer has no acknowledgement; it may be there or not
    duplicated            it is there more than once

Rule: a record counts as read back only if its bytes are the ones that were sent.
"""

import zlib

import attrs


@attrs.frozen
class LedgerVerdict:
    """The numbers of the ledger; some records are there although they were never acked."""

    sent: int
    acked_and_committed: int
    acked_and_lost: int
    never_acked: int
    duplicated: int
    never_acked_but_there: int


@attrs.define
class Ledger:
    """One entry for each record sent: its CRC, and what became of it, by its number."""

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
        """The number of records that are sent and not acked yet."""
        return self.sent - self.acked

    def on_send(self, value: bytes) -> int:
        """Note a record that is about to be sent; return its number."""
        self._checksums.append(zlib.crc32(value))
        self._is_acked.append(0)
        self._times_seen.append(0)
        return len(self._checksums) - 1

    def on_ack(self, number: int) -> None:
        assert not self._is_acked[number], f"record {number} was acked twice"
        self._is_acked[number] = 1
        self.acked += 1

    def on_read(self, number: int, value: bytes) -> None:
        """Note a record that a consumer has read."""
        if not 0 <= number < self.sent or zlib.crc32(value) != self._checksums[number]:
            self.altered += 1
            return
        self._times_seen[number] = min(2, self._times_seen[number] + 1)

    def verdict(self) -> LedgerVerdict:
        pairs = list(zip(self._is_acked, self._times_seen, strict=True))
        return LedgerVerdict(
            sent=self.sent,
            acked_and_committed=sum(1 for acked, seen in pairs if acked and seen),
            acked_and_lost=sum(1 for acked, seen in pairs if acked and not seen),
            never_acked=sum(1 for acked, _ in pairs if not acked),
            duplicated=sum(1 for _, seen in pairs if seen > 1),
            never_acked_but_there=sum(1 for acked, seen in pairs if seen and not acked),
        )
