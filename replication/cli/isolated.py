"""A cluster of real processes: one for each broker and each controller.

    DATA/controller/{server.properties, log/, events.journal, output.log}
    DATA/broker-1/{server.properties, log/, events.journal, output.log}

Where the first brokers are the controllers (`combined`), there is no DATA/controller. Every node
is `understudy broker --config` with a `server.properties` that stays there, to be read, changed
and used by hand. `kill` is SIGKILL: what the process has not yet given to the kernel is lost, as
when the machine runs out of memory.

One cluster at a time uses DATA, and holds DATA/.lock. Nodes end with the process that started them:
the standard input of each is the end of a pipe, and a node shuts down in good order when the other
end is closed. A steered node has a socket there instead (`steering`).

Nodes are interpreters of their own, or forks of this one, which imports the modules of a node once
for all of them: four interpreters that each import a broker take four times as long as one.

    up --isolated ──imports once──┬─fork─> understudy broker --config controller/...
                                  ├─fork─> understudy broker --config broker-1/...
                                  └─fork─> ...

A fork shares nothing else: it has its own standard streams and process group, no other file of its
parent, and never returns to its parent's code. The parent must not have threads.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Self

import attrs

from replication import own_module
from replication.broker.nodes import (
    HOST,
    broker_ids,
    controller_ids,
    node_directory,
    node_name,
)
from replication.cli.served import HttpPort
from replication.config import BrokerConfig, parse_properties
from replication.errors import UnderstudyError
from replication.net.ports import any_ports
from storage.attributes import define
from storage.filesystem import OsFileSystem

FIRST_FILE_OF_ITS_PARENT = 3  # after the standard streams
MOST_FILES_OF_ITS_PARENT = 1024
POLL_SECONDS = 0.005

NODE_MODULES = (
    "replication.cli.broker",
    "replication.broker.broker",
    "replication.controller.controller",
)
METRICS_MODULES = ("replication.observe.http", "replication.observe.served_metrics")
STEERED_MODULES = ("replication.cli.steering",)
STOP_SECONDS = 20.0
OUTPUT_BYTES = 16 * 1024 * 1024


@define
class ForkedProcess:
    """A child process, with the methods of `subprocess.Popen` that nodes need."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_command(arguments: Sequence[str], *, stdin: int, output: int) -> ForkedProcess:
    """Run `understudy ARGUMENTS...` in a fork, on these descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return ForkedProcess(pid)
    code = 1
    try:
        _leave_parent(stdin=stdin, output=output)
        code = _run(arguments)
    finally:
        os._exit(code)  # in any case: the parent's code must not be unwound here


def _leave_parent(*, stdin: int, output: int) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(FIRST_FILE_OF_ITS_PARENT, MOST_FILES_OF_ITS_PARENT)


def _run(arguments: Sequence[str]) -> int:
    from replication.cli import main

    try:
        main(arguments)
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0
    return 0


class NodeFailedError(UnderstudyError):
    """A node's process ended when it should not have; the message has its last line."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at: a node listens some time after its port was chosen."""
    return list(islice(filter(_is_free, any_ports()), count))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, port))
        except OSError:
            return False
    return True


@define
class IsolatedCluster:
    """`brokers` broker processes and `controllers` controller processes, with their data under
    `data_dir`.

    Args:
        data_dir: created if needed; nodes that have data there continue with it.
        brokers: the number of brokers; their ids are 1 to `brokers`.
        controllers: the number of controllers; a single one is node 0, several are 3001, 3002, ...
        combined: the controllers are the first of the brokers, each a node with both roles.
        ports: the brokers' ports and then the controllers'; free ones by default.
        config: further `server.properties` entries for every node.
        node_config: entries for one node, by its id, which override all others.
        forked: start nodes as forks of this process, which must not have threads.
        prepare: called with the configuration of each node before the first one starts.
        metrics: the port of the first controller's metrics; the other controllers and then the
            brokers serve theirs one above the other. Port 0 takes free ports.
        steered: whether each node waits for its first state on its line before it begins.
    """

    data_dir: Path
    brokers: int = 3
    controllers: int = 1
    combined: bool = False
    ports: list[int] = attrs.field(factory=list)
    config: dict[str, str] = attrs.field(factory=dict)
    node_config: dict[int, dict[str, str]] = attrs.field(factory=dict)
    cluster_id: str = "understudy"
    forked: bool = False
    prepare: Callable[[Iterable[BrokerConfig]], None] | None = None
    metrics: HttpPort | None = None
    steered: bool = False
    lines: dict[int, socket.socket] = attrs.field(factory=dict, init=False)
    """This process's ends of the lines, by node id."""
    _processes: dict[int, subprocess.Popen[bytes] | ForkedProcess] = attrs.field(
        factory=dict, init=False
    )
    _held: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)
    _metrics: dict[int, HttpPort] = attrs.field(factory=dict, init=False)
    """The ports of the metrics, by node id."""
    _lifeline: int = attrs.field(default=-1, init=False)
    """The standard input of nodes, a pipe that ends with this process."""

    def __attrs_post_init__(self) -> None:
        nodes = self.node_ids
        self.ports = self.ports or free_ports(self.brokers + self.controllers)
        if self.metrics is not None:
            first = self.metrics.port
            ports = [*range(first, first + len(nodes))] if first else free_ports(len(nodes))
            self._metrics = {
                node_id: HttpPort(self.metrics.host, port)
                for node_id, port in zip(nodes, ports, strict=True)
            }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports[: self.brokers])

    @property
    def metrics_urls(self) -> dict[str, str]:
        """The URLs of the metrics, by a description."""
        return {
            f"metrics of {node_name(node_id)}": f"http://{where}/metrics"
            for node_id, where in self._metrics.items()
        }

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, the controllers' first."""
        return list(dict.fromkeys([*self.controller_ids, *self.broker_ids]))

    @property
    def controller_ids(self) -> list[int]:
        return controller_ids(self.controllers, among=self.broker_ids if self.combined else None)

    @property
    def broker_ids(self) -> list[int]:
        return broker_ids(self.brokers)

    def port(self, node_id: int) -> int:
        """Return the port of a node's first listener."""
        return self.listeners(node_id)[0]

    def listeners(self, node_id: int) -> list[int]:
        """Return the ports of a node's listeners: a broker's first, then a controller's."""
        owners = [*self.broker_ids, *self.controller_ids]
        return [port for port, owner in zip(self.ports, owners, strict=True) if owner == node_id]

    def directory(self, node_id: int) -> Path:
        return self.data_dir / node_directory(node_id)

    def log_dir(self, node_id: int) -> Path:
        """Return the directory of the node's partitions, its `log.dirs`."""
        return self.directory(node_id) / "log"

    def journal(self, node_id: int) -> Path:
        """Return the path of the node's event journal."""
        return self.directory(node_id) / "events.journal"

    def pid(self, node_id: int) -> int:
        """Return the id of the node's process."""
        return self._processes[node_id].pid

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            held.callback(OsFileSystem().lock(str(self.data_dir / ".lock")).release)
            self._lifeline, ours = os.pipe()
            held.callback(os.close, ours)
            held.callback(os.close, self._lifeline)
            held.callback(self._close_lines)
            held.callback(self.stop)
            if self.forked:
                for module in self._modules():
                    own_module(module)
            if self.prepare is not None:
                texts = map(self._properties, self.node_ids)
                self.prepare(BrokerConfig.from_properties(parse_properties(each)) for each in texts)
            for node_id in self.node_ids:
                self.start(node_id)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _modules(self) -> Sequence[str]:
        """Return the modules that nodes import."""
        asked = METRICS_MODULES * bool(self._metrics) + STEERED_MODULES * self.steered
        return NODE_MODULES + asked

    def start(self, node_id: int) -> None:
        """Start a node; it is not ready when this returns, see `wait_until_ready`."""
        directory = self.directory(node_id)
        directory.mkdir(parents=True, exist_ok=True)
        properties = directory / "server.properties"
        write_private(properties, self._properties(node_id))
        arguments = ["broker", "--config", str(properties)]
        arguments += ["--journal", str(self.journal(node_id))]
        arguments += ["--steered" if self.steered else "--stop-at-end-of-input"]
        if self._metrics:
            arguments += ["--metrics", str(self._metrics[node_id])]
        put_aside_if_long(directory / "output.log")
        with (directory / "output.log").open("ab") as output, self._input(node_id) as stdin:
            spawn = fork_command if self.forked else spawn_command
            self._processes[node_id] = spawn(arguments, stdin=stdin, output=output.fileno())

    @contextlib.contextmanager
    def _input(self, node_id: int) -> Iterator[int]:
        """Yield the standard input of a node that starts."""
        if not self.steered:
            yield self._lifeline
            return
        if node_id in self.lines:
            self.lines[node_id].close()
        self.lines[node_id], theirs = socket.socketpair()
        with theirs:
            yield theirs.fileno()

    def _close_lines(self) -> None:
        for line in self.lines.values():
            line.close()

    def kill(self, node_id: int) -> None:
        """Kill a node with SIGKILL, and wait until it is gone."""
        process = self._processes.pop(node_id)
        process.kill()
        process.wait()

    def is_running(self, node_id: int) -> bool:
        """Return whether the node has a process, even a stopped one (SIGSTOP)."""
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def stop_node(self, node_id: int) -> None:
        """Shut one node down in good order; kill it after the time limit."""
        self._terminate([node_id])

    def last_line_of(self, node_id: int) -> str:
        """Return the last line that a node has written."""
        output = self.directory(node_id) / "output.log"
        lines = output.read_text(errors="replace").strip().splitlines() or ["no output"]
        return lines[-1]

    def stop(self) -> None:
        """Shut down every broker and then the controllers; kill them after the time limit."""
        self._terminate([each for each in self._processes if each not in self.controller_ids])
        self._terminate([*self._processes])

    def wait_until_ready(self, timeout_seconds: float = 60.0) -> None:
        """Wait until every broker answers Metadata with all brokers in it."""
        from replication.cli import probe

        deadline = time.monotonic() + timeout_seconds
        wanted = set(self.broker_ids)
        waiting = self.ports[: self.brokers]
        while waiting:
            self._check_alive()
            if time.monotonic() > deadline:
                raise NodeFailedError(f"not ready after {timeout_seconds:g} s: ports {waiting}")
            waiting = [port for port in waiting if probe.broker_ids(HOST, port) != wanted]
            if waiting:
                time.sleep(0.01)

    def _terminate(self, node_ids: list[int]) -> None:
        for node_id in node_ids:
            self._processes[node_id].send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for node_id in node_ids:
            process = self._processes.pop(node_id)
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _check_alive(self) -> None:
        for node_id, process in self._processes.items():
            if process.poll() is not None:
                raise NodeFailedError(
                    f"node {node_id} ended with {process.returncode}: {self.last_line_of(node_id)}"
                )

    def _properties(self, node_id: int) -> str:
        voters = [f"{each}@{HOST}:{self.listeners(each)[-1]}" for each in self.controller_ids]
        roles = ["broker"] * (node_id in self.broker_ids)
        roles += ["controller"] * (node_id in self.controller_ids)
        names = ["PLAINTEXT" if role == "broker" else "CONTROLLER" for role in roles]
        ports = self.listeners(node_id)
        entries = {
            "node.id": str(node_id),
            "cluster.id": self.cluster_id,
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir(node_id).resolve()),
            "process.roles": ",".join(roles),
            "listeners": ",".join(
                f"{name}://{HOST}:{port}" for name, port in zip(names, ports, strict=True)
            ),
        }
        entries |= self.config | self.node_config.get(node_id, {})
        return "".join(f"{key}={value}\n" for key, value in entries.items())


def put_aside_if_long(output: Path) -> None:
    """Rename the output of a node's former processes to `output.log.1` if it has OUTPUT_BYTES."""
    if output.exists() and output.stat().st_size >= OUTPUT_BYTES:
        output.replace(output.with_name(f"{output.name}.1"))


def write_private(path: Path, text: str) -> None:
    """Make `text` the contents of a file that only its owner may read: it may have passwords."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # an existing file may be open to all
        file.truncate()
        file.write(text)


def spawn_command(arguments: Sequence[str], *, stdin: int, output: int) -> subprocess.Popen[bytes]:
    """Run `understudy ARGUMENTS...` in a new interpreter, on these descriptors."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "understudy", *arguments],
        stdin=stdin,
        stdout=output,
        stderr=output,
        # Ctrl-C must not reach the nodes: the brokers are stopped before the controller.
        process_group=0,
    )
