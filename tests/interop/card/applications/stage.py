"""The stage of one run of an application: brokers, the records that go in, and what comes out.

Three brokers, a topic `lines` that an application reads, and another that it writes. A thread
sends the lines over some seconds, so that the application is at work when `kill_leader` kills the
broker that leads a partition of `lines`. All that is checked is read by librdkafka, committed
records only, and compared with what was sent:

    at least once   nothing that was sent is missing, and there is nothing else
    exactly once    each is there once

`python -m tests.interop.card.applications NAME --at-kafka` puts Apache Kafka's brokers on the stage,
to see whether what fails here fails there too.
"""

import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SECONDS: Final = 240.0
SENDING_SECONDS: Final = 18.0
PARTITIONS: Final = 2
LINES: Final = [f"line {number} has {number % 7} and {number % 11}" for number in range(600)]
SOURCE: Final = "lines"

Record = tuple[str | None, str]


class Brokers(Protocol):
    """What a stage asks of a cluster, ours or Apache Kafka's."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self, node_id: int) -> None: ...

    def start(self, node_id: int) -> None: ...


class AppFailedError(AssertionError):
    """An application ended, or was not done in time; the message has its last words."""


@attrs.define(eq=False)
class Started:
    """A process of an application, with all that it starts in turn."""

    process: subprocess.Popen[bytes]
    output: Path

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").strip().splitlines()
        telling = [line for line in lines if "Error" in line or "Exception" in line]
        return (telling or lines or ["nothing"])[-1][:300]


@attrs.define(eq=False)
class Stage:
    """The brokers and the processes of one run, under `directory`."""

    brokers: Brokers
    directory: Path
    _started: list[Started] = attrs.field(factory=list, init=False)

    @property
    def servers(self) -> str:
        return self.brokers.bootstrap_servers

    def make_topics(self, *names: str, partitions: int = PARTITIONS, replicas: int = 3) -> None:
        config = {"min.insync.replicas": str(min(2, replicas))}
        new = [
            NewTopic(each, num_partitions=partitions, replication_factor=replicas, config=config)
            for each in names
        ]
        admin = self.admin()
        for made in admin.create_topics(new).values():
            made.result(SECONDS)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers})

    def kill_leader(self, topic: str) -> None:
        """Kill the broker that leads partition 0; it comes back after some seconds."""
        leader = self.admin().list_topics(topic, timeout=SECONDS).topics[topic].partitions[0].leader
        self.brokers.kill(leader)
        time.sleep(4)  # a real cluster: long enough for clients to meet the new leader
        self.brokers.start(leader)

    # Processes.

    def start(
        self, command: Sequence[str], *, name: str = "app", env: Mapping[str, str] | None = None
    ) -> Started:
        output = self.directory / f"{name}.log"
        with output.open("ab") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.directory,
                env={**os.environ, **(env or {})},
                process_group=0,
            )
        started = Started(process, output)
        self._started.append(started)
        return started

    def kill_all(self) -> None:
        for each in self._started:
            each.kill()

    def until(self, holds: Callable[[], bool], what: str, *, seconds: float = SECONDS) -> None:
        """Ask until it holds; fail when the newest process has ended, or the time is over."""
        deadline = time.monotonic() + seconds
        while not holds():
            said = self._started[-1].last_words() if self._started else "nothing"
            if self._started and self._started[-1].process.poll() not in {None, 0}:
                raise AppFailedError(f"the application ended before {what}: {said}")
            if time.monotonic() > deadline:
                raise AppFailedError(f"no {what} within {seconds:.0f} s: {said}")
            time.sleep(0.3)  # real processes: asked again, with a bound

    # Records.

    def send(self, topic: str, lines: Iterable[str]) -> None:
        """Send each line as it comes; raise where one is not acknowledged."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            failed.extend([error] if error else [])

        for line in lines:
            producer.produce(topic, line.encode(), on_delivery=delivered)
            producer.poll(0)
        left = producer.flush(SECONDS)
        assert not failed, failed[0]
        assert not left, f"{left} records were not acknowledged within {SECONDS:.0f} s"

    def read(self, topic: str) -> list[Record]:
        """Return the committed records of a topic, each partition in order."""
        config = {
            "bootstrap.servers": self.servers,
            "group.id": "the-card",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(config)
        try:
            known = consumer.list_topics(timeout=SECONDS).topics
            partitions = known[topic].partitions if topic in known else []
            consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
            return _read_to_the_ends(consumer, set(partitions))
        finally:
            consumer.close()


@attrs.define(eq=False)
class Feed:
    """The lines, handed out evenly over SENDING_SECONDS.

    A fifth waits for the application's first results, and the last fifth for the last process to
    be killed: something is always sent after each event of a run.
    """

    has_results: threading.Event = attrs.field(factory=threading.Event)
    all_killed: threading.Event = attrs.field(factory=threading.Event)

    def __iter__(self) -> Iterator[str]:
        waits = {len(LINES) // 5: self.has_results, len(LINES) * 4 // 5: self.all_killed}
        for number, line in enumerate(LINES):
            if number in waits:
                waits[number].wait()
            time.sleep(SENDING_SECONDS / len(LINES))  # real processes, kept at work for a while
            yield line

    def release(self) -> None:
        self.has_results.set()
        self.all_killed.set()


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a thread; it is done when the block has ended, and raises there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below, in the other thread
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if raised:
        raise raised[0]


def _read_to_the_ends(consumer: Consumer, open_ends: set[int]) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while open_ends and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key, value = message.key(), message.value()
            found.append((None if key is None else key.decode(), (value or b"").decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            open_ends.discard(message.partition())
    assert not open_ends, f"partitions {open_ends} were not read to their ends"
    return found


# What the records must be.


def each_at_least_once(sent: Sequence[str], found: Sequence[str]) -> str:
    """Return a sentence with the counts; raise where one is missing or was never sent."""
    missing, foreign = set(sent) - set(found), set(found) - set(sent)
    assert not missing, f"{len(missing)} of {len(sent)} are missing, such as {min(missing)!r}"
    assert not foreign, f"{len(foreign)} were never sent, such as {min(foreign)!r}"
    return f"{len(sent)} sent, 0 missing, {len(found) - len(sent)} repeated"


def each_once(sent: Sequence[str], found: Sequence[str]) -> str:
    """Return a sentence with the counts; raise where one is missing or is there twice."""
    said = each_at_least_once(sent, found)
    twice = [each for each, count in Counter(found).items() if count > 1]
    assert not twice, f"{len(found) - len(sent)} are repeated, such as {min(twice)!r}"
    return said


def word_counts(lines: Sequence[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def counted(found: Sequence[Record]) -> dict[str, list[int]]:
    """Return the counts that were written for each word, in order."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for word, count in found:
        counts[word or ""].append(int(count))
    return dict(counts)


def none_undercounted(lines: Sequence[str], found: Sequence[Record]) -> str:
    """Return a sentence with the counts; raise where a word was counted less often than it was sent."""
    sent, counts = word_counts(lines), counted(found)
    missing = {word: wanted for word, wanted in sent.items() if max(counts.get(word, [0])) < wanted}
    assert not missing, (
        f"{len(missing)} of {len(sent)} words are undercounted, such as {min(missing)!r}"
    )
    assert counts.keys() == sent.keys(), counts.keys() ^ sent.keys()
    extra = sum(max(counts[word]) - wanted for word, wanted in sent.items())
    return f"{sent.total()} words sent, 0 not counted, {extra} counted twice"


def each_counted_once(lines: Sequence[str], found: Sequence[Record]) -> str:
    """Return a sentence; raise where the counts of a word are not 1, 2, 3 to the right one."""
    said = none_undercounted(lines, found)
    counts = counted(found)
    for word, wanted in word_counts(lines).items():
        assert counts[word] == [*range(1, wanted + 1)], (
            f"{word!r} was sent {wanted} times, and counted so: ... {counts[word][-5:]}"
        )
    return said


Verdict = Callable[[Sequence[str], Sequence[Record]], str]


def values_of(verdict: Callable[[Sequence[str], Sequence[str]], str]) -> Verdict:
    """Return a verdict on records that looks at their values alone."""
    return lambda sent, found: verdict(sent, [value for _, value in found])


def in_capitals(verdict: Callable[[Sequence[str], Sequence[str]], str]) -> Verdict:
    """Return a verdict on the values, which must be what was sent in capitals."""
    return lambda sent, found: values_of(verdict)([each.upper() for each in sent], found)


def survives(
    stage: Stage,
    command: Sequence[str],
    verdict: Verdict,
    *,
    target: str,
    leader_of: str = SOURCE,
    crashes: bool = False,
    env: Mapping[str, str] | None = None,
    feed: Callable[[Iterable[str]], None] | None = None,
    results: Callable[[], Sequence[Record]] | None = None,
) -> str:
    """Run an application that reads `lines`, and return what the verdict on its results says.

    The leader is killed when the first results are there. One that `crashes` is then killed
    itself (SIGKILL), and started anew. `feed` sends the lines where they do not go to the topic
    `lines`, and `results` reads what is not in the topic `target`.
    """
    read = results or (lambda: stage.read(target))
    feed = feed or partial(stage.send, SOURCE)
    lines = Feed()

    def more_than(count: int) -> bool:
        return len(read()) > count

    def right() -> bool:
        with suppress(AssertionError):
            return bool(verdict(LINES, read()))
        return False

    application = stage.start(command, env=env)
    with meanwhile(partial(feed, lines)):
        try:
            stage.until(lambda: more_than(0), "first results")
            first = len(read())
            lines.has_results.set()
            stage.kill_leader(leader_of)
            if crashes:
                stage.until(partial(more_than, first), "results after a leader was killed")
                application.kill()
                application = stage.start(command, env=env)
        finally:
            lines.release()
    try:
        stage.until(right, "right result")
    except AppFailedError as error:
        verdict(LINES, read())  # raises: what is wrong says more than that it took too long
        raise AppFailedError(str(error)) from None
    time.sleep(3)  # what is doubled may come late
    said = verdict(LINES, read())
    application.kill()
    return said
