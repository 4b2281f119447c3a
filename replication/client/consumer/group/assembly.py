"""How a consumer with a group.id becomes a member of it."""

from collections.abc import Callable

import attrs
import trio

from replication.client.consumer.assembly import Parts
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.commits import Commits, Offsets
from replication.client.consumer.group.coordinator import ConsumerCoordinator
from replication.client.consumer.group.discovery import CoordinatorFinder
from replication.client.consumer.group.heartbeat import Heartbeats
from replication.client.consumer.group.joining import Joining
from replication.client.consumer.group.membership import Membership
from replication.client.consumer.subscription import SubscriptionState
from replication.net.seams import NodeClock
from storage.types import TopicPartition


@attrs.frozen(eq=False, kw_only=True)
class GroupAssembly:
    """What the parts of a member are given."""

    config: ConsumerConfig
    group_id: str
    parts: Parts
    subscriptions: SubscriptionState
    clock: NodeClock
    nursery: trio.Nursery
    wake: Callable[[], None]
    on_committed: Callable[[Offsets], None]

    def coordinator(self) -> ConsumerCoordinator:
        config, parts, clock = self.config, self.parts, self.clock
        membership = Membership(self.group_id, config.group_instance_id)
        finder = CoordinatorFinder(
            group_id=self.group_id,
            config=config,
            network=parts.network,
            metadata=parts.metadata,
            clock=clock,
        )
        coordinator = ConsumerCoordinator(
            config=config,
            membership=membership,
            subscriptions=self.subscriptions,
            metadata=parts.metadata,
            joining=Joining(
                config=config,
                membership=membership,
                subscriptions=self.subscriptions,
                metadata=parts.metadata,
                finder=finder,
                last_joined=lambda: coordinator.last_assignment,
            ),
            heartbeats=Heartbeats(
                config=config,
                membership=membership,
                finder=finder,
                clock=clock,
                on_change=self.wake,
                on_error=lambda error: coordinator.keep(error),  # noqa: PLW0108 - it is made after
            ),
            commits=Commits(
                membership=membership,
                uses_group=lambda: self.subscriptions.uses_group,
                finder=finder,
                clock=clock,
                nursery=self.nursery,
                on_committed=self.on_committed,
                on_change=self.wake,
            ),
            clock=clock,
            nursery=self.nursery,
            on_change=self.wake,
            on_assignment=self._let_go,
        )
        self.nursery.start_soon(coordinator.heartbeats.run)
        return coordinator

    def _let_go(self) -> None:
        """Of what is buffered, nothing stays that is not ours."""
        assigned: set[TopicPartition] = set(self.subscriptions.assigned)
        self.parts.fetcher.requests.buffer.retain_all(assigned)
