"""The requests that change the voters say what the values of the rules say."""

from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.raft.rules.messages import (
    AddVoterReceived,
    AnswerChange,
    LevelsAnswered,
    RemoveVoterReceived,
    Reply,
    UpdateVoterReceived,
)
from replication.raft.rules.voters import SUPPORTED, VoterNode
from replication.raft.voter_changes import (
    VoterEvent,
    levels_in,
    report_reply,
    voter_event,
    voter_request,
    voter_response,
)
from replication.wire.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from replication.wire.api_versions import (
    KRAFT_VERSION,
    TRANSACTION_VERSION,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from replication.wire.apis import api_of
from replication.wire.frames import decode_request, encode_request
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from replication.wire.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from tests.replication.raft.quorums import CLUSTER, endpoints, key

LISTENER = "CONTROLLER"
NODE = VoterNode(key(3), endpoints(3), SUPPORTED)
EVENTS: list[VoterEvent] = [
    AddVoterReceived(voter=key(3), endpoints=endpoints(3), cluster_id=CLUSTER),
    AddVoterReceived(voter=key(3), endpoints=endpoints(3), ack_when_committed=False),
    RemoveVoterReceived(voter=key(3), cluster_id=CLUSTER),
    UpdateVoterReceived(node=NODE, leader_epoch=7, cluster_id=CLUSTER),
]


def sent(request: Any) -> Any:
    """Return the request as its receiver reads it, in the newest version."""
    version = api_of(type(request)).max_version
    parts = encode_request(request, version=version, correlation_id=1, client_id="c")
    frame = b"".join(part for part in parts if isinstance(part, bytes | memoryview))
    return decode_request(memoryview(frame)[4:])[1]


@pytest.mark.parametrize("event", EVENTS, ids=["add", "add itself", "remove", "update"])
def test_a_request_says_what_was_asked(event: VoterEvent) -> None:
    assert voter_event(sent(voter_request(event, timeout_ms=2000))) == event


def test_a_new_voter_is_given_time() -> None:
    request = voter_request(EVENTS[0], timeout_ms=2000)
    assert isinstance(request, AddRaftVoterRequest)
    assert request.timeout_ms == 2000


@pytest.mark.parametrize(
    "answer",
    [
        Reply(error=ErrorCode.DUPLICATE_VOTER, leader_epoch=1, sentence="there is one"),
        AnswerChange(error=ErrorCode.DUPLICATE_VOTER, sentence="there is one"),
    ],
    ids=["at once", "later"],
)
def test_an_operator_is_given_the_reason(answer: Reply | AnswerChange) -> None:
    added = voter_response(AddRaftVoterRequest(), answer, LISTENER)
    removed = voter_response(RemoveRaftVoterRequest(), answer, LISTENER)
    for response in (added, removed):
        assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse)
        assert response.error_code == ErrorCode.DUPLICATE_VOTER
        assert response.error_message == "there is one"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader_epoch=4,
            leader_id=2,
            leader_endpoints=endpoints(2),
        ),
        Reply(error=ErrorCode.NONE, leader_epoch=4),
    ],
    ids=["with a leader", "without one"],
)
def test_a_voter_that_reports_learns_who_leads(reply: Reply) -> None:
    response = voter_response(UpdateRaftVoterRequest(), reply, LISTENER)
    assert isinstance(response, UpdateRaftVoterResponse)
    assert report_reply(response, LISTENER) == reply


def test_a_replica_names_its_levels() -> None:
    features = [
        SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=2),
        SupportedFeatureKey(name=KRAFT_VERSION, min_version=0, max_version=1),
    ]
    response = ApiVersionsResponse(error_code=0, api_keys=[], supported_features=features)
    none = ErrorCode.NONE
    assert levels_in(3, response) == LevelsAnswered(voter_id=3, error=none, supported=SUPPORTED)
    response.supported_features = features[:1]
    assert levels_in(3, response) == LevelsAnswered(voter_id=3, error=none)
    away = ErrorCode.BROKER_NOT_AVAILABLE
    assert levels_in(3, None) == LevelsAnswered(voter_id=3, error=away)
