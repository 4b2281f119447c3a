"""How the voters of the metadata log are changed, one at a time (KIP-853).

    request           first                           then
    AddRaftVoter      AskingVoter, until the replica  UncommittedVoters, until the record is
                      has answered ApiVersions        committed
    RemoveRaftVoter                                   UncommittedVoters
    UpdateRaftVoter                                   UncommittedVoters, and answered at once

If that takes too long, or the node leads no more, the answer is an error, though the record may be
committed later.

Rule 1: a leader changes nothing before it has committed a record of its own epoch. Until then it
does not know whether a change of the leader before it counts.

Rule 2: a leader changes nothing while a voter set is in the log that is not committed, so that two
changes in a row keep a majority in common.

Rule 3: a replica is added once it has caught up, because from the moment at which it stands in the
log the majority may depend on it. It is asked first which levels of `kraft.version` it supports.

Rule 4: at level 0 of `kraft.version` voters stand in no log. What they report is remembered by the
leader: the upgrade to level 1 needs the directory id of each.

Rule 5: a leader that is no voter of a committed set resigns; before, it may be the only one that has
the record. (Kafka looks only while the request that removed it waits.)
(Kafka: AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler, KRaftVersionUpgrade.)
"""

from typing import Final

from replication.errors import ErrorCode
from replication.raft.rules.leader import LeaderProgress
from replication.raft.rules.types import NO_DIRECTORY_ID, Endpoints, ReplicaKey
from replication.raft.rules.voters import (
    BOOTSTRAP_OFFSET,
    RECONFIGURABLE,
    VoterNode,
    VoterSet,
)
from replication.wire.control_records import KRaftVersionFeature
from storage.attributes import frozen
from storage.types import Offset

CAUGHT_UP_MS: Final = 3_600_000
"""How long ago a replica may have fetched last that is to become a voter."""


@frozen(kw_only=True)
class AskingVoter:
    """A replica is to become a voter, and has been asked for its levels of `kraft.version`."""

    voter: ReplicaKey
    endpoints: Endpoints
    ack_when_committed: bool
    deadline_ms: int

    @property
    def is_answered(self) -> bool:
        return False


@frozen(kw_only=True)
class UncommittedVoters:
    """A voter set was given to the log. `is_answered` is whether its request has its answer."""

    voters: VoterSet
    deadline_ms: int
    is_answered: bool = False
    ack_when_committed: bool = True


PendingChange = AskingVoter | UncommittedVoters


@frozen
class ChangeRefused:
    """Why the voters are not changed: an error of Kafka's, and a sentence for the operator."""

    error: ErrorCode
    sentence: str


@frozen(kw_only=True)
class Ground:
    """The facts by which a leader decides about a change.

    The newest voter set stands in the log at `voters_offset`; None if it is that of the
    configuration. A voter has to have an address on `listener`.
    """

    progress: LeaderProgress
    voters_offset: Offset | None
    kraft_version: int
    listener: str
    pending: PendingChange | None = None

    @property
    def voters(self) -> VoterSet:
        """The newest voter set."""
        return self.progress.voters

    @property
    def is_committed(self) -> bool:
        """Whether the newest voter set is committed."""
        high_watermark = self.progress.high_watermark
        return (
            high_watermark is not None
            and self.voters_offset is not None
            and self.voters_offset < high_watermark
        )

    @property
    def must_resign(self) -> bool:
        """Whether the leader is no voter any more, and that is committed."""
        return self.is_committed and not self.voters.is_voter(self.progress.me)


def may_add(ground: Ground, voter: ReplicaKey, endpoints: Endpoints) -> ChangeRefused | None:
    """Return why a replica may not become a voter, None if it may be asked for its levels."""
    if voter.directory_id == NO_DIRECTORY_ID:
        return ChangeRefused(ErrorCode.INVALID_REQUEST, "a new voter needs a directory id")
    if endpoints.address(ground.listener) is None:
        return _without_listener(ground)
    refusal = _refusal(ground)
    if refusal is None and voter.id in ground.voters.ids:
        return ChangeRefused(ErrorCode.DUPLICATE_VOTER, f"there is a voter with the id {voter.id}")
    return refusal


def added(
    ground: Ground, asking: AskingVoter, supported: KRaftVersionFeature | None, *, now_ms: int
) -> ChangeRefused | VoterSet:
    """Return the voters with the one that has named its levels of `kraft.version`.

    `supported` is None if it does not know that feature.
    """
    node = VoterNode(asking.voter, asking.endpoints, supported or KRaftVersionFeature())
    if not node.supports(ground.kraft_version):
        return ChangeRefused(
            ErrorCode.INVALID_REQUEST,
            f"node {asking.voter.id} does not support kraft.version {ground.kraft_version}",
        )
    progress = ground.progress.of(asking.voter)
    last_ms = progress.last_fetch_ms
    if progress.last_caught_up_ms is None or last_ms is None or last_ms <= now_ms - CAUGHT_UP_MS:
        return ChangeRefused(
            ErrorCode.REQUEST_TIMED_OUT, f"node {asking.voter.id} has not caught up with the log"
        )
    return _checked(ground, ground.voters.with_voter(node))


def removed(ground: Ground, voter: ReplicaKey) -> ChangeRefused | VoterSet:
    """Return the voters without `voter`, which may be the leader itself."""
    if voter.directory_id == NO_DIRECTORY_ID:
        return ChangeRefused(ErrorCode.INVALID_REQUEST, "a voter is removed by its directory id")
    return _refusal(ground) or _checked(ground, ground.voters.without_voter(voter))


def updated(ground: Ground, reported: VoterSet, node: VoterNode) -> ChangeRefused | VoterSet:
    """Return the voters with what one of them says of itself.

    At level 0 of `kraft.version` these are `reported`, for the leader to remember.
    """
    levels = node.kraft_versions
    if node.key.directory_id == NO_DIRECTORY_ID:
        return ChangeRefused(ErrorCode.INVALID_REQUEST, "a voter is updated by its directory id")
    if node.endpoints.address(ground.listener) is None:
        return _without_listener(ground)
    if not 0 <= levels.min_supported_version <= levels.max_supported_version:
        return ChangeRefused(ErrorCode.INVALID_REQUEST, "the levels of kraft.version are no range")
    is_in_log = ground.kraft_version >= RECONFIGURABLE
    refusal = _unsettled(ground, needs_offset=is_in_log)
    if refusal is None and not node.supports(ground.kraft_version):
        refusal = ChangeRefused(
            ErrorCode.INVALID_REQUEST,
            f"node {node.key.id} does not support kraft.version {ground.kraft_version}",
        )
    if refusal is not None:
        return refusal
    if is_in_log:
        return ground.voters.with_update(node) or _no_voter()
    return reported.with_named(node) or _no_voter()


def upgraded(ground: Ground, reported: VoterSet, level: int) -> ChangeRefused | VoterSet:
    """Return the voters that stand in the log once `kraft.version` is `level`.

    They are the newest ones where nothing is to be done.
    """
    if level == ground.kraft_version:
        return ground.voters
    if level < ground.kraft_version:
        return ChangeRefused(ErrorCode.INVALID_UPDATE_VERSION, "kraft.version is never lowered")
    refusal = _unsettled(ground, needs_offset=False)
    if refusal is not None:
        return refusal
    unnamed = sorted(key.id for key in reported.keys if key.directory_id == NO_DIRECTORY_ID)
    if unnamed:
        sentence = f"voters {unnamed} have not reported yet, or their directories have no id"
    elif lacking := reported.lacking(level):
        sentence = f"voters {lacking} do not support it"
    else:
        return reported
    return ChangeRefused(ErrorCode.INVALID_UPDATE_VERSION, sentence)


def voters_at_start(
    me: VoterNode, voters: VoterSet, *, voters_offset: Offset | None, kraft_version: int
) -> VoterSet | None:
    """Return the voters that a leader writes at the start of its epoch, None for none.

    They are those of a bootstrap snapshot, which are in no log yet, or those in which the leader's
    own addresses or levels are out of date.
    """
    if kraft_version < RECONFIGURABLE:
        return None
    if voters_offset == BOOTSTRAP_OFFSET or voters.needs_update(me):
        return voters.with_update(me)
    return None


def _refusal(ground: Ground) -> ChangeRefused | None:
    """Return why no voter can be added or removed now, None if one can."""
    refusal = _unsettled(ground, needs_offset=ground.kraft_version >= RECONFIGURABLE)
    if refusal is None and ground.kraft_version < RECONFIGURABLE:
        return ChangeRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"kraft.version is {ground.kraft_version}: voters change from {RECONFIGURABLE} on",
        )
    return refusal


def _unsettled(ground: Ground, *, needs_offset: bool) -> ChangeRefused | None:
    """Return why the leader cannot change the voters yet (rules 1 and 2)."""
    if ground.pending is not None:
        sentence = "another change of the voters is in progress"
    elif ground.progress.high_watermark is None:
        sentence = "the leader has not committed a record of its epoch yet"
    elif needs_offset and not ground.is_committed:
        sentence = f"the voters at offset {ground.voters_offset} are not committed yet"
    else:
        return None
    return ChangeRefused(ErrorCode.REQUEST_TIMED_OUT, sentence)


def _without_listener(ground: Ground) -> ChangeRefused:
    return ChangeRefused(
        ErrorCode.INVALID_REQUEST, f"no address for the listener {ground.listener}"
    )


def _no_voter() -> ChangeRefused:
    return ChangeRefused(ErrorCode.VOTER_NOT_FOUND, "there is no such voter, or it is the only one")


def _checked(ground: Ground, voters: VoterSet | None) -> ChangeRefused | VoterSet:
    if voters is None:
        return _no_voter()
    assert ground.voters.has_overlapping_majority(voters), "a leader changes one voter at a time"
    return voters
