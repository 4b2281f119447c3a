"""The events that happen to a node of the quorum, and the effects that it then carries out.

The values are those of Kafka's requests without their envelope: a topic, a partition, a list with
one entry. The task that decodes a request checks the envelope.

    event             from                                effects that answer it
    TimerExpired      `Quorum.deadline_ms` has passed
    VoteReceived      a peer: Vote                         Reply
    BeginReceived     a peer: BeginQuorumEpoch             Reply
    EndReceived       a peer: EndQuorumEpoch               Reply
    FetchReceived     a replica: Fetch, FetchSnapshot      Reply
    Answered          the answer to a Send
    Unanswered        a Send came to nothing
    FetchAnswered     the answer to our Fetch              TakeFetched, or nothing
    LogChanged        our log, after it changed            HighWatermark
    VotersChanged     our log: another set of voters
    AddVoterReceived  an operator, or a node: AddRaftVoter  AskLevels; AnswerChange or Reply
    RemoveVoterReceived  an operator: RemoveRaftVoter       AppendVoters; AnswerChange or Reply
    UpdateVoterReceived  a voter: UpdateRaftVoter           AppendVoters, Reply
    UpgradeAsked      the controller                       AppendVoters, Reply
    ReportAnswered    the answer to UpdateRaftVoter (AskLeader)
    LevelsAnswered    the answer to AskLevels              AppendVoters, or AnswerChange
    ResignAsked       the controller
    ShutdownAsked     the operator                         ShutdownComplete, sooner or later

(Kafka: RaftRequest, RaftResponse, RaftUtil, LeaderAndEpoch.)
"""

from replication.errors import ErrorCode
from replication.raft.rules.log_view import Position
from replication.raft.rules.types import NO_ENDPOINTS, ElectionState, Endpoints, ReplicaKey
from replication.raft.rules.voters import VoterNode, VoterSet
from replication.wire.control_records import KRaftVersionFeature
from storage.attributes import frozen
from storage.types import LeaderEpoch, Offset

# --- requests of this node to its peers ----------------------------------------------------


@frozen(kw_only=True)
class VoteCall:
    """Vote: the sender asks for a vote in `leader_epoch`, or with `pre_vote` whether it would get
    one in the next (KIP-996). Its log ends at `end_offset` with a record of `last_epoch`.
    """

    leader_epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    end_offset: Offset
    pre_vote: bool


@frozen(kw_only=True)
class BeginCall:
    """BeginQuorumEpoch: the sender leads in `leader_epoch`."""

    leader_epoch: LeaderEpoch


@frozen(kw_only=True)
class EndCall:
    """EndQuorumEpoch: the sender led in `leader_epoch` and has resigned. The voters with the
    longest logs come first in `successors`.
    """

    leader_epoch: LeaderEpoch
    successors: tuple[ReplicaKey, ...]


Call = VoteCall | BeginCall | EndCall


# --- requests for other voters -------------------------------------------------------------


@frozen(kw_only=True)
class AddVoterReceived:
    """An operator, or the node itself, asks for a new voter."""

    voter: ReplicaKey
    endpoints: Endpoints
    ack_when_committed: bool = True
    cluster_id: str | None = None


@frozen(kw_only=True)
class RemoveVoterReceived:
    """An operator asks for one voter less."""

    voter: ReplicaKey
    cluster_id: str | None = None


@frozen(kw_only=True)
class UpdateVoterReceived:
    """A voter says where it is reached, and which levels of `kraft.version` it supports."""

    node: VoterNode
    leader_epoch: LeaderEpoch
    cluster_id: str | None = None


@frozen(kw_only=True)
class UpgradeAsked:
    """The controller of this node asks for a higher level of `kraft.version`."""

    kraft_version: int
    leader_epoch: LeaderEpoch
    validate_only: bool = False


VoterChangeAsked = AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived | UpgradeAsked


# --- effects -------------------------------------------------------------------------------


@frozen
class Persist:
    """Sync this in `quorum-state` before any effect after it is carried out."""

    election: ElectionState


@frozen
class Send:
    """Send a request to a voter, then step with Answered or, if no answer comes, Unanswered.

    The voter's endpoints are in `Quorum.voters`, the sender's name and endpoints in `Quorum`.
    """

    to: ReplicaKey
    call: Call


@frozen(kw_only=True)
class Reply:
    """The answer to a request of a peer: an error, and the leader for all that the sender knows.

    A change of the voters: `sentence`, if it is refused. Vote: `vote_granted`. Fetch without an error: `position`, the high watermark (None while this
    leader does not know it yet). INCONSISTENT_CLUSTER_ID is an error of the whole response.
    """

    error: ErrorCode
    leader_epoch: LeaderEpoch
    leader_id: int | None = None
    leader_endpoints: Endpoints = NO_ENDPOINTS
    vote_granted: bool = False
    position: Position | None = None
    high_watermark: Offset | None = None
    sentence: str | None = None


@frozen(kw_only=True)
class Lead:
    """Append a control batch at `epoch_start_offset`, the log's end, before anything else in this
    epoch: LeaderChange and, if there are `new_voters`, KRaftVersion and Voters.
    """

    leader_epoch: LeaderEpoch
    epoch_start_offset: Offset
    voters: VoterSet
    granting: frozenset[int]
    new_voters: VoterSet | None = None
    kraft_version: int = 0


@frozen
class StopLeading:
    """Answer all that waits for this epoch with NOT_LEADER_OR_FOLLOWER: it is not committed here."""

    leader_epoch: LeaderEpoch


@frozen(kw_only=True)
class FetchFrom:
    """Fetch with this epoch from the leader, until StopFetching or another FetchFrom.

    Without a leader, fetch from the voters or bootstrap servers in turn: the answer names the
    leader. So does a follower whose leader does not answer, until the leader answers again.
    """

    leader_epoch: LeaderEpoch
    leader_id: int | None
    endpoints: Endpoints


@frozen
class StopFetching:
    """Fetch from nobody: this node leads, or stands for election."""


@frozen
class TakeFetched:
    """Append what the answer brought, or truncate, or fetch the snapshot, as the answer says.

    A voter flushes; then the task steps with LogChanged. Without this effect the answer is stale.
    """


@frozen
class HighWatermark:
    """Everything below `offset` is committed; `offset` never goes back."""

    offset: Offset


@frozen
class LeaderChanged:
    """The leader of `leader_epoch` is known to be this node, or is not known (None)."""

    leader_epoch: LeaderEpoch
    leader_id: int | None


@frozen
class Disagreement:
    """A peer said what cannot be true, such as a second leader in one epoch. Nothing changed.

    The sentence is for the log: this is a bug, a lost disk, or a node of another cluster.
    """

    sentence: str


@frozen
class Misconfiguration:
    """A peer refuses this node until somebody mends the configuration of one of the two.

    The sentence is for the log. Nothing changed; the requests go on, since the peer may be mended.
    """

    sentence: str


@frozen(kw_only=True)
class AskLevels:
    """Send ApiVersions to a replica that is to become a voter, then step with LevelsAnswered."""

    voter: ReplicaKey
    endpoints: Endpoints


@frozen(kw_only=True)
class AppendVoters:
    """Append a control batch with this voter set, and before it the new level of `kraft.version` if
    there is one. Then step with VotersChanged.
    """

    voters: VoterSet
    kraft_version: int | None = None


@frozen(kw_only=True)
class AnswerChange:
    """Answer the AddVoterReceived or RemoveVoterReceived that has had no Reply."""

    error: ErrorCode
    sentence: str | None = None


@frozen(kw_only=True)
class AskLeader:
    """Send this to the leader: AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter. The answer to the
    last names the leader: step with ReportAnswered. It is sent again until it is no longer needed.
    """

    leader_id: int
    endpoints: Endpoints
    request: AddVoterReceived | RemoveVoterReceived | UpdateVoterReceived


@frozen
class ShutdownComplete:
    """The others need nothing more of this node: it may stop."""


Effect = (
    Persist
    | Send
    | Reply
    | Lead
    | StopLeading
    | FetchFrom
    | StopFetching
    | TakeFetched
    | HighWatermark
    | AskLevels
    | AppendVoters
    | AnswerChange
    | AskLeader
    | LeaderChanged
    | Disagreement
    | Misconfiguration
    | ShutdownComplete
)


# --- events --------------------------------------------------------------------------------


@frozen
class TimerExpired:
    """The time is `Quorum.deadline_ms` or later. It does no harm if it comes too early."""


@frozen(kw_only=True)
class VoteReceived:
    """A candidate asks for a vote. `voter` is whom it means to ask, None before KIP-853."""

    candidate: ReplicaKey
    call: VoteCall
    voter: ReplicaKey | None = None
    cluster_id: str | None = None


@frozen(kw_only=True)
class BeginReceived:
    """A leader says that it leads. `voter` is whom it means to tell, None before KIP-853."""

    leader_id: int
    call: BeginCall
    leader_endpoints: Endpoints = NO_ENDPOINTS
    voter: ReplicaKey | None = None
    cluster_id: str | None = None


@frozen(kw_only=True)
class EndReceived:
    """A leader says that it has resigned."""

    leader_id: int
    call: EndCall
    leader_endpoints: Endpoints = NO_ENDPOINTS
    cluster_id: str | None = None


@frozen(kw_only=True)
class FetchReceived:
    """A replica has flushed its log up to `fetch_offset`, and asks for what follows.

    FetchSnapshot comes without `fetch_offset`: only the leader epoch is checked then.
    `has_waited` is whether the request was looked at before, and has waited for news: it says
    nothing new of the replica, which may be dead by now.
    """

    replica: ReplicaKey
    leader_epoch: LeaderEpoch
    fetch_offset: Offset | None = None
    last_fetched_epoch: LeaderEpoch = 0
    cluster_id: str | None = None
    has_waited: bool = False


@frozen
class Answered:
    """A peer answered what we sent."""

    sent: Send
    reply: Reply


@frozen
class Unanswered:
    """A request that got no answer in time, or that had no connection."""

    sent: Send


@frozen
class FetchAnswered:
    """A node answered our Fetch or FetchSnapshot.

    The task drops answers to what it sent before the last FetchFrom or StopFetching.
    """

    reply: Reply


@frozen
class LogChanged:
    """The log was appended to, flushed or truncated. `high_watermark` is what the leader named
    in the answer that brought the records.
    """

    high_watermark: Offset | None = None


@frozen
class VotersChanged:
    """The newest voter set of the log is another one: a set counts once it is in the log.

    `offset` is where it stands there; None if it is that of the configuration.
    """

    voters: VoterSet
    offset: Offset | None = None
    kraft_version: int = 0


@frozen
class ReportAnswered:
    """The leader has answered what this voter reported."""

    reply: Reply


@frozen(kw_only=True)
class LevelsAnswered:
    """A replica has answered AskLevels, or not (an error). `supported` is None if it does not know
    the feature `kraft.version`.
    """

    voter_id: int
    error: ErrorCode
    supported: KRaftVersionFeature | None = None


@frozen
class ResignAsked:
    """The controller cannot go on as the leader of this epoch."""

    leader_epoch: LeaderEpoch


@frozen
class ShutdownAsked:
    """This node is to stop: it leaves an election in order, and begins none."""


Event = (
    TimerExpired
    | VoteReceived
    | BeginReceived
    | EndReceived
    | FetchReceived
    | Answered
    | Unanswered
    | FetchAnswered
    | LogChanged
    | VotersChanged
    | VoterChangeAsked
    | LevelsAnswered
    | ReportAnswered
    | ResignAsked
    | ShutdownAsked
)
