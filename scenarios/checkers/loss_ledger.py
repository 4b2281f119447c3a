"""The loss ledger of a story: what the producer was promised, against what consumers read.

    acked and committed    the value was acknowledged, and a consumer reads it
    acked and lost         the value was acknowledged, and no consumer ever reads it
    never acked            the value was refused, or had no answer: it may be there or not
    duplicated             there more than once

Loss is counted, not judged: acks=1 promises no more than that the leader has it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from scenarios.world.client import ReadRecord, SentRecords

MANY = 20
"""More are not all named."""


@attrs.frozen
class LossLedger:
    """Values, in the order in which they were sent."""

    acked_and_committed: tuple[str, ...]
    acked_and_lost: tuple[str, ...]
    never_acked: tuple[str, ...]
    never_acked_but_there: tuple[str, ...]
    duplicated: tuple[str, ...]

    def lines(self) -> list[str]:
        lines = [
            _line("acked and committed", self.acked_and_committed),
            _line("acked and lost", self.acked_and_lost),
            _line("never acked", self.never_acked),
        ]
        if self.never_acked_but_there:
            lines.append(_line("of these there", self.never_acked_but_there))
        lines.append(_line("duplicated", self.duplicated))
        return lines


def _line(label: str, values: Sequence[str]) -> str:
    shown = values if len(values) <= MANY else (*values[:2], "...", values[-1])
    return f"{label:<20} {len(values)}" + (f"  {' '.join(shown)}" if values else "")


def loss_ledger(batches: Iterable[SentRecords], there: Iterable[ReadRecord]) -> LossLedger:
    """Account for every value that was sent; each value is sent once."""
    times = Counter(record.value for record in there)
    acked: list[str] = []
    never: list[str] = []
    for batch in batches:
        (acked if batch.acked else never).extend(batch.values)
    assert len({*acked, *never}) == len(acked) + len(never), "no value is sent twice"
    assert times.keys() <= {*acked, *never}, "nothing is read that was not sent"
    return LossLedger(
        acked_and_committed=tuple(value for value in acked if times[value]),
        acked_and_lost=tuple(value for value in acked if not times[value]),
        never_acked=tuple(never),
        never_acked_but_there=tuple(value for value in never if times[value]),
        duplicated=tuple(value for value in (*acked, *never) if times[value] > 1),
    )
