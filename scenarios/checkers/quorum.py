"""Rules about controllers, which are the nodes of a quorum (KRaft).

Q1   one controller leads in a leader epoch, and only one that leads decides
Q2   the leader epoch of a controller never goes back, in its memory and in what it has synced;
     its high watermark does not either, while its process lasts
Q3   below its high watermark a controller has what was committed, and so has the copy of a broker,
     all of it; a new leader has everything that was committed before (`committed`)
Q4   what is committed is synced by a majority of the controllers
Q5   a vote that has made a leader is synced by its voter
Q6   metadata that ends at the same record is the same metadata, from a log or from a snapshot
Q7   a request that was answered is in the metadata (`admin_requests`)
Q8   once all is whole, a controller decides, and every node has what it had committed, within
     `PROGRESS_SECONDS` of virtual time

Q4 and Q5 ask the platters, so a node that counts what it has not synced is found before anything
is lost. A controller whose disk was replaced, or lies, is an exception: it may lack anything, so
nothing is compared from then on but Q1.
"""

from collections.abc import Collection, Iterator, Mapping

import attrs

from replication.metadata.rules.image import MetadataImage
from replication.raft.rules.types import ElectionState
from scenarios.checkers.observed import Batch, Wrong, drawn
from storage.types import LeaderEpoch, Offset

ONE_LEADER = "one controller leads in a leader epoch"
DECIDES = "only a controller that leads decides"
EPOCH = "the leader epoch of a controller never goes back"
SYNCED_EPOCH = "the leader epoch that a controller has synced never goes back"
WATERMARK = "the high watermark of a controller never goes back"
MAJORITY = "what is committed is synced by a majority of the controllers"
VOTE = "a vote that has made a leader is synced by its voter"
SAME = "metadata that ends at the same record is the same"
PROGRESS = "a majority of the controllers makes progress"
REACHED = "what a controller had committed reaches every node"

PROGRESS_SECONDS = 20.0
"""Ten times the default fetch timeout: several elections may have no winner."""


@attrs.frozen(kw_only=True)
class ControllerState:
    """One controller at one moment."""

    node: str
    life: int
    """The number of the node's process; the first is 1."""
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    leads: bool
    decides: LeaderEpoch | None = None
    """The leader epoch in which it decides; None while it does not."""


def one_leader(leaders: Mapping[LeaderEpoch, str], state: ControllerState) -> Iterator[Wrong]:
    """Check Q1; `leaders` has the controller that has led in each leader epoch.

    One that has just lost its leadership may still decide, in the leader epoch in which it led.
    """
    known = leaders.get(state.leader_epoch, state.node)
    if state.leads and known != state.node:
        yield Wrong(ONE_LEADER, f"{known} and {state.node} lead in epoch {state.leader_epoch}")
    if state.decides is not None and leaders.get(state.decides, state.node) != state.node:
        yield Wrong(
            DECIDES,
            f"{state.node} decides in epoch {state.decides}, in which"
            f" {leaders[state.decides]} leads",
        )


def never_back(before: ControllerState, now: ControllerState) -> Iterator[Wrong]:
    """Check Q2 for two states of one process."""
    if before.life != now.life:
        return
    for rule, was, value in (
        (EPOCH, before.leader_epoch, now.leader_epoch),
        (WATERMARK, before.high_watermark, now.high_watermark),
    ):
        if value < was:
            yield Wrong(rule, f"{now.node} went from {was} back to {value}")


def synced_never_back(
    node: str, before: ElectionState | None, now: ElectionState | None
) -> Iterator[Wrong]:
    """Check Q2 for what a disk has."""
    if before is not None and (now is None or now.leader_epoch < before.leader_epoch):
        left = "none" if now is None else f"epoch {now.leader_epoch}"
        yield Wrong(SYNCED_EPOCH, f"{node} had synced epoch {before.leader_epoch}, and has {left}")


def on_a_majority(batch: Batch, having: Collection[str], controllers: int) -> Iterator[Wrong]:
    """Check Q4 for the last batch that is committed; `having` are the controllers that have it."""
    if 2 * len(having) <= controllers:
        names = " ".join(sorted(having)) or "no controller"
        yield Wrong(
            MAJORITY,
            f"{drawn([batch])} is committed, and of {controllers} controllers {names} has synced it",
        )


def vote_is_synced(
    voter: str, synced: ElectionState | None, *, leader_id: int, leader_epoch: LeaderEpoch
) -> Iterator[Wrong]:
    """Check Q5. A voter that has gone on to a later epoch has forgotten the vote."""
    if synced is not None and synced.leader_epoch > leader_epoch:
        return
    if synced is not None and synced.leader_epoch == leader_epoch:
        voted_id = None if synced.voted is None else synced.voted.id
        if leader_id in (synced.leader_id, voted_id):
            return
    yield Wrong(
        VOTE,
        f"{voter} has voted for {leader_id} in epoch {leader_epoch}, and has synced {synced}",
    )


def same_metadata(node: str, known: MetadataImage, image: MetadataImage) -> Iterator[Wrong]:
    """Check Q6 for two images that end at the same record."""
    if known != image:
        parts = [
            each.name
            for each in attrs.fields(MetadataImage)
            if getattr(known, each.name) != getattr(image, each.name)
        ]
        yield Wrong(
            SAME, f"{node} has other metadata up to {image.offset} than another: {', '.join(parts)}"
        )
