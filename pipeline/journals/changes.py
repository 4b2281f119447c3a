"""Every election and truncation of a partition with its cause: values and functions.

    10:00:07.031  b100  b2 leads t-0 in epoch 1 after b1, isr b2 b3: b1 is fenced; the first ...
    10:00:15.200  b1    truncates t-0 from 5 to 3 in leader epoch 1: its leader has other ...
                        └─ for which b2 was elected: b1 is fenced; ...

Rule 1: an election says why there was one, and why this replica leads. A truncation says by which rule
it went so far, and which election it follows from: that of its leader epoch.

Rule 2: what the journals do not say is said so, and counted: an election of an older journal has no
reason, and that of a truncation may be in no journal.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from pipeline.journals.timeline import Fact
from replication.events import Event, LeaderElected, LogTruncated, PartitionOffline
from replication.observe.sentences import elected_because, sentence
from storage.types import TopicPartition

_KINDS: Final[Mapping[str, type[Event]]] = MappingProxyType(
    {kind.name: kind for kind in (LeaderElected, PartitionOffline, LogTruncated)}
)
NOT_SAID: Final = "no journal says why"


@attrs.frozen(kw_only=True)
class Change:
    """An election, a truncation, or the loss of the last leader."""

    at_ms: int
    node: int
    name: str  # of its event
    cause: str  # why it came to that, in a few words; `NOT_SAID` where that is not known
    text: str  # what happened, and why, as a sentence


def changes(events: Sequence[Fact], partition: TopicPartition) -> Iterator[Change]:
    """Yield the changes of one partition, from its events in order of time."""
    found = [
        (each, _event(kind, each, partition))
        for each in events
        if (kind := _KINDS.get(each["name"])) is not None
    ]
    elections = {
        event.leader_epoch: event for _, event in found if isinstance(event, LeaderElected)
    }
    for fact, event in found:
        text = sentence(event)
        match event:
            case LeaderElected():
                cause = event.reason or NOT_SAID
            case LogTruncated():
                election = elections.get(event.leader_epoch)
                cause = event.cause if election is not None else NOT_SAID
                text += f"; {_following(election)}"
            case _:
                cause = fact["cause"] or NOT_SAID
        yield Change(
            at_ms=fact["at_ms"], node=fact["node"], name=event.name, cause=cause, text=text
        )


def _event(kind: type[Event], fact: Fact, partition: TopicPartition) -> Any:
    """Return the event of a row, whose empty columns are the defaults of its fields."""
    fields = (field.name for field in attrs.fields(kind) if field.name != "partition")
    known = {name: fact[name] for name in fields if fact[name] is not None}
    return kind(**{"partition": partition, **known})


def _following(election: LeaderElected | None) -> str:
    if election is None:
        return "the election of this leader epoch is in no journal"
    return f"b{election.leader} was elected for this leader epoch: {elected_because(election)}"
