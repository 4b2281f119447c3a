"""A group whose members come, go, lag and lose responses: no partition ever has two readers.

The members are written down independently: they know only responses. A member reads what
its last response gave it, and goes on reading what it was asked to revoke until it says otherwise.
"""

from typing import Any

import attrs
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import ConsumerGroupState
from replication.groups.rules.consumer_group.membership import Refusal, fence
from tests.replication.groups.consumer_group.members import Desk, image_of, topic_partitions

MEMBERS = st.sampled_from("abcde")
TOPICS = st.sets(st.sampled_from(["x", "y", "z"]), min_size=1)
ROUNDS = 8


@attrs.define
class Reader:
    """A consumer: its epoch, what the last response gave it, and what it still reads."""

    topics: list[str]
    instance_id: str | None
    assignor: str
    epoch: int = 0
    given: Assignment | None = None
    reads: set[tuple[bytes, int]] = attrs.field(factory=set)

    def hear(self, epoch: int, assigned: Assignment | None) -> None:
        self.epoch = epoch
        if assigned is not None:
            self.given = assigned
            self.reads |= {(topic, each) for topic in assigned for each in assigned[topic]}

    def revoke(self) -> None:
        """Stop reading what it no longer has."""
        given = self.given or {}
        self.reads &= {(topic, each) for topic in given for each in given[topic]}

    def owned(self) -> Assignment:
        topics = {topic for topic, _ in self.reads}
        return {topic: frozenset(n for t, n in self.reads if t == topic) for topic in topics}


class Reconciling(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(image_of({"x": 5, "y": 3, "z": 1}))
        self.readers: dict[str, Reader] = {}
        self.joined = 0

    @rule(
        name=MEMBERS,
        topics=TOPICS,
        static=st.booleans(),
        assignor=st.sampled_from(["uniform", "range"]),
    )
    def join(self, name: str, topics: set[str], *, static: bool, assignor: str) -> None:
        if any(member_id.startswith(name) for member_id in self.readers):
            return
        self.joined += 1
        member_id = f"{name}{self.joined}"
        self.readers[member_id] = Reader(sorted(topics), name if static else None, assignor)
        self._beat(member_id, lost=False)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), lost=st.booleans(), revokes=st.booleans())
    def beat(self, data: st.DataObject, *, lost: bool, revokes: bool) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.readers)))
        if revokes:
            self.readers[member_id].revoke()
        self._beat(member_id, lost=lost)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), for_good=st.booleans())
    def leave(self, data: st.DataObject, *, for_good: bool) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.readers)))
        reader = self.readers.pop(member_id)
        away = reader.instance_id is not None and not for_good
        self.desk.ask(member_id, -2 if away else -1, instance_id=reader.instance_id)

    @precondition(lambda self: self.desk.group.members)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """A member is fenced; its client stops reading before that, as its session tells it."""
        member_id = data.draw(st.sampled_from(sorted(self.desk.group.members)))
        self.readers.pop(member_id, None)
        change = self.desk.begin()
        fence(change, [member_id], self.desk.image)
        self.desk.keep(change)

    @rule(counts=st.tuples(*[st.integers(0, 6)] * 3))
    def change_topics(self, counts: tuple[int, ...]) -> None:
        grown = {
            name: max(count, len(self.desk.image.topics[name].partitions))
            for name, count in zip("xyz", counts, strict=True)
        }
        self.desk.image = image_of(grown)

    def _beat(self, member_id: str, *, lost: bool) -> None:
        reader = self.readers[member_id]
        fields: dict[str, Any] = {"topic_partitions": topic_partitions(reader.owned())}
        if reader.epoch == 0:
            fields |= {
                "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": reader.topics,
                "server_assignor": reader.assignor,
            }
        answer = self.desk.ask(member_id, reader.epoch, instance_id=reader.instance_id, **fields)
        if isinstance(answer, Refusal):
            # It has lost a response, and then another: it gives up everything and joins again.
            del self.readers[member_id]
            change = self.desk.begin()
            if member_id in self.desk.group.members:
                fence(change, [member_id], self.desk.image)
            self.desk.keep(change)
        elif not lost:
            reader.hear(answer.member_epoch, answer.assigned)

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        reading = [place for reader in self.readers.values() for place in reader.reads]
        assert len(set(reading)) == len(reading)

    @invariant()
    def a_coordinator_that_takes_over_has_the_same_group(self) -> None:
        replayed = self.desk.replayed()
        assert replayed is None if not self.desk.log else replayed == self.desk.group

    def teardown(self) -> None:
        """With heartbeats that arrive the group becomes stable, and every partition is read."""
        for member_id in list(self.desk.group.members):
            if member_id not in self.readers:
                change = self.desk.begin()
                fence(change, [member_id], self.desk.image)
                self.desk.keep(change)
        for _ in range(ROUNDS):
            for member_id in list(self.readers):
                self.readers[member_id].revoke()
                # All that it reads goes with it, so that a response that was lost is given again.
                self._say_everything(member_id)
        if self.readers:
            assert self.desk.group.state is ConsumerGroupState.STABLE
            topics = {name for reader in self.readers.values() for name in reader.topics}
            partitions = sum(len(self.desk.image.topics[name].partitions) for name in topics)
            assert sum(len(reader.reads) for reader in self.readers.values()) == partitions

    def _say_everything(self, member_id: str) -> None:
        reader = self.readers[member_id]
        answer = self.desk.ask(
            member_id,
            reader.epoch,
            instance_id=reader.instance_id,
            topic_partitions=topic_partitions(reader.owned()),
            rebalance_timeout_ms=1000,
            subscribed_topic_names=reader.topics,
        )
        if isinstance(answer, Refusal):
            del self.readers[member_id]
            change = self.desk.begin()
            fence(change, [member_id], self.desk.image)
            self.desk.keep(change)
        else:
            reader.hear(answer.member_epoch, answer.assigned)


TestReconciling = Reconciling.TestCase
TestReconciling.settings = settings(
    max_examples=60, stateful_step_count=30, derandomize=True, database=None, deadline=None
)
