"""A coordinator, a leader's log, and messages that come when they like (KIP-890).

    producer ── batches ──> [ in flight ] ──> leader ── asks ──> coordinator
        └────── ends ─────────────────────────────────────────────> │
                 leader <── [ in flight ] <── markers ──────────────┘

What must hold: a transaction that is open in the log is one that its coordinator is going to end;
and, under version 2, what lies between two ends in the log is of one transaction, also where
batches and markers come late, twice, or never.

The rules and the log's memory of producers are the real ones; tasks and wire are left out.
"""

from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from replication.errors import ErrorCode
from replication.transactions.rules.decisions import (
    Fence,
    Slot,
    abort_fenced,
    add_partitions,
    created,
    end,
    init_producer_id,
    time_out,
    verify_partitions,
)
from replication.transactions.rules.transaction import Transaction, TransactionState
from storage.batch.record_batch import MAX_PRODUCER_EPOCH, read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.errors import ProducerStateError
from storage.producers.state import ProducerStateManager
from storage.producers.verification import TransactionTerms, VerificationGuard
from storage.types import TopicPartition
from tests.storage.logs import new_disk

T0 = TopicPartition("t", 0)
OPEN = {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
PICK = st.integers(0, 2**16)
FEW = settings(max_examples=30, stateful_step_count=40, derandomize=True, database=None)


@attrs.frozen
class Batch:
    """Return what belongs to transaction `number`."""

    producer: tuple[int, int]
    sequence: int
    number: int


@attrs.frozen
class Marker:
    """The end of what the coordinator calls `number`: that of its owner."""

    producer: tuple[int, int]
    commits: bool
    bumped: bool
    number: int


@attrs.define(eq=False)
class Question:
    batch: Batch
    guard: VerificationGuard
    answer: ErrorCode | None = None


@attrs.define(eq=False)
class Leader:
    """A log, as far as it is about producers."""

    verifies: bool
    producers: ProducerStateManager = attrs.field(
        factory=lambda: ProducerStateManager(new_disk(), "/log")
    )
    entries: list[Batch | Marker] = attrs.field(factory=list)

    def begin(self, batch: Batch, *, bumps_epoch: bool) -> VerificationGuard | None:
        producer_id, producer_epoch = batch.producer
        return self.producers.begin_verification(
            producer_id,
            producer_epoch=producer_epoch,
            sequence=batch.sequence,
            bumps_epoch=bumps_epoch,
            now_ms=0,
        )

    def append(self, batch: Batch, guard: VerificationGuard | None) -> bool:
        header = read_header(
            encode_batch(
                [Record(timestamp=0, value=b"x")],
                base_offset=len(self.entries),
                producer_id=batch.producer[0],
                producer_epoch=batch.producer[1],
                base_sequence=batch.sequence,
                transactional=True,
            )
        )
        terms = TransactionTerms(must_be_verified=self.verifies, guard=guard)
        try:
            duplicate = self.producers.check(header, terms=terms)
        except ProducerStateError:
            return False
        if duplicate is None:
            self.producers.update(header)
            self.entries.append(batch)
        return True

    def end(self, marker: Marker) -> bool:
        kind = ControlRecordType.COMMIT if marker.commits else ControlRecordType.ABORT
        said = EndTransactionMarker(kind, coordinator_epoch=0)
        header = read_header(
            encode_control_batch(
                said,
                timestamp=0,
                base_offset=len(self.entries),
                producer_id=marker.producer[0],
                producer_epoch=marker.producer[1],
            )
        )
        terms = TransactionTerms(marker_bumps_epoch=marker.bumped)
        try:
            self.producers.check(header, said, from_client=False, terms=terms)
        except ProducerStateError:
            return False
        completed = self.producers.update(header, said)
        if completed is not None:
            self.producers.complete_transaction(completed)
        self.entries.append(marker)
        return True

    @property
    def open_transactions(self) -> list[int]:
        return [
            each.producer_id
            for each in self.producers.producers.values()
            if each.transaction_first_offset is not None
        ]


class LateMessages(RuleBasedStateMachine):
    version: ClassVar = 2
    verifies: ClassVar = True

    @initialize(near_the_end=st.booleans())
    def start(self, near_the_end: bool) -> None:
        first = created("tx", producer_id=7, timeout_ms=1000, now_ms=0)
        epoch = MAX_PRODUCER_EPOCH - 4 if near_the_end else 0
        self.slot = Slot(attrs.evolve(first, producer_epoch=epoch))
        self.leader = Leader(self.verifies)
        self.now_ms, self.spare, self.numbers = 0, 100, 0
        self.batches: list[Batch] = []
        self.questions: list[Question] = []
        self.markers: list[Marker] = []
        self.number_of: dict[tuple[int, int], int] = {}
        self.producer: tuple[int, int] | None = (7, epoch)
        self._next_transaction()

    # The producer.

    def _next_transaction(self) -> None:
        self.sent: list[Batch] = []
        self.acked: set[Batch] = set()
        if self.version == 2 or not hasattr(self, "sequence"):
            self.sequence = 0
        self.numbers += 1
        self.number = self.numbers
        if self.producer is not None:
            self.number_of[self.producer] = self.number

    @precondition(lambda self: self.producer is not None)
    @rule()
    def send(self) -> None:
        assert self.producer is not None
        if self.version == 1 and not self._add(self.producer):
            return
        batch = Batch(self.producer, self.sequence, self.number)
        self.sequence += 1
        self.sent.append(batch)
        self.batches.append(batch)

    def _add(self, producer: tuple[int, int]) -> bool:
        decision = add_partitions(
            self.slot,
            producer,
            partitions=frozenset({T0}),
            bumps_epoch=self.version == 2,
            now_ms=self.now_ms,
        )
        self._write(decision)
        self.answer = decision if isinstance(decision, ErrorCode) else ErrorCode.NONE
        return self.answer is ErrorCode.NONE

    def _write(self, decision: object) -> None:
        if isinstance(decision, Transaction):
            self.slot.begin(decision)
            self.slot.appended()

    @precondition(lambda self: self.producer is not None and self.sent)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        """End the transaction: with batches in flight, which were given up, it can only be aborted."""
        assert self.producer is not None
        commit = commit and self.acked == {*self.sent}
        self.spare += 1
        decision = end(
            self.slot,
            self.producer,
            commit=commit,
            bumps_epoch=self.version == 2,
            spare_producer_id=self.spare,
            now_ms=self.now_ms,
        )
        self._write(decision)
        if isinstance(decision, Transaction) or decision is ErrorCode.NONE:
            current = self.slot.current
            if current.next_producer_id >= 0:
                self.producer = (current.next_producer_id, 0)
            elif self.version == 2:
                self.producer = current.producer
            self._next_transaction()
        elif decision is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self.producer = None  # it was fenced, or it may not do this: it is of no more use

    @rule()
    def take_over(self) -> None:
        """A new producer has the id, once what was going on is aborted."""
        self.spare += 1
        decision = init_producer_id(
            self.slot,
            expected=None,
            timeout_ms=1000,
            spare_producer_id=self.spare,
            now_ms=self.now_ms,
        )
        if isinstance(decision, Fence):
            self._write(self._abort())
        elif isinstance(decision, Transaction):
            self._write(decision)
            self.producer = decision.producer
            self.sequence = 0
            self._next_transaction()

    def _abort(self) -> Transaction:
        return abort_fenced(self.slot, bumps_epoch=self.version == 2, now_ms=self.now_ms)

    # The wire and the leader.

    @precondition(lambda self: self.batches)
    @rule(which=PICK, again=st.booleans())
    def deliver(self, which: int, again: bool) -> None:
        batch = self.batches[which % len(self.batches)]
        if not again:
            self.batches.remove(batch)
        guard = None
        if self.verifies:
            guard = self.leader.begin(batch, bumps_epoch=self.version == 2)
        if guard is None:
            self._append(batch, None)
        else:
            self.questions.append(Question(batch, guard))

    @precondition(lambda self: any(each.answer is None for each in self.questions))
    @rule(which=PICK)
    def ask(self, which: int) -> None:
        waiting = [each for each in self.questions if each.answer is None] or self.questions
        question = waiting[which % len(waiting)]
        producer = question.batch.producer
        if self.version == 2:
            self._add(producer)
            question.answer = self.answer
        else:
            verified = verify_partitions(self.slot, producer, partitions=frozenset({T0}))
            question.answer = verified[T0]

    @precondition(lambda self: any(each.answer is not None for each in self.questions))
    @rule(which=PICK)
    def take_answer(self, which: int) -> None:
        answered = [each for each in self.questions if each.answer is not None]
        question = answered[which % len(answered)]
        self.questions.remove(question)
        if question.answer is ErrorCode.NONE:
            self._append(question.batch, question.guard)

    def _append(self, batch: Batch, guard: VerificationGuard | None) -> None:
        if self.leader.append(batch, guard) and batch in self.sent:
            self.acked.add(batch)

    # The coordinator.

    @precondition(lambda self: self.slot.current.state.is_prepared)
    @rule(answered=st.booleans())
    def complete(self, answered: bool) -> None:
        """The marker is written; where that was not answered it is sent again later."""
        current = self.slot.current
        if T0 in current.partitions:
            epoch = current.producer_epoch
            owner = (current.producer_id, epoch - (epoch > 0 and current.bumps_epoch))
            marker = Marker(
                current.producer,
                commits=current.commits,
                bumped=current.bumps_epoch,
                number=self.number_of.get(owner, -1),
            )
            assert self.leader.end(marker), "the coordinator is heard"
            if self.version == 2:
                self.markers.append(marker)
        if answered:
            self._write(current.completed(now_ms=self.now_ms))

    @precondition(lambda self: self.markers)
    @rule(which=PICK)
    def deliver_late_marker(self, which: int) -> None:
        self.leader.end(self.markers[which % len(self.markers)])

    @rule()
    def wait(self) -> None:
        self.now_ms += 2000
        if time_out(self.slot, now_ms=self.now_ms):
            self._write(self._abort())

    @precondition(lambda self: self.producer is not None and not self.sent)
    @rule(commit=st.booleans())
    def all_is_well(self, commit: bool) -> None:
        """For once: so that there are many transactions for the rest to fall between."""
        self.send()
        if self.sent:
            self.deliver(which=self.batches.index(self.sent[0]), again=True)
        if self.questions:
            self.ask(which=-1)
            self.take_answer(which=-1)
        if self.sent:
            self.end(commit=commit)
        if self.slot.current.state.is_prepared:
            self.complete(answered=True)

    # What must hold.

    @invariant()
    def no_transaction_hangs(self) -> None:
        current = self.slot.current
        for producer_id in self.leader.open_transactions:
            assert current.state in OPEN, "no coordinator will end it"
            assert current.producer_id == producer_id
            assert T0 in current.partitions

    @invariant()
    def transactions_do_not_mix(self) -> None:
        if self.version == 1:
            return
        number = 0
        for entry in self.leader.entries:
            if isinstance(entry, Marker):
                assert number in (0, entry.number), "it ends what it was made for"
                number = 0
            else:
                assert number in (0, entry.number), "one transaction at a time"
                number = entry.number


class LateMessagesOfVersion1(LateMessages):
    version: ClassVar = 1


@pytest.mark.parametrize("machine", [LateMessages, LateMessagesOfVersion1])
def test_late_messages_neither_hang_a_transaction_nor_join_another(
    machine: Any,
) -> None:
    run_state_machine_as_test(machine, settings=FEW)


class WithoutVerification(LateMessagesOfVersion1):
    """The behaviour before KIP-890."""

    verifies: ClassVar = False


@pytest.mark.deep
def test_without_verification_transactions_hang() -> None:
    # The first that hangs ends it; which one that is differs from Python to Python.
    many = settings(FEW, max_examples=2000, phases=[Phase.generate])
    with pytest.raises(AssertionError, match="no coordinator will end it"):
        run_state_machine_as_test(WithoutVerification, settings=many)


@pytest.mark.parametrize("says_its_version", [True, False])
def test_a_late_marker_ends_the_next_transaction_where_it_does_not_say_its_version(
    says_its_version: bool,
) -> None:
    """It bears the epoch of the next one (KAFKA-19999)."""
    story = LateMessages()
    story.start(near_the_end=False)
    story.all_is_well(commit=True)
    story.send()
    story.deliver(which=-1, again=False)
    story.ask(which=0)
    story.take_answer(which=0)
    (late,) = story.markers
    assert story.leader.end(attrs.evolve(late, bumped=says_its_version)) is not says_its_version
    assert bool(story.leader.open_transactions) is says_its_version


@pytest.mark.parametrize(
    ("machine", "joins"), [(LateMessagesOfVersion1, True), (LateMessages, False)]
)
def test_a_late_batch_of_an_aborted_transaction(machine: type[LateMessages], joins: bool) -> None:
    """It finds the next one going on: only the epoch shows that it is of another."""
    story = machine()
    story.start(near_the_end=False)
    story.send()
    story.end(commit=False)
    story.complete(answered=True)
    story.sequence = 0  # of a producer that takes what it gave up for not sent
    story.send()
    story.deliver(which=0, again=False)
    while story.questions:
        story.ask(which=0)
        story.take_answer(which=0)
    late = [each for each in story.leader.entries if isinstance(each, Batch) and each.number == 1]
    assert bool(late) is joins
    assert bool(story.leader.open_transactions) is joins
