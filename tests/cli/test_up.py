"""`understudy up` and `understudy broker`, as processes: their output and how they end.

The file is long because both commands are run in the same ways, by the same few helpers.
"""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from replication.broker.nodes import HOST
from replication.cli.isolated import free_ports
from replication.cli.probe import broker_ids, fetch_metadata
from replication.errors import ErrorCode
from replication.net import production_seams
from storage.errors import LogDirectoryLockedError
from storage.filesystem import OsFileSystem
from tests.replication.broker.clients import Client

pytestmark = pytest.mark.slow

TIMEOUT = 60


@contextmanager
def running(*arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-m", "replication.cli", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# Nodes in processes of their own, and under `make deep` in one process, too.
IN_BOTH_WAYS = pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--isolated"], id="isolated"),
        pytest.param([], id="one process", marks=pytest.mark.deep),
    ],
)


def table_of(process: subprocess.Popen[str], brokers: int) -> list[list[str]]:
    """Return the rows that `up` prints when its brokers are ready."""
    assert process.stdout is not None
    rows = [process.stdout.readline().split() for _ in range(brokers + 1)]
    assert rows[0] == ["NODE-ID", "STATUS", "KAFKA-ADDRESS"], process.communicate()
    return rows[1:]


def stopped(process: subprocess.Popen[str], signal_number: int) -> int:
    process.send_signal(signal_number)
    return process.wait(TIMEOUT)


def refused(*arguments: str) -> str:
    """Return the one line on stderr of a command that exits with 1."""
    done = ended(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    return line


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "replication.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize(
    ("flags", "signal_number"),
    [
        ([], signal.SIGTERM),
        (["--isolated"], signal.SIGINT),
        pytest.param([], signal.SIGINT, marks=pytest.mark.deep),
        pytest.param(["--isolated"], signal.SIGTERM, marks=pytest.mark.deep),
    ],
)
def test_up_shows_brokers_that_answer_and_leaves_in_good_order(
    tmp_path: Path, flags: list[str], signal_number: int
) -> None:
    with running("up", "-n", "2", "--any-port", "--data-dir", str(tmp_path), *flags) as process:
        rows = table_of(process, 2)
        assert [row[:2] for row in rows] == [["1", "running"], ["2", "running"]]
        for _, _, address in rows:
            assert broker_ids(HOST, port_of(address)) == {1, 2}
        assert stopped(process, signal_number) == 0
    for broker_id in (1, 2):
        log_directory = tmp_path / f"broker-{broker_id}" / "log"
        assert "directory.id=" in (log_directory / "meta.properties").read_text()
        assert (log_directory / ".kafka_cleanshutdown").exists()
        assert (tmp_path / f"broker-{broker_id}" / "events.journal").stat().st_size > 0


@IN_BOTH_WAYS
def test_up_runs_several_controllers_and_as_many_when_it_comes_back(
    tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["up", "-n", "1", "--any-port", "--data-dir", str(tmp_path), *flags]
    with running(*arguments, "--controllers", "3") as process:
        table_of(process, 1)
        assert stopped(process, signal.SIGTERM) == 0
    assert sorted(path.name for path in tmp_path.glob("controller*")) == [
        "controller-3001",
        "controller-3002",
        "controller-3003",
    ]
    formatted = [each.parts[-4] for each in tmp_path.glob("*/log/*/*-0000000000.checkpoint")]
    assert sorted(formatted) == ["controller-3001", "controller-3002", "controller-3003"]
    with running(*arguments) as process:
        ((_, _, address),) = table_of(process, 1)
        shown = ended("top", "--once", "-b", address).stdout.splitlines()[1]
        voters = re.findall(r"300[123]", shown.partition("voters")[2])
        assert sorted(voters) == ["3001", "3002", "3003"], shown
        assert stopped(process, signal.SIGTERM) == 0
    other = ended(*arguments, "--controllers", "1")
    assert other.returncode == 2
    assert "has the data of 3 controllers: --controllers 3" in other.stderr
    both = ended(*arguments, "--combined")
    assert both.returncode == 2
    assert "--controllers 3, without --combined" in both.stderr


@IN_BOTH_WAYS
def test_up_runs_nodes_with_both_roles_and_again_when_it_comes_back(
    tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["up", "-n", "4", "--any-port", "--data-dir", str(tmp_path), *flags]
    with running(*arguments, "--combined", "--controllers", "3") as process:
        table_of(process, 4)
        assert stopped(process, signal.SIGTERM) == 0
    names = {each.name for each in tmp_path.iterdir() if each.is_dir()}
    assert names == {"broker-1", "broker-2", "broker-3", "broker-4"}
    with running(*arguments) as process:
        *_, (_, _, address) = table_of(process, 4)
        shown = ended("top", "--once", "-b", address).stdout.replace("*", "")
        assert "voters 1 2 3 · observers 4 · both roles 1 2 3" in shown
        assert stopped(process, signal.SIGTERM) == 0
    other = ended(*arguments, "--controllers", "1")
    assert other.returncode == 2
    assert "has the data of 3 controllers: --combined --controllers 3" in other.stderr


@IN_BOTH_WAYS
def test_acked_records_survive_the_kill_of_up(tmp_path: Path, flags: list[str]) -> None:
    """A killed broker registers again after its session has expired, which is short here."""
    arguments = ["up", "-n", "2", "--any-port", "--data-dir", str(tmp_path), *flags]
    arguments += ["-X", "broker.session.timeout.ms=1000", "-X", "broker.heartbeat.interval.ms=200"]
    client = Client(production_seams())
    topic_id = bytes(16)

    def leader() -> str:
        until(lambda: leaders(port) == 1, "the partition has no leader")
        (topic,) = fetch_metadata(HOST, port, timeout_seconds=TIMEOUT).topics
        assert (topic.name, topic.topic_id) == ("t", topic_id)
        return ports[topic.partitions[0].leader_id]

    def produced_once_it_leads() -> int:
        """Ask until the leader knows that it leads, as a client would."""
        said: list[int] = []

        def is_known() -> bool:
            acked = trio.run(client.produce, leader(), "t", b"one", b"two")
            said.append(acked.error_code)
            return said[-1] != ErrorCode.NOT_LEADER_OR_FOLLOWER

        until(is_known, "the leader never learned that it leads")
        return said[-1]

    with running(*arguments) as process:
        ports = {int(row[0]): row[2] for row in table_of(process, 2)}
        port = port_of(ports[1])
        create = partial(client.create_topic, ports[1], "t", replicas=2)
        topic_id = trio.run(create)
        assert produced_once_it_leads() == ErrorCode.NONE
        process.kill()
        process.wait(TIMEOUT)
    wait_until_free(tmp_path, brokers=2)
    with running(*arguments) as process:
        ports = {int(row[0]): row[2] for row in table_of(process, 2)}
        port = port_of(ports[1])
        assert trio.run(client.read_all, leader(), topic_id) == [b"one", b"two"]
        assert stopped(process, signal.SIGTERM) == 0
        assert process.stderr is not None
        # Isolated nodes notice that their parent is gone, and shut down in good order.
        assert process.stderr.read() == (
            ""
            if flags
            else "understudy: not shut down cleanly: broker 1, 2;"
            " waiting until their sessions have expired, up to 1 s\n"
        )


@pytest.mark.deep
def test_a_cluster_may_be_started_in_one_process_and_then_isolated(
    tmp_path: Path,
) -> None:
    for flags in ([], ["--isolated"], []):
        arguments = ["up", "-n", "1", "--any-port", "--data-dir", str(tmp_path), *flags]
        with running(*arguments) as process:
            table_of(process, 1)
            assert stopped(process, signal.SIGTERM) == 0


@pytest.mark.deep
@IN_BOTH_WAYS
def test_brokers_with_data_are_started_and_one_left_out_is_named(
    tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["up", "--any-port", "--data-dir", str(tmp_path), *flags]
    with running(*arguments, "-n", "2") as process:
        table_of(process, 2)
        assert stopped(process, signal.SIGTERM) == 0
    with running(*arguments) as process:
        assert [row[0] for row in table_of(process, 2)] == ["1", "2"]
        assert stopped(process, signal.SIGTERM) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with running(*arguments, "-n", "1") as process:
        table_of(process, 1)
        assert stopped(process, signal.SIGTERM) == 0
        assert process.stderr is not None
        assert process.stderr.read() == (
            f"understudy: {tmp_path} has the data of brokers 1, 2, but 2 will not run, and their"
            " replicas stay offline; -n 2 runs all of them\n"
        )


@pytest.mark.deep
@IN_BOTH_WAYS
def test_a_second_cluster_leaves_the_files_of_the_first_alone(
    tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["up", "-n", "1", "--any-port", "--data-dir", str(tmp_path), *flags]
    with running(*arguments) as process:
        table_of(process, 1)
        before = {path: path.read_bytes() for path in tmp_path.rglob("server.properties")}
        assert f"another process is using {tmp_path}" in refused(*arguments)
        assert {path: path.read_bytes() for path in before} == before
        assert stopped(process, signal.SIGTERM) == 0


@pytest.mark.deep
def test_isolated_nodes_shut_down_when_their_parent_is_killed(tmp_path: Path) -> None:
    arguments = ["up", "-n", "1", "--any-port", "--isolated", "--data-dir", str(tmp_path)]
    with running(*arguments) as process:
        ((_, _, address),) = table_of(process, 1)
        process.kill()
        process.wait(TIMEOUT)
    wait_until_free(tmp_path, brokers=1)
    assert broker_ids(HOST, port_of(address)) == set()
    assert (tmp_path / "broker-1" / "log" / ".kafka_cleanshutdown").exists()


def leaders(port: int) -> int:
    """Return how many partitions have a leader, according to the broker at `port`."""
    topics = fetch_metadata(HOST, port, timeout_seconds=TIMEOUT).topics
    return sum(each.leader_id > 0 for topic in topics for each in topic.partitions)


def wait_until_free(data_dir: Path, *, brokers: int) -> None:
    """Wait until no node of a cluster runs any more."""
    nodes = ["controller", *(f"broker-{broker_id}" for broker_id in range(1, brokers + 1))]
    locks = [data_dir / node / "log" / ".lock" for node in nodes]
    until(lambda: all(map(is_free, locks)), "a node outlived who started it")


def until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)  # processes: asked again, with a bound


def is_free(lock: Path) -> bool:
    try:
        OsFileSystem().lock(str(lock)).release()
    except LogDirectoryLockedError:
        return False
    return True


def test_more_files_are_opened_than_a_shell_allows_at_first(tmp_path: Path) -> None:
    """Each partition holds three; 64 is less than three brokers take to start."""
    arguments = ["up", "-n", "3", "--any-port", "--data-dir", str(tmp_path)]
    command = ["/bin/sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh"]
    with running(*arguments, before=command) as process:
        rows = table_of(process, 3)
        port = port_of(rows[0][2])
        seams = production_seams()

        async def create() -> None:
            await Client(seams).create_topic(f"{HOST}:{port}", "t", partitions=20, replicas=3)

        trio.run(create)
        until(lambda: leaders(port) == 20, "the partitions have no leaders")
        assert stopped(process, signal.SIGTERM) == 0


@pytest.mark.deep
def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with running("up", "-n", "1", "--any-port", "--data-dir", str(tmp_path / "1")) as process:
        ((_, _, address),) = table_of(process, 1)
        port = address.rpartition(":")[2]
        line = refused("up", "-n", "1", "--base-port", port, "--data-dir", str(tmp_path / "2"))
        assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}" in line


def test_a_port_stays_free_until_its_node_listens() -> None:
    """As long as no other program asks for this very port."""
    with contextlib.ExitStack() as held, socket.socket() as taken:
        (port,) = free_ports(1)
        taken.bind((HOST, port))
        taken.listen()
        chosen = free_ports(2_000)
        assert port not in chosen
        assert len(set(chosen)) == 2_000
        given = {held.enter_context(bound_to_any()).getsockname()[1] for _ in range(500)}
        assert not given & set(chosen)


def bound_to_any() -> socket.socket:
    one = socket.socket()
    one.bind((HOST, 0))
    return one


def test_an_unknown_key_is_named_with_the_nearest_one() -> None:
    line = refused("up", "--any-port", "-X", "log.segmnt.bytes=1000")
    assert line == "understudy: unknown key log.segmnt.bytes; did you mean log.segment.bytes?"


def test_contradicting_flags_are_a_usage_error() -> None:
    assert ended("up", "--any-port", "--base-port", "9092").returncode == 2


def properties_of(path: Path, **entries: str) -> Path:
    """Write a server.properties for one node that is broker and controller at once."""
    broker, controller = free_ports(2)
    found = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(path / "log"),
    } | {key.replace("_", "."): value for key, value in entries.items()}
    properties = path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
    return properties


def test_one_node_may_be_broker_and_controller(tmp_path: Path) -> None:
    properties = properties_of(tmp_path)
    listeners = properties.read_text().split(f"{HOST}:")
    port = int(listeners[1].partition(",")[0])
    with running("broker", "--config", str(properties)) as process:
        until(lambda: broker_ids(HOST, port) == {1}, "the broker does not answer")
        assert stopped(process, signal.SIGTERM) == 0


@pytest.mark.deep
def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    with running("up", "-n", "1", "--any-port", "--data-dir", str(tmp_path)) as process:
        table_of(process, 1)
        assert stopped(process, signal.SIGTERM) == 0
    theirs = {
        "process_roles": "broker",
        "listeners": f"PLAINTEXT://{HOST}:0",
        "controller_quorum_voters": f"0@{HOST}:1",
        "log_dirs": str(tmp_path / "broker-1" / "log"),
    }
    other_cluster = properties_of(tmp_path, cluster_id="other", **theirs)
    assert "belongs to cluster understudy" in last_line("broker", "--config", str(other_cluster))
    other_node = properties_of(tmp_path, node_id="2", **theirs)
    assert "belongs to node 1" in last_line("broker", "--config", str(other_node))


@pytest.mark.deep
def test_a_broker_without_an_answering_controller_ends_with_one_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"0@{HOST}:{port}",
        "initial.broker.registration.timeout.ms": "300",
        "log.dirs": str(tmp_path / "log"),
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    done = ended("broker", "--config", str(config))
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert "broker 1 has found no controller for 0.3 s" in line
    assert "Traceback" not in done.stderr


def test_a_broker_without_a_controller_is_refused_before_it_makes_a_directory(
    tmp_path: Path,
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=0\nlog.dirs={tmp_path}/log\n")
    line = refused("broker", "--config", str(properties))
    assert "controller.quorum.bootstrap.servers is missing" in line
    assert not (tmp_path / "log").exists()


def test_a_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_bytes(
        "# f\u00fcr alle\nnode.id=1\nlog.dirs=/x\nbroker.rak=r1\n".encode("latin-1")
    )
    line = refused("broker", "--config", str(properties))
    assert line == "understudy: unknown key broker.rak; did you mean broker.rack?"


def last_line(*arguments: str) -> str:
    """Return the last line of stderr, which has the node's log too; the command exits with 1."""
    done = ended(*arguments)
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


def test_a_limit_of_open_files_that_is_too_low_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/logs\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
    )
    few = ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh"]
    with running("broker", "--config", str(config), before=few) as process:
        _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    [line] = [line for line in said.splitlines() if line.startswith("Error")]
    assert "may open 300 files and needs" in line
    assert "ulimit" in line
    assert not (tmp_path / "logs").exists()


@IN_BOTH_WAYS
def test_metrics_are_served_at_the_given_port(tmp_path: Path, flags: list[str]) -> None:
    data = ["--data-dir", str(tmp_path), "--any-port", "--metrics", "0"]
    with running("up", "-n", "1", *data, *flags) as process:
        table_of(process, 1)
        assert process.stdout is not None
        names = ["metrics of the controller", "metrics of broker 1"] if flags else ["metrics"]
        shown = ""
        for name in names:
            said, _, url = process.stdout.readline().strip().partition(": ")
            assert said == name
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                shown += answer.read().decode()
        assert "\nkafka_controller_kafkacontroller_activecontrollercount 1\n" in shown
        assert '\nkafka_server_replicamanager_leadercount{broker="1"} 0\n' in shown
        assert stopped(process, signal.SIGTERM) == 0


def test_a_busy_port_of_metrics_is_one_line_and_leaves_the_cluster_in_order(
    tmp_path: Path,
) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        flags = ["-n", "1", "--any-port", "--data-dir", str(tmp_path), "--metrics", port]
        assert refused("up", *flags) == (
            f"understudy: cannot serve HTTP on {HOST}:{port}: Address already in use"
        )
    assert (tmp_path / "broker-1" / "log" / ".kafka_cleanshutdown").exists()
