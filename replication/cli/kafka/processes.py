"""A real Apache Kafka on loopback: KRaft, one broker or several, as processes to kill.

    with KafkaProcesses(data_dir=DATA, command=release.command) as kafka:   # one node, broker and controller
    with KafkaProcesses(..., brokers=3) as kafka:      # brokers 1, 2, 3, and a controller
    with KafkaProcesses(..., brokers=3, controllers=3) as kafka:    # and a quorum of three
    with KafkaProcesses(..., brokers=0) as kafka:      # a controller alone
    with KafkaProcesses(..., brokers=3, ours={3}) as kafka:         # node 3 is understudy's
        kafka.bootstrap_servers
        kafka.kill(1); kafka.start(1)                       # SIGKILL; back, and ready
        kafka.log_dirs[1] / "orders-0"

    DATA/node-1/{server.properties, log/, output.log}       a node's, kept over its restarts
    DATA/node-100/...                                       controllers, where they are alone

Rule 1: ports are chosen once, below those that the system hands out by itself, so that nobody
takes a broker's while it is down.

Rule 2: a node is ready when every broker that runs is in its metadata, and no sooner; a node
whose process ends meanwhile raises with the last lines that it said.

Rule 3: settings are such that starts and ends are fast and memory is small; `properties` come
over them, for all nodes, `node_properties` over those for one.

Rule 4: a node of understudy has the server.properties and the formatted directory that Kafka's would
have; only the process is another. `ours` may change while a node is down.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import attrs
import trio

from replication.broker.nodes import HOST
from replication.cli.isolated import free_ports
from replication.cli.probe import broker_ids
from replication.errors import UnderstudyError
from storage.attributes import define

CONTROLLER_ALONE: Final = 100
START_SECONDS: Final = 180.0  # of a machine on which much else runs
STOP_SECONDS: Final = 30.0
CLUSTER_ID: Final = "dW5kZXJzdHVkeS1yZWFsIQ"  # base64 of "understudy-real!"

SMALL: Final = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",  # 128 MiB by default
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A broker that was killed is missed after four seconds, not nine.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "500",
    "initial.broker.registration.timeout.ms": "120000",
}


STORAGE: Final = "kafka.tools.StorageTool"
# Small, and quick to start rather than quick in the long run.
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")


class JavaCommand(Protocol):
    """The command that runs a class of one release of Apache Kafka."""

    def __call__(self, main_class: str, *arguments: str, options: Sequence[str]) -> list[str]: ...


class KafkaFailedError(UnderstudyError):
    """A node of Kafka's ended, or was not ready in time; the message has its last lines."""


@define(eq=False, kw_only=True)
class KafkaProcesses:
    """A cluster under `data_dir`, from `with` (or `async with`) to its end."""

    data_dir: Path
    command: JavaCommand
    brokers: int = 1
    controllers: int = 1
    properties: Mapping[str, str] = attrs.field(factory=dict)
    node_properties: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    # Further listeners by name, each with its protocol: {"SECURE": "SASL_SSL"}.
    listeners: Mapping[str, str] = attrs.field(factory=dict)
    # For instance ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]").
    format_arguments: Sequence[str] = ()
    java_options: Sequence[str] = QUICK_START
    ours: Collection[int] = ()
    """The nodes, by id, that are `understudy broker`."""
    _ports: dict[int, dict[str, int]] = attrs.field(init=False, factory=dict)
    _processes: dict[int, subprocess.Popen[bytes]] = attrs.field(init=False, factory=dict)

    # -- where it is

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def controller_ids(self) -> list[int]:
        if self.brokers == self.controllers == 1:
            return [1]
        return [CONTROLLER_ALONE + each for each in range(self.controllers)]

    @property
    def node_ids(self) -> list[int]:
        """The controllers first, which the others wait for."""
        alone = [each for each in self.controller_ids if each not in self.broker_ids]
        return [*alone, *self.broker_ids]

    @property
    def bootstrap_servers(self) -> str:
        return self.servers("PLAINTEXT")

    def servers(self, listener: str) -> str:
        """Return every broker's address at `listener`."""
        return ",".join(self.address(node_id, listener) for node_id in self.broker_ids)

    def address(self, node_id: int, listener: str = "PLAINTEXT") -> str:
        return f"{HOST}:{self._ports[node_id][listener]}"

    @property
    def log_dirs(self) -> dict[int, Path]:
        """`log.dirs` of each broker."""
        return {node_id: self._directory(node_id) / "log" for node_id in self.broker_ids}

    @property
    def journals(self) -> dict[int, Path]:
        """The event journal of each node of ours."""
        return {node_id: self._directory(node_id) / "events.journal" for node_id in self.ours}

    def output(self, node_id: int) -> str:
        """Return all that a node has said so far, over all its starts."""
        return (self._directory(node_id) / "output.log").read_text(errors="replace")

    def pid(self, node_id: int) -> int:
        return self._processes[node_id].pid

    # -- from start to end

    def __enter__(self) -> Self:
        try:
            self.format()
            for node_id in self.node_ids:
                self.spawn(node_id)
            self.wait_until_ready()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()

    async def __aenter__(self) -> Self:
        return await trio.to_thread.run_sync(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()

    def is_running(self, node_id: int) -> bool:
        """Return whether a node has a process, even a frozen one."""
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def kill(self, node_id: int) -> None:
        """SIGKILL; returns when it is gone."""
        process = self._processes.pop(node_id)
        process.kill()
        process.wait(STOP_SECONDS)

    def stop(self, node_id: int) -> None:
        """SIGTERM, a controlled shutdown; returns when it is done."""
        process = self._processes.pop(node_id)
        process.terminate()
        process.wait(STOP_SECONDS)

    def start(self, node_id: int) -> None:
        """Again, after `kill` or `stop`; returns when it is ready."""
        self.spawn(node_id)
        self.wait_until_ready()

    def freeze(self, node_id: int) -> None:
        """SIGSTOP: there, and silent."""
        os.kill(self.pid(node_id), signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        os.kill(self.pid(node_id), signal.SIGCONT)

    def wait_until_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until every broker that runs knows all that run."""
        running = {node_id for node_id in self.broker_ids if node_id in self._processes}
        deadline = time.monotonic() + timeout
        for node_id in running:
            port = self._ports[node_id]["PLAINTEXT"]
            while not running <= broker_ids(HOST, port):
                self._look_for_the_dead()
                if time.monotonic() > deadline:
                    raise KafkaFailedError(self._last_lines(node_id, "is not ready"))
                time.sleep(0.1)  # a real broker that starts: asked again, with a bound

    # -- inside

    def _directory(self, node_id: int) -> Path:
        return self.data_dir / f"node-{node_id}"

    def choose_ports(self) -> None:
        """Choose the ports, and make the directories of the nodes."""
        names = ["PLAINTEXT", *self.listeners, "CONTROLLER"]
        ports = iter(free_ports(len(names) * len(self.node_ids)))
        self._ports = {node_id: {name: next(ports) for name in names} for node_id in self.node_ids}
        for node_id in self.node_ids:
            self._directory(node_id).mkdir(parents=True)

    def format(self) -> None:
        """Kafka's StorageTool, for all nodes at once."""
        if not self._ports:
            self.choose_ports()
        formatting: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in self.node_ids:
            config = self._write_properties(node_id, self._server_properties(node_id))
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(config), *self.format_arguments]
            formatting[node_id] = self._run(node_id, STORAGE, *arguments)
        for node_id, process in formatting.items():
            if process.wait(START_SECONDS) != 0:
                raise KafkaFailedError(self._last_lines(node_id, "could not be formatted"))

    def _write_properties(self, node_id: int, properties: Mapping[str, str]) -> Path:
        return write_properties(self._directory(node_id) / "server.properties", properties)

    def _server_properties(self, node_id: int) -> dict[str, str]:
        ports = self._ports[node_id]
        is_controller = node_id in self.controller_ids
        is_broker = node_id in self.broker_ids
        protocols = {"PLAINTEXT": "PLAINTEXT", **self.listeners} if is_broker else {}
        names = [*protocols, *(["CONTROLLER"] if is_controller else [])]
        protocols["CONTROLLER"] = "PLAINTEXT"
        voters = [
            f"{each}@{HOST}:{self._ports[each]['CONTROLLER']}" for each in self.controller_ids
        ]
        replicas = str(max(1, min(self.brokers, 3)))
        roles = ["broker"] * is_broker + ["controller"] * is_controller
        found = {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in names),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "log.dirs": str(self._directory(node_id) / "log"),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
        }
        found |= {"inter.broker.listener.name": "PLAINTEXT"} if is_broker else {}
        return found | SMALL | dict(self.properties) | dict(self.node_properties.get(node_id, {}))

    def spawn(self, node_id: int) -> None:
        """Start a node, and do not wait until it is ready."""
        config = str(self._directory(node_id) / "server.properties")
        if node_id in self.ours:
            ours = [sys.executable, "-m", "replication.cli", "broker", "--config", config]
            journal = f"--journal={self.journals[node_id]}"
            self._processes[node_id] = self._spawn(node_id, [*ours, journal])
        else:
            self._processes[node_id] = self._run(node_id, "kafka.Kafka", config)

    def _run(self, node_id: int, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = [*self.java_options, *self._own_java_options(node_id)]
        return self._spawn(node_id, self.command(main_class, *arguments, options=options))

    def _own_java_options(self, node_id: int) -> Sequence[str]:
        """Return what the virtual machine of this node alone is given."""
        del node_id
        return ()

    def _spawn(self, node_id: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._directory(node_id) / "output.log").open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - a command of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=java_environment(),
            )

    def _look_for_the_dead(self) -> None:
        for node_id, process in self._processes.items():
            if process.poll() is not None:
                raise KafkaFailedError(self._last_lines(node_id, "has ended"))

    def _last_lines(self, node_id: int, what: str) -> str:
        lines = self.output(node_id).splitlines()[-30:]
        return "\n".join([f"Kafka's node {node_id} {what}; it said at last:", *lines])

    def kill_all(self) -> None:
        """Kill every process: nothing is kept, so none is shut down in good order."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(STOP_SECONDS)
        self._processes.clear()


def java_environment() -> dict[str, str]:
    """Return our environment without the variable that Java reports on standard error."""
    return {key: value for key, value in os.environ.items() if key != "JAVA_TOOL_OPTIONS"}


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a file of properties; return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
