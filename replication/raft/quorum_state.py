"""The file `quorum-state` beside the metadata log: what a node remembers of elections.

    {"leaderId":2,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

It is one line of JSON, as Kafka writes it; -1 stands for nobody. Version 1 is written where
`kraft.version` is 1 or more; version 0 names the voters and leaves out the directory that was voted
for. Both are read.

Rule: a damaged file is refused, because a node that guesses its vote may vote twice.
(Kafka: FileQuorumStateStore, QuorumStateData.)
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from replication.raft.rules.types import NO_DIRECTORY_ID, ElectionState, ReplicaKey
from storage.checkpoint import read_file, replace_file, uuid_bytes, uuid_text
from storage.errors import CheckpointError
from storage.filesystem import FileSystem

QUORUM_STATE: Final = "quorum-state"

_NOBODY: Final = -1


def read_quorum_state(file_system: FileSystem, directory: str) -> ElectionState | None:
    """Return what the node remembered, None if there is no file. Raise CheckpointError for a file
    that is damaged, or of a version that is not known.
    """
    path = f"{directory}/{QUORUM_STATE}"
    data = read_file(file_system, path)
    if data is None:
        return None
    try:
        return _parse(json.loads(data))
    except (ValueError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{path}: {_sentence(error)}") from error


def write_quorum_state(
    file_system: FileSystem,
    directory: str,
    election: ElectionState,
    *,
    kraft_version: int,
    voters: Iterable[int],
) -> None:
    """Make the file hold `election`, synced. `voters` are the ids of the voters."""
    voted = election.voted or ReplicaKey(_NOBODY)
    known = {
        "leaderId": _NOBODY if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.leader_epoch,
        "votedId": voted.id,
    }
    if kraft_version > 0:
        values = {**known, "votedDirectoryId": uuid_text(voted.directory_id), "data_version": 1}
    else:
        named = [{"voterId": voter_id} for voter_id in sorted(voters)]
        values = {
            "clusterId": "",
            **known,
            "appliedOffset": 0,
            "currentVoters": named,
            "data_version": 0,
        }
    text = json.dumps(values, separators=(",", ":"))
    replace_file(file_system, f"{directory}/{QUORUM_STATE}", text.encode())


def _parse(values: Any) -> ElectionState:
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 (one error for all damage)
    version = _number(values, "data_version", least=0)
    if version > 1:
        raise ValueError(f"data_version {version} is not one we know (0 or 1)")
    leader_id = _number(values, "leaderId", least=_NOBODY)
    voted_id = _number(values, "votedId", least=_NOBODY)
    directory_id = uuid_bytes(str(values["votedDirectoryId"])) if version else NO_DIRECTORY_ID
    return ElectionState(
        leader_epoch=_number(values, "leaderEpoch", least=0),
        leader_id=None if leader_id == _NOBODY else leader_id,
        voted=None if voted_id == _NOBODY else ReplicaKey(voted_id, directory_id),
    )


def _number(values: dict[str, Any], name: str, *, least: int) -> int:
    number = values[name]
    # True and False are integers to Python.
    if type(number) is not int or not least <= number < 2**31:
        raise ValueError(f"{name} is {number!r}")
    return number


def _sentence(error: Exception) -> str:
    match error:
        case KeyError(args=(name,)):
            return f"{name} is missing"
        case json.JSONDecodeError() | UnicodeDecodeError() | RecursionError():
            return "not JSON"
        case _:
            return str(error)
