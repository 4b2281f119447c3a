"""The ledger of the demo: it counts what became of every record, and believes only the bytes."""

import pytest

from replication.cli.demo_workload import Ledger, LedgerVerdict


def verdict(sent: int = 2, **others: int) -> LedgerVerdict:
    names = ["acked_and_committed", "acked_and_lost", "never_acked", "duplicated"]
    return LedgerVerdict(
        **{"sent": sent, **dict.fromkeys([*names, "never_acked_but_there"], 0), **others}
    )


@pytest.mark.parametrize(
    ("acked", "read", "expected"),
    [
        pytest.param(
            [0, 1], [(0, b"0"), (1, b"1")], verdict(acked_and_committed=2), id="acked and read"
        ),
        pytest.param(
            [0, 1],
            [(0, b"0")],
            verdict(acked_and_committed=1, acked_and_lost=1),
            id="acked and missing",
        ),
        pytest.param(
            [], [(0, b"0")], verdict(never_acked=2, never_acked_but_there=1), id="never acked"
        ),
        pytest.param(
            [0, 1],
            [(0, b"0")] * 300 + [(1, b"1")],
            verdict(acked_and_committed=2, duplicated=1),
            id="read several times",
        ),
        pytest.param(
            [0, 1], [(0, b"x"), (7, b"0")], verdict(acked_and_lost=2), id="read with other bytes"
        ),
    ],
)
def test_the_verdict_on_two_records(
    acked: list[int], read: list[tuple[int, bytes]], expected: LedgerVerdict
) -> None:
    ledger = Ledger()
    for value in (b"0", b"1"):
        ledger.on_send(value)
    for number in acked:
        ledger.on_ack(number)
    assert ledger.in_flight == 2 - len(acked)
    for number, value in read:
        ledger.on_read(number, value)
    assert ledger.verdict() == expected
    assert ledger.altered == sum(value != b"%d" % number for number, value in read)
