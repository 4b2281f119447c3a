"""Our Spark source beside Spark's own Kafka source: the same schema, rows and offsets.

Both read the same topics in the same session, of Apache Kafka's broker and of ours. The jar
comes from Maven.
"""

import contextlib
import functools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

import pyspark
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from replication.testing import ThreadedCluster
from tests.clients.sample import CODECS
from tests.interop.jars import KafkaNotFoundError, spark_kafka_jars
from tests.interop.kafka import Kafka

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
FIRST_MS = 1_700_000_000_000
PATIENCE_SECONDS = 900
BEFORE = "4.2.0"
PARTITIONS = 3
RECORDS = 300
BOTH, STAMPED, COMMITTED, AGED = "both", "stamped-by-broker", "in-transactions", "aged"

ALL = {"subscribe": BOTH}
BATCHES: Mapping[str, Mapping[str, str]] = {
    "all of a topic": ALL,
    "with headers": {**ALL, "includeHeaders": "true"},
    "several topics": {"subscribe": f"{BOTH},{STAMPED}"},
    "by a pattern": {"subscribePattern": "bo.*"},
    "some partitions": {"assign": f'{{"{BOTH}": [0, 2]}}'},
    "in many tasks": {**ALL, "minPartitions": "7"},
    "between offsets": {
        **ALL,
        "startingOffsets": f'{{"{BOTH}": {{"0": 5, "1": -2, "2": 20}}}}',
        "endingOffsets": f'{{"{BOTH}": {{"0": 9, "1": 4, "2": -1}}}}',
    },
    "between times": {
        **ALL,
        "startingTimestamp": str(FIRST_MS + 100_000),
        "endingTimestamp": str(FIRST_MS + 200_500),
    },
    "up to a time that never came": {**ALL, "endingTimestamp": str(2 * FIRST_MS)},
    "between times of each partition": {
        **ALL,
        "startingOffsetsByTimestamp": json.dumps(
            {BOTH: {str(each): FIRST_MS + 50_000 * each for each in range(PARTITIONS)}}
        ),
        "endingOffsetsByTimestamp": json.dumps(
            {BOTH: {str(each): FIRST_MS + 250_000 for each in range(PARTITIONS)}}
        ),
    },
    "from a time that never came, leniently": {
        **ALL,
        "startingTimestamp": str(2 * FIRST_MS),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time counts before offsets": {
        **ALL,
        "startingTimestamp": str(FIRST_MS + 280_000),
        "startingOffsets": "earliest",
    },
    "timestamps of the broker's": {"subscribe": STAMPED},
    "aborted transactions too": {"subscribe": COMMITTED},
    "what is committed": {"subscribe": COMMITTED, "kafka.isolation.level": "read_committed"},
    "what has not aged out": {
        "subscribe": AGED,
        "startingOffsets": f'{{"{AGED}": {{"0": 2}}}}',
        "failOnDataLoss": "false",
    },
}
REFUSED: Mapping[str, Mapping[str, str]] = {
    "no topic": {},
    "two ways to say which": {**ALL, "subscribePattern": "b.*"},
    "a topic that is not there": {"subscribe": "nowhere"},
    "a batch from the latest on": {**ALL, "startingOffsets": "latest"},
    "a batch up to the earliest": {**ALL, "endingOffsets": "earliest"},
    "offsets of some partitions": {**ALL, "startingOffsets": f'{{"{BOTH}": {{"0": 5}}}}'},
    "offsets of a partition too many": {
        **ALL,
        "startingOffsets": f'{{"{BOTH}": {{"0": 0, "1": 0, "2": 0, "3": 0}}}}',
    },
    "offsets that are no JSON": {**ALL, "startingOffsets": "sometimes"},
    "a time that never came": {**ALL, "startingTimestamp": str(2 * FIRST_MS)},
    "what has aged out": {"subscribe": AGED, "startingOffsets": f'{{"{AGED}": {{"0": 2}}}}'},
    "a consumer's own offsets": {**ALL, "kafka.auto.offset.reset": "latest"},
    "a deserializer": {**ALL, "kafka.key.deserializer": "a.b.C"},
}
STREAMS: Mapping[str, Mapping[str, str]] = {
    "all at once": {**ALL, "startingOffsets": "earliest", "includeHeaders": "true"},
    "so many at a time": {**ALL, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"},
    "of partitions of all sizes": {
        "subscribe": f"{BOTH},{STAMPED},{AGED}",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "50",
    },
    "from offsets on": {**ALL, "startingOffsets": f'{{"{BOTH}": {{"0": 5, "1": -1, "2": -2}}}}'},
    "from a time on": {**ALL, "startingTimestamp": str(FIRST_MS + 200_000)},
    "what is committed": {
        "subscribe": COMMITTED,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    },
}
ASKED = [
    *(("batch", what) for what in BATCHES),
    *(("stream", what) for what in STREAMS),
    ("written", "a table"),
]


def fill(servers: str) -> None:
    """Write the topics: every codec, nulls, headers, both kinds of timestamps, holes."""
    admin = AdminClient({"bootstrap.servers": servers})
    stamped = {"message.timestamp.type": "LogAppendTime"}
    topics = [
        # Its records are of a year that retention would not keep.
        NewTopic(BOTH, PARTITIONS, 1, config={"retention.ms": "-1"}),
        NewTopic(STAMPED, 1, 1, config=stamped),
        NewTopic(COMMITTED, 1, 1),
        NewTopic(AGED, 1, 1),
        *(NewTopic(f"to-{source}", 2, 1) for source in ("kafka", "understudy")),
    ]
    for done in admin.create_topics(topics).values():
        done.result()
    for place, codec in enumerate(CODECS):
        produce(servers, range(place, RECORDS, len(CODECS)), {"compression.type": codec})
    produce_in_transactions(servers)
    for cut in admin.delete_records([TopicPartition(AGED, 0, 7)]).values():
        cut.result()


def produce(servers: str, numbers: range, more: Mapping[str, str]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0, **more})
    for number in numbers:
        producer.produce(
            BOTH,
            None if number % 11 == 0 else b"value %d " % number * 10,
            None if number % 7 == 0 else b"key %d" % number,
            partition=number % PARTITIONS,
            timestamp=FIRST_MS + 1000 * number,
            headers=[("h", b"%d" % number), ("h", None), ("", b"")] if number % 4 == 0 else [],
        )
        for topic in (STAMPED, AGED):
            producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def produce_in_transactions(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for value in (b"one", b"two"):
            producer.produce(COMMITTED, b"%s of %d" % (value, number), partition=0)
        end = producer.abort_transaction if number % 3 == 1 else producer.commit_transaction
        end(60)


@pytest.fixture(scope="module", params=["Apache Kafka's broker", "our broker"])
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Yield the answers of both sources, from one driver for all questions."""
    jars = their_jars()
    with contextlib.ExitStack() as running:
        cluster: Kafka | ThreadedCluster
        if request.param == "our broker":
            cluster = running.enter_context(ThreadedCluster(brokers=1))
        else:
            cluster = request.getfixturevalue("kafka")
        fill(cluster.bootstrap_servers)
        yield ask(jars, cluster.bootstrap_servers, tmp_path_factory.mktemp("driver"))


def ask(jars: list[str], servers: str, directory: Path) -> Any:
    """Return the driver's answers."""
    whence = {"kafka.bootstrap.servers": servers}
    questions = {
        "batch": {what: {**whence, **asked} for what, asked in {**BATCHES, **REFUSED}.items()},
        "stream": {what: {**whence, **asked} for what, asked in STREAMS.items()},
        "written": {"a table": whence},
    }
    submitted = shlex.join(["--jars", ",".join(jars), "pyspark-shell"])
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.spark_both"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": submitted},
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def their_jars() -> list[str]:
    """Return Kafka's jars for this Spark, or for the one before if Maven has none yet."""
    at_hand = Path(pyspark.__file__).parent / "jars"
    said = ""
    for version in (pyspark.__version__, BEFORE):
        try:
            return spark_kafka_jars(version, at_hand)
        except KafkaNotFoundError as error:
            said = str(error)
    pytest.skip(f"Spark's own Kafka source comes from Maven: {said}")


@pytest.mark.parametrize(("kind", "what"), ASKED)
def test_both_sources_say_the_same(answers: Any, kind: str, what: str) -> None:
    theirs, ours = (answers[kind][what][source] for source in ("kafka", "understudy"))
    assert "refused" not in theirs, theirs
    assert ours == theirs


def test_there_is_something_to_compare(answers: Any) -> None:
    assert len(answers["batch"]["all of a topic"]["kafka"]["rows"]) == RECORDS
    counts = {
        what: len(sides["kafka"]["rows"])
        for what, sides in answers["batch"].items()
        if what in BATCHES
    }
    assert [what for what, count in counts.items() if not count] == [
        "from a time that never came, leniently"
    ]


@pytest.mark.parametrize("what", REFUSED)
def test_both_refuse(answers: Any, what: str) -> None:
    said = answers["batch"][what]
    assert [source for source in said if "refused" not in said[source]] == []
