"""What is steered, whichever way its nodes run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from replication.cluster.cluster import NotPossibleError
from replication.cluster.steering import NodeStatus, Steering
from replication.errors import UnderstudyError
from replication.faults import AddedRule, FaultRule
from replication.faults.node_faults import Faults
from replication.net.clock import TrioClock

START_SECONDS = 30.0


class NotThereError(UnderstudyError):
    """A node, a topic or a rule that there is none of."""


@attrs.frozen(kw_only=True)
class Node:
    """The controller is 0."""

    id: int
    status: NodeStatus
    address: str
    """`host:port` of its first listener."""


@attrs.frozen(kw_only=True)
class Partition:
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class Steered(Protocol):
    """A cluster. Whatever is not possible now raises NotPossibleError, and has changed nothing."""

    def nodes(self) -> list[Node]:
        """The controller first."""

    async def kill(self, node_id: int) -> None: ...

    async def stop(self, node_id: int) -> None: ...

    async def start(self, node_id: int) -> None: ...

    async def freeze(self, node_id: int) -> None: ...

    async def thaw(self, node_id: int) -> None: ...

    def cuts(self) -> Sequence[tuple[int, int]]:
        """From whom nothing reaches whom."""

    async def cut(
        self, some: Iterable[int], others: Iterable[int] | None, *, one_way: bool
    ) -> None: ...

    async def heal(self) -> None: ...

    async def make_whole(self) -> None: ...

    async def topics(self) -> Mapping[str, Sequence[Partition]]:
        """By name."""

    @property
    def faults(self) -> Faults:
        """To be read, and waited for."""

    async def add_fault(self, rule: FaultRule) -> AddedRule: ...

    async def remove_fault(self, rule: AddedRule) -> None: ...

    async def clear_faults(self) -> None: ...


@attrs.frozen(eq=False)
class SteeredHere:
    """A cluster whose nodes run in this process."""

    steering: Steering

    def nodes(self) -> list[Node]:
        configs = self.steering.cluster.configs
        return [
            Node(
                id=node_id,
                status=self.steering.status(node_id),
                address=f"{configs[node_id].listeners[0].host}:{configs[node_id].listeners[0].port}",
            )
            for node_id in self.steering.node_ids
        ]

    async def kill(self, node_id: int) -> None:
        await self.steering.kill(node_id)

    async def stop(self, node_id: int) -> None:
        await self.steering.stop(node_id)

    async def start(self, node_id: int) -> None:
        """Given up after START_SECONDS, and then it is down."""
        started = False
        with TrioClock().move_on_after(START_SECONDS):
            await self.steering.start(node_id)
            started = True
        if not started:
            raise NotPossibleError(
                f"not started within {START_SECONDS:g} s: is the controller up, and reachable?"
            )

    async def freeze(self, node_id: int) -> None:
        self.steering.freeze(node_id)

    async def thaw(self, node_id: int) -> None:
        self.steering.thaw(node_id)

    def cuts(self) -> Sequence[tuple[int, int]]:
        return self.steering.cuts

    async def cut(
        self, some: Iterable[int], others: Iterable[int] | None, *, one_way: bool
    ) -> None:
        self.steering.cut(some, others, one_way=one_way)

    async def heal(self) -> None:
        self.steering.heal()

    async def make_whole(self) -> None:
        await self.steering.make_whole()

    async def topics(self) -> Mapping[str, Sequence[Partition]]:
        image = self.steering.cluster.image
        return {
            name: [
                Partition(
                    partition=number,
                    leader=None if each.leader < 0 else each.leader,
                    leader_epoch=each.leader_epoch,
                    replicas=list(each.replicas),
                    isr=sorted(each.isr),
                )
                for number, each in sorted(topic.partitions.items())
            ]
            for name, topic in sorted(image.topics.items())
        }

    @property
    def faults(self) -> Faults:
        return self.steering.cluster.faults

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        return self.faults.add(rule)

    async def remove_fault(self, rule: AddedRule) -> None:
        self.faults.remove(rule)

    async def clear_faults(self) -> None:
        self.faults.clear()
