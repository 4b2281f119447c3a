"""A reader that advances only by the records it receives gets to the end of every compacted log.

    ask at 5 ──> [3: k3 .. ..][6: k7]    the records at 5 or after: 7    ask at 8 ──> ...

So do kafkajs and kafka-go. Against it stands what the log holds, batch by batch.
"""

import random
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import (
    FetchInfo,
    FetchParams,
    Isolation,
)
from replication.leader.rules.log_reader import LogReader
from replication.wire.fetch import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, walk
from storage.batch.records import decode_batch
from storage.log import empty_batches
from storage.log.log import Log
from storage.types import Offset
from tests.replication.replica_manager.replica_manager_side import CLOCK
from tests.replication.replica_manager.test_compaction import (
    ALONE,
    BACKOFF,
    COMPACTED,
    log_of,
    node,
    write,
)
from tests.storage.cleaning import clean, compacted, end_transaction, put, roll
from tests.storage.logs import TP, WALL_MS, batch as producer_batch, contents, headers, new_disk

END: dict[Isolation, str] = {
    Isolation.HIGH_WATERMARK: "high_watermark",
    Isolation.LAST_STABLE: "last_stable_offset",
}


def offsets_in(data: bytes) -> list[Offset]:
    return [
        record.offset
        for position, header in walk(data)
        for record in decode_batch(data[position : position + header.size])
    ]


@attrs.frozen
class Shape:
    """What a log goes through: Hypothesis's own lists are too short to be compacted often."""

    seed: int
    segment_bytes: int
    codec: Codec
    # Of all steps, how many are rounds of compaction, or end a segment.
    rounds: float
    rolls: float

    def log(self) -> Log:
        """Return a log that producers of all kinds have written to, and that was compacted."""
        chance, checkpoint, wall_ms = random.Random(self.seed), 0, WALL_MS
        config = compacted(segment_bytes=self.segment_bytes, delete_retention_ms=5)
        log = Log.open(new_disk(), "/d/t-0", TP, config=config)
        for number in range(chance.randint(1, 60)):
            kind = chance.random()
            if kind < self.rounds:
                wall_ms += chance.choice([0, 10])
                checkpoint = clean(log, checkpoint=checkpoint, wall_ms=wall_ms).end_offset
            elif kind < self.rounds + self.rolls:
                roll(log)
            else:
                self._write(log, number, chance)
        roll(log)
        clean(log, checkpoint=checkpoint, wall_ms=wall_ms)
        return log

    def _write(self, log: Log, number: int, chance: random.Random) -> None:
        keys = [*(b"%d" % n for n in range(3)), b"only %d" % number, None]
        weights = [8, 4, 2, 1, 1]
        some = [
            (key, chance.choice([b"", b"value", bytes(90), None]))
            for key in chance.choices(keys, weights, k=chance.choice([1, 1, 2, 6]))
        ]
        producer = chance.choice([None, 7, number + 100, number + 200])
        transactional = producer is not None and producer >= 200
        options: dict[str, Any] = {}
        if producer is not None:
            known = log.producers.producers.get(producer)
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": known.last_sequence + 1 if known else 0,
                "transactional": transactional,
            }
        put(log, *some, at=log.log_end_offset, codec=self.codec, **options)
        if producer is not None and transactional and chance.random() < 0.97:
            end_transaction(log, producer, commit=chance.random() < 0.5)


shapes = st.builds(
    Shape,
    st.integers(0, 2**32),
    st.sampled_from([400, 900, 1 << 20]),
    st.sampled_from(Codec),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.sampled_from([0.0, 0.1, 0.5]),
)
some_bytes = st.sampled_from([0, 1, 61, 100, 300, 1 << 20])


@given(
    shape=shapes, max_bytes=some_bytes, isolation=st.sampled_from(list(END)), patient=st.booleans()
)
def test_a_reader_that_goes_by_records_receives_every_record(
    shape: Shape, max_bytes: int, isolation: Isolation, patient: bool
) -> None:
    log = shape.log()
    with pytest.MonkeyPatch.context() as patching:
        if patient:
            patching.setattr(empty_batches, "MOST_BYTES", 2 * HEADER_SIZE)
            patching.setattr(empty_batches, "_SEGMENT_COST", HEADER_SIZE)
        reader, end = LogReader(log), getattr(log, END[isolation])
        first = random.Random(shape.seed).choice([0, 0, log.log_end_offset // 2])
        there = [offset for offset in offsets_in(contents(log)) if first <= offset < end]
        offset, received, asked_again = first, [], 0
        while offset < end:
            answer = reader.read(
                FetchInfo(offset), isolation, max_bytes=max_bytes, min_one=True, passes_empty=True
            )
            data = b"" if answer.records is None else answer.records.read()
            new = [each for each in offsets_in(data) if each >= offset]
            received += new
            batches = [header for _, header in walk(data)]
            if batches and batches[-1].record_count == 0 and not patient:
                assert not [each for each in there if each > batches[-1].last_offset]
            if new:
                offset, asked_again = new[-1] + 1, 0
            elif patient and asked_again < 70:
                asked_again += 1
            else:
                break
        assert received == there


@given(shape=shapes, max_bytes=some_bytes, passes_empty=st.booleans())
def test_a_reader_that_goes_by_headers_gets_to_the_end_and_a_follower_has_every_batch(
    shape: Shape, max_bytes: int, passes_empty: bool
) -> None:
    log = shape.log()
    offset, found = 0, []
    while offset < log.log_end_offset:
        answer = LogReader(log).read(
            FetchInfo(offset),
            Isolation.HIGH_WATERMARK if passes_empty else Isolation.LOG_END,
            max_bytes=max_bytes,
            min_one=True,
            passes_empty=passes_empty,
        )
        assert answer.records is not None
        batches = [header for _, header in walk(answer.records.read())]
        found += batches
        offset = batches[-1].next_offset
    whole = headers(log)
    if passes_empty:
        assert found[-1:] == whole[-1:]
        whole = [each for each in whole if each.record_count]
        found = [each for each in found if each.record_count]
    assert found == whole


# In a broker.


@pytest.mark.parametrize("replica", [CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID])
async def test_a_consumer_is_not_stopped_by_an_empty_batch(
    replica: int, autojump_clock: MockClock
) -> None:
    """kafkajs 2.2.4 and kafka-go 0.4.51 stayed at such a batch."""
    params = FetchParams(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation=Isolation.HIGH_WATERMARK,
    )
    async with node().running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        for producer in range(4):
            records = producer_batch(
                key=b"k", size=150, producer_id=producer, producer_epoch=0, base_sequence=0
            )
            assert (await broker.produce(records=records)).error is ErrorCode.NONE
        await write(broker, 3)
        await CLOCK.sleep(BACKOFF + 1)
        found = [(each.base_offset, each.record_count) for each in headers(log_of(broker))]
        assert found == [(0, 0), (1, 0), (2, 0), (3, 0), (5, 1), (6, 1)]
        answers = []
        for offset in range(7):
            info = FetchInfo(offset, max_bytes=1)
            [(_, answer)] = await broker.fetch(params, p0=info)
            assert answer.records is not None
            [(_, header)] = walk(answer.records.read())
            answers.append(header.base_offset)
        if replica == CONSUMER_REPLICA_ID:
            assert answers == [5, 5, 5, 5, 5, 5, 6]
        else:
            assert answers == [0, 1, 2, 3, 5, 5, 6]
