"""A group with members, for the tests of its rules: heartbeats go in, what they change is kept."""

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    GroupChange,
    replay,
)
from replication.groups.rules.consumer_group.heartbeat import Beat, Caller, heartbeat
from replication.groups.rules.consumer_group.membership import (
    Conditions,
    ConsumerGroupSettings,
    Refusal,
)
from replication.groups.rules.consumer_group.records import parse
from replication.metadata.rules.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from replication.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)

CALLER = Caller(client_id="client", client_host="/host")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def image_of(topics: Mapping[str, int], *, rack: str | None = None) -> MetadataImage:
    """An image of these topics and numbers of partitions, all on broker 1."""
    broker = BrokerRegistration(1, 0, b"", (), rack=rack, fenced=False)
    place = PartitionRegistration((1,), (1,), 1, 0, 0)
    return MetadataImage(
        brokers={1: broker},
        topics={
            name: TopicImage(name, topic_id(name), dict.fromkeys(range(count), place))
            for name, count in topics.items()
        },
        topic_names_by_id={topic_id(name): name for name in topics},
    )


def of(**topics: Collection[int]) -> Assignment:
    """An assignment, by the names of topics."""
    return {topic_id(name): frozenset(numbers) for name, numbers in topics.items()}


def topic_partitions(assigned: Assignment) -> list[HeartbeatTopicPartitions]:
    return [
        HeartbeatTopicPartitions(topic_id=each, partitions=sorted(numbers))
        for each, numbers in assigned.items()
    ]


@attrs.define(eq=False)
class Desk:
    """One group, at a coordinator whose writes succeed."""

    image: MetadataImage
    settings: ConsumerGroupSettings = attrs.Factory(ConsumerGroupSettings)
    group: ConsumerGroup = attrs.Factory(lambda: ConsumerGroup("g"))
    log: list[tuple[bytes, bytes | None]] = attrs.Factory(list)
    wall_ms: int = 1_700_000_000_000
    assignment_interval_ms: int = 0
    keys: list[int] = attrs.Factory(list)
    """The versions of the keys that the last request has written."""

    def state(self) -> ConsumerGroupState:
        return self.group.state

    def begin(self) -> GroupChange:
        return GroupChange(self.group)

    def conditions(self, *, image_changed: bool = True) -> Conditions:
        return Conditions(
            self.image,
            self.settings,
            self.wall_ms,
            image_changed=image_changed,
            assignment_interval_ms=self.assignment_interval_ms,
        )

    def keep(self, change: GroupChange) -> None:
        self.group = change.group
        self.keys = [int.from_bytes(each.key[:2]) for each in change.records]
        self.log += [(each.key, each.value) for each in change.records]

    def ask(
        self, member_id: str, epoch: int, *, image_changed: bool = True, **fields: Any
    ) -> Beat | Refusal:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            **fields,
        )
        change = self.begin()
        answer = heartbeat(change, request, CALLER, self.conditions(image_changed=image_changed))
        if isinstance(answer, Beat):
            self.keep(change)
        return answer

    def join(self, member_id: str, *topics: str, **fields: Any) -> Beat:
        answer = self.ask(
            member_id,
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
            **fields,
        )
        assert isinstance(answer, Beat)
        return answer

    def beat(self, member_id: str, *, has: Assignment | None = None, **fields: Any) -> Beat:
        """Send a heartbeat with the member's epoch, and what it has."""
        owned = None if has is None else topic_partitions(has)
        epoch = self.group.members[member_id].member_epoch
        answer = self.ask(member_id, epoch, topic_partitions=owned, **fields)
        assert isinstance(answer, Beat), answer
        return answer

    def member(self, member_id: str) -> ConsumerMember:
        return self.group.members[member_id]

    def error(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        """Return the error of a heartbeat, which must not change the group."""
        before = self.group.copy()
        answer = self.ask(member_id, epoch, **fields)
        assert isinstance(answer, Refusal)
        assert self.group == before
        return answer.error

    def replayed(self) -> ConsumerGroup | None:
        """Return the group that another coordinator reads from the log."""
        groups: dict[str, ConsumerGroup] = {}
        for key, value in self.log:
            entry = parse(key, value)
            if entry is not None:  # not the record of a classic group
                replay(groups, entry)
        return groups.get("g")
