"""kafkajs and kafka-go read a compacted topic to its end, from our broker and from Apache Kafka's.

Both advance only by the records that they receive. Node with npm, and Go, are used where they are
found; the libraries come from npm's registry and Go's module proxy on the first run.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.java import cache_directory
from replication.cli.isolated import IsolatedCluster
from storage.types import Offset, TopicPartition
from tests.interop.kafka import Kafka
from tests.interop.written import cleaned

pytestmark = [pytest.mark.interop, pytest.mark.slow]

READERS: Final = Path(__file__).with_name("readers")
KAFKAJS: Final = "kafkajs@2.2.4"
RECORDS: Final = 40_000
SECONDS: Final = 60.0
CONFIG: Final = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "8388608",
}
TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
}
# Of a record by its number: its key, and the idempotent producer that sends it, if one does.
Written = tuple[str, int | None]


def nothing_is_left_of_the_first_half(number: int) -> Written:
    return f"{number % (RECORDS // 2)}", None


def a_stretch_of_each_segment_is_gone(number: int) -> Written:
    return ("again" if number % 5000 < 4900 else f"only {number}"), None


def producers_leave_empty_batches(number: int) -> Written:
    """Their last batches stay, empty, between those with records."""
    producer, within = divmod(number, 5000)
    return (f"again {within}", producer) if within < 100 else (f"{number}", None)


SHAPES: Final[list[Callable[[int], Written]]] = [
    nothing_is_left_of_the_first_half,
    a_stretch_of_each_segment_is_gone,
    producers_leave_empty_batches,
]


@attrs.frozen
class Broker:
    """A broker with a compacted topic of each shape, and the offsets of what is left in each."""

    servers: str
    is_ours: bool
    left: dict[str, list[Offset]]


@pytest.fixture(scope="module", params=["ours", "apache kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("read-by-others")
    if request.param == "ours":
        with IsolatedCluster(directory, brokers=1, config=CONFIG) as cluster:
            cluster.wait_until_ready()
            yield with_topics(cluster.bootstrap_servers, cluster.log_dir(1), is_ours=True)
    else:
        properties = {**CONFIG, "log.initial.task.delay.ms": "0"}
        with Kafka(data_dir=directory, properties=properties) as kafka:
            yield with_topics(kafka.bootstrap_servers, kafka.log_dirs[1], is_ours=False)


def with_topics(servers: str, log_dir: Path, *, is_ours: bool) -> Broker:
    left = {}
    for shape in SHAPES:
        fill(servers, shape.__name__, shape)
        end = until_cleaned(log_dir, shape.__name__)
        last = {shape(number)[0]: number for number in range(end)}
        left[shape.__name__] = [*sorted(last.values()), *range(end, RECORDS)]
    return Broker(servers, is_ours, left)


@pytest.fixture(scope="session")
def kafkajs() -> list[str]:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("kafkajs needs node and npm on PATH")
    home = cache_directory() / KAFKAJS.replace("@", "-")
    if not (home / "node_modules/kafkajs").exists():
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), KAFKAJS]
        subprocess.run(install, check=True, timeout=SECONDS)
    return ["env", f"NODE_PATH={home / 'node_modules'}", "node", str(READERS / "kafkajs.js")]


@pytest.fixture(scope="session")
def kafka_go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("kafka-go needs go on PATH")
    built = tmp_path_factory.mktemp("kafka-go") / "reader"
    build = ["go", "build", "-o", str(built), "."]
    subprocess.run(build, cwd=READERS / "kafkago", check=True, timeout=2 * SECONDS)
    return [str(built)]


def fill(servers: str, topic: str, shape: Callable[[int], Written]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    [made] = admin.create_topics([NewTopic(topic, 1, 1, config=TOPIC_CONFIG)]).values()
    made.result(SECONDS)
    plain = {"bootstrap.servers": servers, "linger.ms": 20, "batch.num.messages": 100}
    producers: dict[int | None, Producer] = {}
    before: int | None = None
    for number in range(RECORDS):
        key, who = shape(number)
        if who not in producers:
            producers[who] = Producer({**plain, "enable.idempotence": who is not None})
        if who != before or number % 1000 == 0:
            assert all(each.flush(SECONDS) == 0 for each in producers.values())
        producers[who].produce(topic, b"%200d" % number, key)
        before = who
    assert all(each.flush(SECONDS) == 0 for each in producers.values())


def until_cleaned(log_dir: Path, topic: str) -> Offset:
    """Wait until only the active segment is left to be cleaned; return where it begins."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        logs = (log_dir / f"{topic}-0").glob("*.log")
        active = max(int(path.stem) for path in logs)
        if active == cleaned(log_dir, TopicPartition(topic, 0)):
            return active
        time.sleep(0.2)  # Kafka announces no compaction: its files are looked at again
    pytest.fail(f"{topic} was not cleaned within {SECONDS:g} s")


@pytest.mark.parametrize("most_bytes", [1 << 20, 20_000, 200])
@pytest.mark.parametrize("topic", [shape.__name__ for shape in SHAPES])
@pytest.mark.parametrize("reader", ["kafkajs", "kafka_go"])
def test_a_compacted_topic_is_read_to_its_end(
    request: pytest.FixtureRequest, broker: Broker, reader: str, topic: str, most_bytes: int
) -> None:
    if topic == producers_leave_empty_batches.__name__ and not broker.is_ours and most_bytes < 1e6:
        pytest.skip("Apache Kafka answers with an empty batch alone, and they stay there")
    there = broker.left[topic]
    command = request.getfixturevalue(reader)
    command = [*command, broker.servers, topic, str(RECORDS - 1), str(most_bytes)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as stuck:
        read = (stuck.stdout or b"").split()
        pytest.fail(f"it stayed behind {read[-1:]}, having read {len(read)} of {len(there)}")
    assert done.returncode == 0, done.stderr
    assert list(map(int, done.stdout.split())) == there
