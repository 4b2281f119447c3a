"""Whatever clients do and whatever time does, a group keeps its promises.

Clients that join, sync, heartbeat, leave, go silent, lose answers and come back as static
members; writes that succeed or fail, late; time that passes. After each step:

- no request is answered twice, and at the end no request waits;
- of each generation there is one leader, one protocol and one set of members;
- of each generation every member has the part that one leader gave it.
"""

import attrs
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from replication.errors import ErrorCode
from replication.groups.rules.effects import JoinResult, SyncResult
from replication.groups.rules.group import GroupState, Protocol
from replication.groups.rules.presence import heartbeat, leave
from tests.replication.groups.desk import LIMITS, Desk

CLIENTS = 4
PROTOCOLS = [
    (Protocol("range", b"a"),),
    (Protocol("range", b"b"), Protocol("sticky", b"b")),
    (Protocol("sticky", b"c"), Protocol("range", b"c")),
]


@attrs.define
class Consumer:
    """A client, and its own view of its membership."""

    number: int
    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    has_part: bool = False
    must_rejoin: bool = False
    joining: int | None = None
    syncing: int | None = None


class GroupAtRandom(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = attrs.evolve(LIMITS, initial_rebalance_delay_ms=50, max_size=3)
        self.desk = Desk(limits=limits)
        self.clients = [
            Consumer(number, f"i{number}" if number < 2 else None) for number in range(CLIENTS)
        ]
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.given: dict[int, str] = {}
        self.asked: set[int] = set()

    # What happens. Mostly what sound clients do, so that something gets done to be disturbed.

    @rule(milliseconds=st.sampled_from([1, 10, 30]), stores=st.booleans())
    def all_go_on(self, milliseconds: int, stores: bool) -> None:
        self.some_go_on(set(range(CLIENTS)), stores, milliseconds)

    @rule(
        numbers=st.sets(st.integers(0, CLIENTS - 1), min_size=1),
        stores=st.booleans(),
        milliseconds=st.sampled_from([1, 49, 60]),
    )
    def some_go_on(self, numbers: set[int], stores: bool, milliseconds: int) -> None:
        for number in sorted(numbers):
            self.goes_on(number)
        if stores:
            self.desk.finish_writes()
        self.desk.pass_time(milliseconds)
        self.hear()

    def goes_on(self, number: int) -> None:
        client, group = self.clients[number], self.desk.group
        if client.joining or client.syncing:
            return
        if client.generation != group.generation or client.must_rejoin:
            self.joins(number, PROTOCOLS[number % 3], True, number % 2 == 0, 200)
        elif not client.has_part:
            self.syncs(number)
        else:
            client.must_rejoin = self.heartbeats(number) is not ErrorCode.NONE

    @rule(
        number=st.integers(0, CLIENTS - 1),
        what=st.sampled_from(["joins", "joins", "syncs", "leaves", "forgets", "time", "fails"]),
        protocols=st.sampled_from(PROTOCOLS),
        flag=st.booleans(),
        milliseconds=st.sampled_from([20, 101, 200]),
    )
    def something_happens(
        self,
        number: int,
        what: str,
        protocols: tuple[Protocol, ...],
        flag: bool,
        milliseconds: int,
    ) -> None:
        match what:
            case "joins":
                self.joins(number, protocols, flag, flag, milliseconds)
            case "syncs":
                self.syncs(number)
            case "leaves":
                self.leaves(number)
            case "forgets":
                self.forgets(number)
            case "time":
                self.desk.pass_time(milliseconds)
            case "fails":
                self.desk.finish_writes(ErrorCode.NOT_COORDINATOR)
            case _:
                pass
        self.hear()

    # What clients do.

    def joins(
        self,
        number: int,
        protocols: tuple[Protocol, ...],
        must_know: bool,
        may_skip: bool,
        rebalance_ms: int,
    ) -> None:
        client = self.clients[number]
        client.joining = self.desk.join(
            client.member_id,
            group_instance_id=client.instance,
            protocols=protocols,
            must_know_its_id=must_know and client.instance is None,
            may_skip_assignment=may_skip,
            session_timeout_ms=100,
            rebalance_timeout_ms=rebalance_ms,
        )
        self.asked.add(client.joining)
        client.syncing = None
        self.hear()

    def syncs(self, number: int) -> None:
        client = self.clients[number]
        ticket = self.desk.ticket() + 1
        client.syncing = self.desk.sync(
            client.member_id,
            {each: f"{ticket} {each}".encode() for each in client.leads},
            group_instance_id=client.instance,
            generation=client.generation,
        )
        assert client.syncing == ticket
        self.asked.add(ticket)
        self.hear()

    def heartbeats(self, number: int) -> ErrorCode:
        client = self.clients[number]
        error = heartbeat(
            self.desk.machine,
            member_id=client.member_id,
            group_instance_id=client.instance,
            generation=client.generation,
            at=self.desk.at,
        )
        self.hear()
        return error

    def leaves(self, number: int) -> None:
        client = self.clients[number]
        leave(
            self.desk.machine,
            member_id=client.member_id,
            group_instance_id=client.instance,
            at=self.desk.at,
        )
        self.hear()
        self.forgets(number)

    def forgets(self, number: int) -> None:
        """It dies, and another starts in its place."""
        self.clients[number] = Consumer(number, self.clients[number].instance)

    # What clients hear.

    def hear(self) -> None:
        self.desk.settle()
        for client in self.clients:
            joined = self.desk.answers.get(client.joining or -1)
            if isinstance(joined, JoinResult):
                client.joining = None
                self.hear_joined(client, joined)
            synced = self.desk.answers.get(client.syncing or -1)
            if isinstance(synced, SyncResult):
                client.syncing = None
                self.hear_synced(client, synced)

    def hear_joined(self, client: Consumer, result: JoinResult) -> None:
        match result.error:
            case ErrorCode.NONE:
                client.member_id, client.generation = result.member_id, result.generation
                client.leads = tuple(each.member_id for each in result.members)
                client.has_part = client.must_rejoin = False
                self.check_generation(result)
            case ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = result.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                client.member_id, client.generation, client.leads = "", -1, ()
            case _:
                pass

    def check_generation(self, result: JoinResult) -> None:
        if result.members:
            leader_and_protocol = result.leader, result.protocol_name
            seen = self.generations.setdefault(result.generation, leader_and_protocol)
            # Only a static leader's own return changes the leader of a generation.
            if not result.skip_assignment and seen != leader_and_protocol:
                assert self.desk.group.members[result.leader].is_static
            assert result.member_id == result.leader

    def hear_synced(self, client: Consumer, result: SyncResult) -> None:
        client.has_part = result.error is ErrorCode.NONE
        client.must_rejoin = not client.has_part
        if not result.assignment:
            return
        ticket, _, member_id = result.assignment.decode().partition(" ")
        known = self.given.setdefault(client.generation, ticket)
        assert known == ticket, "one assignment for each generation"
        place = self.desk.group.members.get(client.member_id)
        if place is not None and not place.is_static:
            assert member_id == client.member_id, "each member has its own part"

    # What always holds.

    @invariant()
    def a_group_with_members_has_one_of_them_as_its_leader(self) -> None:
        group = self.desk.group
        assert (group.leader_id in group.members) if group.members else group.leader_id is None

    @invariant()
    def a_state_is_what_its_name_says(self) -> None:
        group, machine = self.desk.group, self.desk.machine
        members = group.members.values()
        match group.state:
            case GroupState.EMPTY:
                assert not members
            case GroupState.STABLE:
                assert members
                assert not any(each.sync_ticket for each in members)
            case GroupState.COMPLETING_REBALANCE:
                assert members
                assert not any(each.join_ticket for each in members)
            case GroupState.PREPARING_REBALANCE:
                assert not any(each.sync_ticket for each in members)
            case GroupState.DEAD:
                assert not self.asked
        if group.state is not GroupState.EMPTY:
            assert self.desk.writes or machine.next_deadline_ms is not None, "it goes on"

    @invariant()
    def every_member_is_watched_or_waited_on(self) -> None:
        for member in self.desk.group.members.values():
            assert member.deadline_ms is not None or member.awaits_answer

    def teardown(self) -> None:
        """Left alone, everybody is answered: no ticket is forgotten."""
        for _ in range(4):
            self.desk.finish_writes()
            self.desk.pass_time(1_000_000)
        assert self.desk.group.state is GroupState.EMPTY
        assert self.asked <= self.desk.answers.keys()


TestGroupAtRandom = GroupAtRandom.TestCase
TestGroupAtRandom.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
