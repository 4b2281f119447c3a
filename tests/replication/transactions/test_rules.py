"""The decisions about a transactional id, by tables and at random.

The file is long because the table of decisions is in it.
"""

import random
from itertools import pairwise
from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.transactions.rules.decisions import (
    Fence,
    Slot,
    abort_fenced,
    add_partitions,
    created,
    end,
    has_expired,
    init_producer_id,
    time_out,
    verify_partitions,
)
from replication.transactions.rules.records import key_of, parse, value_of
from replication.transactions.rules.transaction import Transaction, TransactionState
from storage.batch.record_batch import MAX_PRODUCER_EPOCH
from storage.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SPARE = 99


def slot(state: TransactionState = TransactionState.EMPTY, *, epoch: int = 3, **more: Any) -> Slot:
    fresh = created("tx", producer_id=7, timeout_ms=1000, now_ms=0)
    return Slot(attrs.evolve(fresh, producer_epoch=epoch, state=state, started_ms=100, **more))


def init(
    at: Slot, expected: tuple[int, int] | None = None, *, now_ms: int = 500
) -> ErrorCode | Transaction | Fence:
    return init_producer_id(
        at, expected=expected, timeout_ms=2000, spare_producer_id=SPARE, now_ms=now_ms
    )


def ending(
    at: Slot | None,
    *,
    commit: bool = True,
    producer: tuple[int, int] = (7, 3),
    bumps_epoch: bool = False,
) -> ErrorCode | Transaction:
    return end(
        at,
        producer,
        commit=commit,
        bumps_epoch=bumps_epoch,
        spare_producer_id=SPARE,
        now_ms=500,
    )


def adding(
    at: Slot | None, *partitions: TopicPartition, producer: tuple[int, int] = (7, 3)
) -> ErrorCode | Transaction:
    return add_partitions(
        at,
        producer,
        partitions=frozenset(partitions),
        now_ms=500,
    )


def transaction_of(decision: object) -> Transaction:
    assert isinstance(decision, Transaction), decision
    return decision


def write(at: Slot, transaction: Transaction) -> Transaction:
    at.begin(transaction)
    return at.appended()


# InitProducerId.


def test_a_new_id_begins_with_epoch_0() -> None:
    decision = transaction_of(init(Slot(created("tx", producer_id=7, timeout_ms=1000, now_ms=0))))
    assert (decision.producer_id, decision.producer_epoch, decision.timeout_ms) == (7, 0, 2000)


@pytest.mark.parametrize(
    "state",
    [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT],
)
def test_a_producer_that_begins_gets_the_next_epoch(state: TransactionState) -> None:
    decision = transaction_of(init(slot(state)))
    assert (decision.producer_epoch, decision.state) == (4, TransactionState.EMPTY)
    assert (decision.started_ms, decision.partitions) == (-1, frozenset())


@pytest.mark.parametrize(
    ("expected", "epoch"),
    [
        pytest.param((7, 3), 4, id="it goes on"),
        pytest.param((7, 2), 3, id="it asks again after a lost answer"),
        pytest.param((7, 1), ErrorCode.PRODUCER_FENCED, id="another has taken over"),
        pytest.param((8, 3), ErrorCode.PRODUCER_FENCED, id="another producer id"),
    ],
)
def test_a_producer_that_continues_after_an_error_names_its_epoch(
    expected: tuple[int, int], epoch: int | ErrorCode
) -> None:
    decision = init(slot(last_producer_epoch=2), expected)
    assert (decision.producer_epoch if isinstance(decision, Transaction) else decision) == epoch


def test_when_epochs_run_out_there_is_a_new_producer_id() -> None:
    last = slot(epoch=MAX_PRODUCER_EPOCH - 1)
    decision = transaction_of(init(last, (7, MAX_PRODUCER_EPOCH - 1)))
    assert decision.producer == (SPARE, 0)
    write(last, decision)
    # The answer was lost; it asks again as who it was.
    again = transaction_of(init(last, (7, MAX_PRODUCER_EPOCH - 1)))
    assert again.producer == (SPARE, 0)


def test_an_ongoing_transaction_is_aborted_first_under_an_epoch_without_a_producer() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    assert init(ongoing) == Fence(4)
    assert init(ongoing) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert adding(ongoing, T1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert ending(ongoing) is ErrorCode.CONCURRENT_TRANSACTIONS
    aborting = ongoing.begin(abort_fenced(ongoing, now_ms=600))
    assert (aborting.producer_epoch, aborting.state) == (4, TransactionState.PREPARE_ABORT)
    assert aborting.partitions == {T0}
    ongoing.appended()
    assert ending(ongoing) is ErrorCode.PRODUCER_FENCED
    assert init(ongoing) is ErrorCode.CONCURRENT_TRANSACTIONS
    write(ongoing, ongoing.current.completed(now_ms=700))
    decision = transaction_of(init(ongoing))
    assert decision.producer_epoch == 5


def test_a_fence_that_could_not_be_written_costs_one_epoch_in_all() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    for _ in range(3):
        assert init(ongoing) == Fence(4)
        ongoing.begin(abort_fenced(ongoing, now_ms=600))
        ongoing.failed()
        assert ongoing.current.state is TransactionState.ONGOING
    assert ending(ongoing) is ErrorCode.PRODUCER_FENCED, "the old owner is out all the same"


# AddPartitionsToTxn.


def test_partitions_are_written_down_before_they_are_written_to() -> None:
    empty = slot()
    first = transaction_of(adding(empty, T0))
    assert (first.state, first.started_ms) == (TransactionState.ONGOING, 500)
    assert first.partitions == {T0}
    empty.begin(first)
    assert adding(empty, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
    empty.appended()
    assert adding(empty, T0) is ErrorCode.NONE
    second = transaction_of(adding(empty, T1))
    assert second.partitions == {T0, T1}
    assert second.started_ms == 500


@pytest.mark.parametrize(
    ("at", "producer", "error"),
    [
        (None, (7, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (slot(), (8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (slot(), (7, 2), ErrorCode.PRODUCER_FENCED),
        (slot(TransactionState.PREPARE_COMMIT), (7, 3), ErrorCode.CONCURRENT_TRANSACTIONS),
        (slot(TransactionState.PREPARE_ABORT), (7, 3), ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_refused_producers_add_no_partitions(
    at: Slot | None, producer: tuple[int, int], error: ErrorCode
) -> None:
    assert adding(at, T0, producer=producer) is error
    assert verify_partitions(at, producer, partitions=frozenset({T0})) == {T0: error}


def test_a_leader_verifies_that_a_partition_is_in_the_transaction() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    assert verify_partitions(ongoing, (7, 3), partitions=frozenset({T0, T1})) == {
        T0: ErrorCode.NONE,
        T1: ErrorCode.TRANSACTION_ABORTABLE,
    }


# EndTxn.


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_two_steps(commit: bool) -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    prepared = transaction_of(ending(ongoing, commit=commit))
    assert (prepared.commits, prepared.producer_epoch) == (commit, 3)
    assert prepared.partitions == {T0}
    write(ongoing, prepared)
    assert ending(ongoing, commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert ending(ongoing, commit=not commit) is ErrorCode.INVALID_TXN_STATE
    done = ongoing.begin(prepared.completed(now_ms=600))
    assert (done.partitions, done.state.is_at_rest) == (frozenset(), True)
    ongoing.appended()
    assert ending(ongoing, commit=commit) is ErrorCode.NONE
    assert ending(ongoing, commit=not commit) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("at", "producer", "error"),
    [
        (None, (7, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (slot(TransactionState.ONGOING), (8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (slot(TransactionState.ONGOING), (7, 2), ErrorCode.PRODUCER_FENCED),
        (slot(TransactionState.ONGOING), (7, 4), ErrorCode.PRODUCER_FENCED),
        (slot(), (7, 3), ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_refused_producers_end_no_transaction(
    at: Slot | None, producer: tuple[int, int], error: ErrorCode
) -> None:
    assert ending(at, producer=producer) is error


def test_in_version_2_each_end_gives_the_next_epoch() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    prepared = transaction_of(ending(ongoing, bumps_epoch=True))
    assert (prepared.producer_epoch, prepared.last_producer_epoch) == (4, 3)
    write(ongoing, prepared)
    assert ending(ongoing, bumps_epoch=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    write(ongoing, prepared.completed(now_ms=600))
    assert ending(ongoing, bumps_epoch=True) is ErrorCode.NONE, "it asks again"
    assert ending(ongoing, bumps_epoch=True, producer=(7, 2)) is ErrorCode.PRODUCER_FENCED


FENCED, NOT_SO = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("state", "epoch", "commit", "decision"),
    [
        (TransactionState.EMPTY, 2, False, FENCED),
        (TransactionState.EMPTY, 2, True, FENCED),
        (TransactionState.EMPTY, 3, False, 4),
        (TransactionState.EMPTY, 3, True, NOT_SO),
        (TransactionState.COMPLETE_ABORT, 2, False, ErrorCode.NONE),
        (TransactionState.COMPLETE_ABORT, 2, True, NOT_SO),
        (TransactionState.COMPLETE_ABORT, 3, False, 4),
        (TransactionState.COMPLETE_ABORT, 3, True, NOT_SO),
        (TransactionState.COMPLETE_COMMIT, 2, False, NOT_SO),
        (TransactionState.COMPLETE_COMMIT, 2, True, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, 3, False, 4),
        (TransactionState.COMPLETE_COMMIT, 3, True, NOT_SO),
        (TransactionState.COMPLETE_COMMIT, 4, True, FENCED),
        (TransactionState.ONGOING, 2, True, FENCED),
    ],
)
def test_in_version_2_a_repeated_end_has_the_epoch_before(
    state: TransactionState, epoch: int, commit: bool, decision: ErrorCode | int
) -> None:
    """The table above TransactionCoordinator.endTransaction in Kafka."""
    at = slot(state, bumps_epoch=True)
    decided = ending(at, producer=(7, epoch), commit=commit, bumps_epoch=True)
    assert (decided.producer_epoch if isinstance(decided, Transaction) else decided) == decision


def test_an_end_of_version_1_gives_no_epoch_and_is_not_repeated_with_the_one_before() -> None:
    done = slot(TransactionState.COMPLETE_COMMIT, bumps_epoch=False)
    assert ending(done, producer=(7, 2), bumps_epoch=True) is ErrorCode.PRODUCER_FENCED


def test_in_version_2_a_transaction_without_partitions_can_be_aborted() -> None:
    empty = slot()
    prepared = empty.begin(transaction_of(ending(empty, commit=False, bumps_epoch=True)))
    assert (prepared.state, prepared.partitions) == (TransactionState.PREPARE_ABORT, frozenset())
    assert prepared.started_ms == 500
    empty.appended()
    assert adding(empty, T0, producer=(7, 4)) is ErrorCode.CONCURRENT_TRANSACTIONS
    write(empty, prepared.completed(now_ms=600))
    assert isinstance(adding(empty, T0, producer=(7, 4)), Transaction)


def test_in_version_2_a_timed_out_producer_continues_by_aborting() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    assert time_out(ongoing, now_ms=1101)
    aborting = ongoing.begin(abort_fenced(ongoing, bumps_epoch=True, now_ms=1101))
    assert (aborting.producer_epoch, aborting.bumps_epoch) == (4, True)
    ongoing.appended()
    write(ongoing, aborting.completed(now_ms=1200))
    assert ending(ongoing, commit=True, bumps_epoch=True) is ErrorCode.INVALID_TXN_STATE
    assert ending(ongoing, commit=False, bumps_epoch=True) is ErrorCode.NONE
    assert ending(ongoing, commit=False) is ErrorCode.PRODUCER_FENCED, "of version 1"


def test_in_version_2_no_producer_receives_the_last_epoch() -> None:
    last = MAX_PRODUCER_EPOCH - 1
    ongoing = slot(TransactionState.ONGOING, epoch=last, partitions=frozenset({T0}))
    assert time_out(ongoing, now_ms=1101)
    aborting = ongoing.begin(abort_fenced(ongoing, bumps_epoch=True, now_ms=1101))
    ongoing.appended()
    write(ongoing, aborting.completed(now_ms=1200))
    assert ongoing.current.producer_epoch == MAX_PRODUCER_EPOCH
    for producer in ((7, last), (7, MAX_PRODUCER_EPOCH)):
        decision = ending(ongoing, producer=producer, commit=False, bumps_epoch=True)
        assert decision is ErrorCode.PRODUCER_FENCED
    assert transaction_of(init(ongoing)).producer_id == SPARE


def test_in_version_2_epochs_run_out_with_the_next_producer_id_at_hand() -> None:
    last = MAX_PRODUCER_EPOCH - 1
    ongoing = slot(TransactionState.ONGOING, epoch=last, partitions=frozenset({T0}))
    prepared = transaction_of(ending(ongoing, producer=(7, last), bumps_epoch=True))
    assert (prepared.producer_epoch, prepared.next_producer_id) == (MAX_PRODUCER_EPOCH, SPARE)
    write(ongoing, prepared)
    done = ongoing.begin(prepared.completed(now_ms=600))
    assert done.producer == (SPARE, 0)
    ongoing.appended()
    assert ending(ongoing, producer=(7, last), bumps_epoch=True) is ErrorCode.NONE
    assert adding(ongoing, T0, producer=(7, last)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = transaction_of(init(ongoing, (7, last)))
    assert again.producer == (SPARE, 0), "KIP-360, after a lost answer"


# Time.


def test_a_transaction_that_goes_on_for_too_long_is_aborted() -> None:
    ongoing = slot(TransactionState.ONGOING, partitions=frozenset({T0}))
    assert not time_out(ongoing, now_ms=1100)
    assert time_out(ongoing, now_ms=1101)
    assert not time_out(ongoing, now_ms=1101), "once"
    assert abort_fenced(ongoing, now_ms=1101).producer_epoch == 4
    assert not time_out(slot(), now_ms=10**9)


def test_an_idle_id_expires() -> None:
    assert has_expired(slot(updated_ms=1000), expiration_ms=500, now_ms=1500)
    assert not has_expired(slot(updated_ms=1000), expiration_ms=500, now_ms=1499)
    ongoing = slot(TransactionState.ONGOING, updated_ms=1000)
    assert not has_expired(ongoing, expiration_ms=500, now_ms=10**9)


# By chance.


@attrs.define(eq=False)
class Owner:
    """A producer: what it believes to be, and the answers that it may get."""

    producer: tuple[int, int] | None = None
    begun: bool = False
    bumps_epoch: bool = False


@attrs.define(eq=False)
class Story:
    """Three producers, of both versions, that want the same transactional id, a coordinator that
    may die at any time, and a log.

    What must hold: a producer whose commit was answered was the last to be given an epoch; and
    what the log says is what the coordinator goes by.
    """

    chance: random.Random
    slot: Slot
    log: list[bytes] = attrs.field(factory=list)
    owners: list[Owner] = attrs.field(
        factory=lambda: [Owner(), Owner(bumps_epoch=True), Owner(bumps_epoch=True)]
    )
    given: list[tuple[int, int]] = attrs.field(factory=list)
    now_ms: int = 0
    spare: int = 100
    committed: int = 0
    waiting: tuple[Owner, str] | None = None

    def step(self) -> None:
        self.now_ms += self.chance.choice((1, 10, 2000))
        happening = self.chance.choices(
            (self.ask, self.write, self.lose, self.die, self.tick), (6, 6, 1, 1, 1)
        )[0]
        happening()

    def ask(self) -> None:
        owner = self.chance.choice(self.owners)
        what = self.chance.choices(("init", "go on", "add", "commit", "abort"), (1, 1, 4, 4, 1))[0]
        decision = self._decision(owner, what)
        if isinstance(decision, Transaction):
            self.slot.begin(decision)
            self.waiting = (owner, what)
        elif isinstance(decision, Fence):
            self.slot.begin(self._abort())
        elif decision is ErrorCode.NONE:
            self._answered(owner, what)
        elif decision in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            owner.producer, owner.begun = None, False

    def _decision(self, owner: Owner, what: str) -> ErrorCode | Transaction | Fence:
        self.spare += 1
        expected = None if what == "init" else owner.producer
        if what in ("init", "go on"):
            return init_producer_id(
                self.slot,
                expected=expected,
                timeout_ms=1000,
                spare_producer_id=self.spare,
                now_ms=self.now_ms,
            )
        if owner.producer is None:
            return ErrorCode.INVALID_TXN_STATE
        if what == "add":
            return adding(self.slot, T0, producer=owner.producer)
        return end(
            self.slot,
            owner.producer,
            commit=what == "commit",
            bumps_epoch=owner.bumps_epoch,
            spare_producer_id=self.spare,
            now_ms=self.now_ms,
        )

    def _answered(self, owner: Owner, what: str) -> None:
        current = self.slot.current
        if what in ("init", "go on"):
            owner.producer, owner.begun = current.producer, False
            self.given.append(owner.producer)
        elif what == "add":
            owner.begun = True
        else:
            if what == "commit" and owner.begun:
                assert owner.producer == self.given[-1], "no other producer got an epoch meanwhile"
                self.committed += 1
            owner.begun = False
            if owner.bumps_epoch:
                rotates = current.next_producer_id >= 0
                owner.producer = (current.next_producer_id, 0) if rotates else current.producer
                self.given.append(owner.producer)

    def write(self) -> None:
        if self.slot.pending is not None:
            self.log.append(value_of(self.slot.pending))
            self.slot.appended()
            waiting, self.waiting = self.waiting, None
            if waiting is not None:
                self._answered(*waiting)
        elif self.slot.current.state.is_prepared:
            self.slot.begin(self.slot.current.completed(now_ms=self.now_ms))

    def lose(self) -> None:
        if self.slot.pending is not None:
            self.slot.failed()
            self.waiting = None

    def die(self) -> None:
        """Kill the coordinator: the pending change may be in the log or not; the next one reads it."""
        if self.slot.pending is not None and self.chance.random() < 0.5:
            self.log.append(value_of(self.slot.pending))
        self.waiting = None
        if not self.log:
            self.slot = Slot(created("tx", producer_id=7, timeout_ms=1000, now_ms=0))
            return
        self.slot = Slot(_read(self.log[-1]))

    def tick(self) -> None:
        if time_out(self.slot, now_ms=self.now_ms):
            self.slot.begin(self._abort())

    def _abort(self) -> Transaction:
        bumps_epoch = self.chance.random() < 0.5
        return abort_fenced(self.slot, bumps_epoch=bumps_epoch, now_ms=self.now_ms)


def test_only_the_last_producer_to_begin_commits() -> None:
    committed = 0
    for seed in range(150):
        first = created("tx", producer_id=7, timeout_ms=1000, now_ms=0)
        # Now and then epochs are about to run out.
        near = seed % 3 == 0
        story = Story(
            random.Random(seed),
            Slot(attrs.evolve(first, producer_epoch=MAX_PRODUCER_EPOCH - 6) if near else first),
        )
        for _ in range(300):
            story.step()
        committed += story.committed
        epochs = [_read(value) for value in story.log]
        for before, after in pairwise(epochs):
            if before.producer_id == after.producer_id:
                assert before.producer_epoch <= after.producer_epoch, "epochs never go back"
            if before.state.is_prepared:
                assert after.state.is_at_rest, "what is prepared is done"
    assert committed > 100


def _read(value: bytes) -> Transaction:
    entry = parse(key_of("tx"), value)
    assert entry is not None
    assert entry.transaction is not None
    return entry.transaction
