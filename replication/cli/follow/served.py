"""A copy under `understudy up`: it is read-only until it is promoted."""

import trio

from replication.broker.adoption import AdoptedTopic, adopt
from replication.mirror.options import NODE_ID
from replication.mirror.promotion import KEPT
from replication.mirror.state import (
    CONTROLLER_DIRECTORY,
    STATE_FILE,
    CopyState,
    MirrorError,
    read_state,
)
from replication.net import production_seams
from storage.filesystem import OsFileSystem


def state_of(directory: str) -> CopyState:
    """Return the state of a copy; raise MirrorError if there is none or it is promoted."""
    state = read_state(OsFileSystem(), directory)
    if state is None:
        raise MirrorError(f"{directory} is not a copy: it has no {STATE_FILE}")
    if state.promoted:
        raise MirrorError(f"{directory} is already promoted")
    return state


def prepare(directory: str) -> tuple[bool, dict[str, str]]:
    """Prepare a copy to be served; return whether it is read-only, and its configuration keys."""
    state = read_state(OsFileSystem(), directory)
    assert state is not None, "the caller has found a copy"
    if not state.promoted:
        trio.run(_adopt, directory, state)
    return not state.promoted, {"cluster.id": state.cluster_id}


async def _adopt(directory: str, state: CopyState) -> None:
    topics = [
        AdoptedTopic(
            name=name,
            topic_id=topic.topic_id,
            configs=KEPT,
            leader_epochs={
                number: max(0, each.leader_epoch) for number, each in topic.partitions.items()
            },
        )
        for name, topic in state.topics.items()
    ]
    await adopt(
        production_seams(),
        f"{directory}/{CONTROLLER_DIRECTORY}",
        cluster_id=state.cluster_id,
        broker_id=NODE_ID,
        topics=topics,
    )
