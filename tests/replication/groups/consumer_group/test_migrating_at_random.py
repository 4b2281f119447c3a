"""Members of both protocols come, go and come back; whatever the order, nobody reads what another
still reads, and in the end everything is read.

A downgraded group is kept as it is: its members rejoin once a consumer upgrades it again, as the
classic protocol's own tests are in test_group_at_random.py.
"""

import attrs
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.heartbeat import Beat
from replication.groups.rules.effects import JoinResult
from replication.wire.consumer_protocol import decode_assignment
from tests.replication.groups.consumer_group.members import image_of, topic_id, topic_partitions
from tests.replication.groups.consumer_group.test_classic_members import MixedDesk, protocol

PARTITIONS = 6
ROUNDS = 12
CLASSIC = st.sampled_from(["eager", "cooperative"])
INSTANCES = st.sampled_from(["i", "j"])

Partitions = frozenset[int]


def numbers(assigned: Assignment | None) -> Partitions:
    return (assigned or {}).get(topic_id("a"), frozenset())


@attrs.define
class Client:
    """A consumer and what it reads; `kind` is its protocol, and how it gives partitions up."""

    member_id: str
    kind: str
    instance_id: str | None
    epoch: int = 0
    reads: Partitions = frozenset()

    @property
    def owned(self) -> Assignment:
        return {topic_id("a"): self.reads} if self.reads else {}


class Migrating(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.desk = MixedDesk(image_of({"a": PARTITIONS}))
        self.clients: list[Client] = []
        self.number = 0

    def newcomer(self, kind: str, instance_id: str | None) -> Client:
        """Return a client under a new id; it takes the place of the one with its instance id."""
        self.number += 1
        self.clients = [
            each for each in self.clients if instance_id is None or each.instance_id != instance_id
        ]
        client = Client(f"m{self.number}", kind, instance_id)
        self.clients.append(client)
        return client

    # Consumers of KIP-848.

    @rule(instance_id=st.none() | INSTANCES)
    def a_consumer_joins(self, instance_id: str | None) -> None:
        known = None if instance_id is None else self.desk.group.static_member(instance_id)
        if known is not None and known.classic is None:
            self.desk.ask(known.member_id, -2, instance_id=instance_id)
        if self.desk.classic is not None:
            assert self.desk.upgraded(self.desk.classic) is None
        self.beat(self.newcomer("consumer", instance_id))

    def beat(self, client: Client) -> None:
        joins = client.epoch == 0
        answer = self.desk.ask(
            client.member_id,
            client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=1000 if joins else -1,
            subscribed_topic_names=["a"] if joins else None,
            topic_partitions=topic_partitions(client.owned),
        )
        assert isinstance(answer, Beat), answer
        client.epoch = answer.member_epoch
        if answer.assigned is not None:
            client.reads = numbers(answer.assigned)

    # Classic members.

    @precondition(lambda self: self.desk.group.members and self.desk.classic is None)
    @rule(kind=CLASSIC, instance_id=st.none() | INSTANCES)
    def a_classic_member_joins(self, kind: str, instance_id: str | None) -> None:
        self.join(self.newcomer(kind, instance_id))

    def join(self, client: Client) -> None:
        """Join, and take what the coordinator gives; an eager member gives up everything first."""
        if client.kind == "eager":
            client.reads = frozenset()
        is_known = client.member_id in self.desk.group.members
        is_static = client.instance_id is not None
        answer = self.desk.join_classic(
            "" if is_static and not is_known else client.member_id,
            protocol("a", owned=client.owned),
            group_instance_id=client.instance_id,
            new_member_id=client.member_id,
        )
        assert isinstance(answer, JoinResult), answer
        client.epoch = answer.generation
        if self.desk.classic is not None:
            self.see_downgrade()
        else:
            client.reads = numbers(
                self.desk.synced(client.member_id, group_instance_id=client.instance_id)
            )

    def see_downgrade(self) -> None:
        """Join the classic group: every member gives up what its assignment has not."""
        classic = self.desk.classic
        assert classic is not None
        assert {each.member_id for each in self.clients} == set(classic.members)
        for each in self.clients:
            assignment = decode_assignment(classic.members[each.member_id].assignment)
            given = {one for topic in assignment.assigned_partitions for one in topic.partitions}
            each.reads, each.epoch = frozenset(given), classic.generation

    # Both.

    @precondition(lambda self: self.clients and self.desk.classic is None)
    @rule(place=st.integers(0, 9))
    def a_member_goes_on(self, place: int) -> None:
        self.go_on(self.clients[place % len(self.clients)])

    def go_on(self, client: Client) -> None:
        if client.kind == "consumer":
            self.beat(client)
            return
        error = self.desk.heard(
            client.member_id, client.epoch, group_instance_id=client.instance_id
        )
        assert error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(client)

    @precondition(lambda self: self.clients and self.desk.classic is None)
    @rule(place=st.integers(0, 9))
    def a_member_leaves(self, place: int) -> None:
        client = self.clients.pop(place % len(self.clients))
        assert self.desk.leave((client.member_id, client.instance_id)) == [ErrorCode.NONE]
        if self.desk.classic is not None:
            self.see_downgrade()

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        read = [number for each in self.clients for number in each.reads]
        assert len(read) == len(set(read)), self.clients

    @invariant()
    def the_log_has_the_group(self) -> None:
        there = self.desk.replayed()
        if self.desk.classic is not None:
            assert there is None
        elif there is not None:
            assert there == self.desk.group

    def teardown(self) -> None:
        for _ in range(ROUNDS):
            for each in list(self.clients):
                if self.desk.classic is None:
                    self.go_on(each)
        read = {number for each in self.clients for number in each.reads}
        assert not self.clients or read == set(range(PARTITIONS)), self.clients


TestMigrating = Migrating.TestCase
TestMigrating.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
