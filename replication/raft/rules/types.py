"""The names of replicas, their endpoints, and what a node remembers of elections.

Rule 1: a voter is named by its node id and the id of its directory (KIP-853). A node that comes
back with an empty disk has forgotten its votes, so it is another voter.

Rule 2: a directory id that is not known (all zeros) matches every directory of that node.
(Kafka: ReplicaKey, Endpoints, ElectionState.)
"""

from typing import Final

import attrs

from storage.attributes import frozen
from storage.types import LeaderEpoch

NO_DIRECTORY_ID: Final = bytes(16)


@attrs.frozen(order=True)
class ReplicaKey:
    """A replica's node id, and the 16 bytes of its directory id: zeros where it is not known."""

    id: int
    directory_id: bytes = NO_DIRECTORY_ID

    def matches(self, replica: "ReplicaKey") -> bool:
        """Return whether this name means `replica`; a name without a directory id means any."""
        return self.id == replica.id and self.directory_id in {
            NO_DIRECTORY_ID,
            replica.directory_id,
        }


@frozen
class ListenerAddress:
    """The address of one listener of a node, with the listener's name."""

    listener: str
    host: str
    port: int


@frozen
class Endpoints:
    """The addresses of a node, one for each of its listeners; none where they are not known."""

    addresses: tuple[ListenerAddress, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.addresses)

    def address(self, listener: str) -> ListenerAddress | None:
        """Return the address of the listener with this name, None if the node has none."""
        return next((each for each in self.addresses if each.listener == listener), None)


NO_ENDPOINTS: Final = Endpoints()


@frozen(kw_only=True)
class ElectionState:
    """The facts of elections that outlive a restart: the epoch, and in it leader and vote.

    It is synced to the file `quorum-state` before any other node can notice it.
    """

    leader_epoch: LeaderEpoch
    leader_id: int | None = None
    voted: ReplicaKey | None = None
