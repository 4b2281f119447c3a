"""Checks of the groups and copies of our clients (`Witness`) against the records in the end.

What each reader received, and what became of transactions, `anomalies` judges.

    passed over     no member of a group received a record before one that a member received
    too far         a group committed an offset past a record that no member received
    forgotten       a member began before an offset whose commit was acknowledged to its group
    unread          in the end no member of a group has received a record

    with a failure  a transaction was acknowledged as committed although a record of it had failed

    not copied      a record is not in the copy
    copied out of order, copied from nowhere

Rule 1: each check is a function of what happened with one partition, or one copy, and of the
records in the end. It yields one line for each mistake.

Rule 2: only records that exist in the end are required: a reader may have received or missed
what was deleted or compacted away. The same holds for what was deleted and came back after a
kill; `FinalRecords` does not contain it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from scenarios.world.clients.copying import copied
from scenarios.world.clients.witness import (
    Began,
    Committed,
    Ending,
    Given,
    Happening,
    Lost,
    WitnessedTransaction,
)
from storage.types import Offset


@attrs.frozen(kw_only=True)
class FinalRecords:
    """A partition's records in the end."""

    all: Mapping[Offset, str]
    committed: Mapping[Offset, str]
    """`all` without the records of aborted transactions."""

    def visible(self, *, read_committed: bool) -> Mapping[Offset, str]:
        return self.committed if read_committed else self.all


def _groups(happened: Sequence[Happening]) -> dict[str, list[Happening]]:
    """Return what happened to each group, in order; a reader without a group is left out."""
    group_of: dict[str, str | None] = {}
    groups: dict[str, list[Happening]] = {}
    for each in happened:
        if isinstance(each, Began):
            group_of[each.reader] = each.group
        group = each.group if isinstance(each, Committed) else group_of.get(each.reader)
        if group is not None:
            groups.setdefault(group, []).append(each)
    return groups


def _visible_to(happened: Sequence[Happening], there: FinalRecords) -> list[Offset]:
    """Return the offsets that the members of one group can see; all see the same."""
    kinds = {each.read_committed for each in happened if isinstance(each, Began)}
    return sorted(there.visible(read_committed=kinds == {True}))


def passed_over(happened: Sequence[Happening], there: FinalRecords) -> Iterator[str]:
    for group, events in _groups(happened).items():
        waiting, handed = _visible_to(events, there), set[Offset]()
        for each in events:
            if not isinstance(each, Given):
                continue
            handed.add(each.offset)
            while waiting and waiting[0] <= each.offset:
                if waiting[0] not in handed:
                    yield f"{each.reader} of {group} was handed {each.offset}, nobody {waiting[0]}"
                waiting.pop(0)


def too_far(happened: Sequence[Happening], there: FinalRecords) -> Iterator[str]:
    for group, events in _groups(happened).items():
        visible, handed = _visible_to(events, there), set[Offset]()
        for each in events:
            if isinstance(each, Given):
                handed.add(each.offset)
            elif isinstance(each, Committed):
                for offset in visible:
                    if offset < each.offset and offset not in handed:
                        yield f"{group} has committed {each.offset}, nobody was handed {offset}"


def forgotten(happened: Sequence[Happening], _: FinalRecords) -> Iterator[str]:
    for group, events in _groups(happened).items():
        committed: Offset = 0
        begins_at: dict[str, Offset] = {}
        for each in events:
            match each:
                case Committed(offset=offset):
                    committed = max(committed, offset)
                case Began(reader=reader):
                    begins_at[reader] = committed
                case Given(reader=reader, offset=offset):
                    if offset < (least := begins_at.pop(reader, 0)):
                        yield f"{reader} of {group} began at {offset}, where {least} was committed"
                case Lost():
                    pass


def unread(
    happened: Sequence[Happening], visible: Mapping[Offset, str], group: str
) -> Iterator[str]:
    """Yield the visible records that a group which stayed to the end has not received."""
    events = _groups(happened).get(group, [])
    handed = {each.offset for each in events if isinstance(each, Given)}
    for offset, value in sorted(visible.items()):
        if offset not in handed:
            yield f"unread: {value} at {offset} by {group}"


CHECKS: tuple[Callable[[Sequence[Happening], FinalRecords], Iterator[str]], ...] = (
    passed_over,
    too_far,
    forgotten,
)


def mistakes_about_groups(happened: Sequence[Happening], there: FinalRecords) -> list[str]:
    """Return the mistakes about groups, each with the name of its check."""
    return [
        f"{check.__name__.replace('_', ' ')}: {found}"
        for check in CHECKS
        for found in check(happened, there)
    ]


# Transactions.


def with_a_failure(transaction: WitnessedTransaction) -> Iterator[str]:
    if transaction.ending is Ending.COMMITTED and transaction.failed:
        values = " ".join(value for batch in transaction.batches for value in batch.values)
        failed = " ".join(transaction.failed)
        yield f"with a failure: {transaction.producer}'s {values}: {failed}"


# Copies.


def mistakes_about_copy(
    source: Mapping[str, Sequence[str]],
    sent: Collection[str],
    copy: Sequence[str],
    *,
    repeated: Collection[str] = (),
) -> Iterator[str]:
    """Return the mistakes of a copy; `source` has the records to copy, in order, by partition."""
    often = {copied(value) for value in repeated}
    for nowhere in sorted(set(copy) - {copied(value) for value in sent}):
        yield f"copied from nowhere: {nowhere}"
    at = {value: place for place, value in reversed(list(enumerate(copy)))}
    for partition, values in source.items():
        for value in values:
            if copied(value) not in at:
                yield f"not copied: {value} of {partition}"
        once = [value for value in values if copied(value) in at.keys() - often]
        places = [(at[copied(value)], value) for value in once]
        for (before, first), (after, second) in pairwise(places):
            if after < before:
                yield f"copied out of order: {second} before {first}, of {partition}"
