"""The file `quorum-state`, as Kafka's FileQuorumStateStore writes and reads it."""

from pathlib import Path

import pytest

from replication.raft.quorum_state import QUORUM_STATE, read_quorum_state, write_quorum_state
from replication.raft.rules.types import ElectionState, ReplicaKey
from storage.errors import CheckpointError
from storage.filesystem import OsFileSystem
from tests.replication.raft.quorums import key

OS = OsFileSystem()
ELECTIONS = [
    pytest.param(ElectionState(leader_epoch=3, leader_id=1), id="a leader"),
    pytest.param(
        ElectionState(leader_epoch=3, leader_id=1, voted=key(2)), id="a leader, and a vote"
    ),
    pytest.param(ElectionState(leader_epoch=3, voted=key(2)), id="a vote"),
    pytest.param(ElectionState(leader_epoch=3), id="neither"),
]


def written(directory: Path, election: ElectionState, *, kraft_version: int) -> str:
    write_quorum_state(OS, str(directory), election, kraft_version=kraft_version, voters=[3, 1, 2])
    return (directory / QUORUM_STATE).read_text()


@pytest.mark.conformance("KR-67", "KR-68", "KR-69")
@pytest.mark.parametrize("election", ELECTIONS)
def test_what_is_written_is_read(tmp_path: Path, election: ElectionState) -> None:
    written(tmp_path, election, kraft_version=1)
    assert read_quorum_state(OS, str(tmp_path)) == election


@pytest.mark.parametrize("election", ELECTIONS)
def test_version_0_forgets_the_directory_of_the_vote(
    tmp_path: Path, election: ElectionState
) -> None:
    written(tmp_path, election, kraft_version=0)
    read = read_quorum_state(OS, str(tmp_path))
    assert read is not None
    assert (read.leader_epoch, read.leader_id) == (election.leader_epoch, election.leader_id)
    assert read.voted == (election.voted and ReplicaKey(election.voted.id))


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    election = ElectionState(leader_epoch=7, voted=ReplicaKey(1, bytes([1]) * 16))
    assert written(tmp_path, election, kraft_version=1) == (
        '{"leaderId":-1,"leaderEpoch":7,"votedId":1,'
        '"votedDirectoryId":"AQEBAQEBAQEBAQEBAQEBAQ","data_version":1}'
    )
    assert written(tmp_path, election, kraft_version=0) == (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )


def test_without_a_file_nothing_is_remembered(tmp_path: Path) -> None:
    assert read_quorum_state(OS, str(tmp_path)) is None


@pytest.mark.conformance("KR-70")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "data_version is missing"),
        ('{"data_version":2}', r"data_version 2 is not one we know \(0 or 1\)"),
        ('{"data_version":true}', "data_version is True"),
        ('{"data_version":0}', "leaderId is missing"),
        ('{"data_version":0,"leaderId":-2}', "leaderId is -2"),
        ('{"data_version":0,"leaderId":-1,"votedId":-1}', "leaderEpoch is missing"),
        (
            '{"data_version":0,"leaderId":-1,"votedId":-1,"leaderEpoch":2147483648}',
            "leaderEpoch is 2147483648",
        ),
        ('{"data_version":1,"leaderId":-1,"votedId":1,"leaderEpoch":1}', "votedDirectoryId"),
        (
            '{"data_version":1,"leaderId":-1,"votedId":1,"leaderEpoch":1,"votedDirectoryId":"x"}',
            "'x' is not",
        ),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / QUORUM_STATE).write_text(text)
    with pytest.raises(CheckpointError, match=sentence) as refused:
        read_quorum_state(OS, str(tmp_path))
    assert str(refused.value).startswith(f"{tmp_path / QUORUM_STATE}: ")
    assert "\n" not in str(refused.value)
