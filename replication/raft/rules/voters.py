"""The set of voters, each with its endpoints (KIP-853).

(Kafka: VoterSet.)
"""

import attrs

from replication.raft.rules.types import NO_ENDPOINTS, Endpoints, ReplicaKey


@attrs.frozen
class VoterNode:
    """One voter and where it is reached."""

    key: ReplicaKey
    endpoints: Endpoints = NO_ENDPOINTS


@attrs.frozen
class VoterSet:
    """The voters, each id once; none where this node does not know them yet."""

    nodes: tuple[VoterNode, ...] = ()

    @property
    def ids(self) -> frozenset[int]:
        """The node ids of the voters."""
        return frozenset(node.key.id for node in self.nodes)

    def node(self, voter_id: int) -> VoterNode | None:
        """Return the voter with this id, None if there is none."""
        return next((node for node in self.nodes if node.key.id == voter_id), None)

    def is_voter(self, replica: ReplicaKey) -> bool:
        """Return whether this replica, with this directory, is one of the voters."""
        node = self.node(replica.id)
        return node is not None and node.key.matches(replica)

    def endpoints(self, voter_id: int) -> Endpoints:
        """Return where a voter is reached; nowhere if it is not a voter."""
        node = self.node(voter_id)
        return NO_ENDPOINTS if node is None else node.endpoints
