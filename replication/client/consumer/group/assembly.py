"""The parts of a consumer that is a member of a group."""

from collections.abc import Callable

import trio

from replication.client.consumer.assembly import Parts
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.group.commits import Commits, Offsets
from replication.client.consumer.group.coordinator import ConsumerCoordinator
from replication.client.consumer.group.discovery import CoordinatorFinder
from replication.client.consumer.group.heartbeat import Heartbeats
from replication.client.consumer.group.joining import Joining
from replication.client.consumer.group.membership import Membership
from replication.client.consumer.hooks import ConsumerRebalanceListener
from replication.client.consumer.subscription import SubscriptionState
from replication.net.seams import NodeClock


def make_coordinator(
    *,
    config: ConsumerConfig,
    group_id: str,
    parts: Parts,
    subscriptions: SubscriptionState,
    clock: NodeClock,
    nursery: trio.Nursery,
    wake: Callable[[], None],
    on_committed: Callable[[Offsets], None],
    listener: ConsumerRebalanceListener,
) -> ConsumerCoordinator:
    """Return the coordinator of a member, with its parts; its heartbeats run in `nursery`."""
    membership = Membership(group_id, config.group_instance_id)
    finder = CoordinatorFinder(
        group_id=group_id,
        config=config,
        network=parts.network,
        metadata=parts.metadata,
        clock=clock,
    )
    buffer = parts.fetcher.requests.buffer
    coordinator = ConsumerCoordinator(
        config=config,
        membership=membership,
        subscriptions=subscriptions,
        metadata=parts.metadata,
        joining=Joining(
            config=config,
            membership=membership,
            subscriptions=subscriptions,
            metadata=parts.metadata,
            finder=finder,
            last_joined=lambda: coordinator.last_assignment,
        ),
        heartbeats=Heartbeats(
            config=config,
            membership=membership,
            finder=finder,
            clock=clock,
            on_change=wake,
            on_error=lambda error: coordinator.keep(error),  # noqa: PLW0108 - it is made after
        ),
        commits=Commits(
            membership=membership,
            uses_group=lambda: subscriptions.uses_group,
            finder=finder,
            clock=clock,
            nursery=nursery,
            on_committed=on_committed,
            on_change=wake,
        ),
        clock=clock,
        nursery=nursery,
        on_change=wake,
        on_assignment=lambda: buffer.retain_all(set(subscriptions.assigned)),
        listener=listener,
    )
    nursery.start_soon(coordinator.heartbeats.run)
    return coordinator
