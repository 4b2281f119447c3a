"""Where what the pages show is run: a folder like the one that they speak of, and a cluster.

    broker-1/log ...     what three brokers left when they were stopped: `orders`, of three partitions
    a live cluster       the addresses of the pages stand for it: localhost:9092, kafka1:9092, ...
                         with `orders`, and a group `readers` that has read some of it

A command of ours runs in this process, with what `ENDLESS` says to make it end; where a line has
anything of a shell, in one, with `understudy` on its path.

`understudy up ... &` stays until its page is done: what comes after it asks that cluster, and curl
the port that it is steered at, of which a refusal fails.
"""

import contextlib
import functools
import glob
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio

from replication.cli import main
from replication.cli.isolated import free_ports
from replication.client import Admin, Producer
from replication.client.admin import NewTopic, OffsetAndMetadata
from replication.testing import ThreadedCluster
from scenarios import find_story
from storage import TopicPartition
from tests.docs.snippets import ROOT, Block, same_output

STEERED: Final = "localhost:8080/control"
NEEDS_CURL: Final = "curl is not installed, and this page asks with it"
ADDRESS: Final = re.compile(r"\b(?:localhost|127\.0\.0\.1|b\d|kafka\d?|source|old|new):909\d\b")
# Those that the pages about Spark name.
_PATH: Final = re.compile(
    r"\bbroker-[\d*]/log\b|\b(?:audit-state|data|headers|iceberg|lake)/(?=\s|$)"
)
# One command of ours: up to what hands it on, which quotes would hide.
_OURS: Final = re.compile(r"understudy (\w[\w-]*)(?:'[^']*'|[^'|<>])*")
_OF_A_SHELL: Final = re.compile(r"[|><&;]|\$\(")
# What it takes for a command to end by itself, which a reader ends with Ctrl-C.
ENDLESS: Final = {"follow": ("--until-caught-up",), "consume": ("-e",), "top": ("--once",)}
# Those that run until they are interrupted, and what they say when all is well.
SERVING: Final = {"up": "KAFKA-ADDRESS", "up --ui": "page: "}
_PORTS: Final = re.compile(r"(--(?:ui|metrics|control|metrics-port)) \d+")
# Those that ask localhost:9092 where nobody says whom.
ASKING: Final = ("topic", "group", "produce", "consume", "top")
RECORDS: Final = 12
# Who was killed comes back when its session has ended: by default after nine seconds.
_QUICK: Final = ("-X", "broker.session.timeout.ms=2000", "-X", "broker.heartbeat.interval.ms=200")


@attrs.frozen
class Place:
    """A folder, and the cluster that its addresses mean."""

    folder: Path
    cluster: ThreadedCluster
    names: dict[str, object] = attrs.field(factory=dict)
    """What programs find there; each leaves its own for the next where they share it."""
    names_folder: bool = False
    """Whether paths are to be whole ones: a JVM that runs already is in another directory."""
    beside: list["Beside"] = attrs.field(factory=list)
    """Clusters that a page has started and gone on."""

    def close(self) -> None:
        for each in self.beside:
            each.stop()

    @property
    def bootstrap_servers(self) -> str:
        return self.beside[-1].bootstrap_servers if self.beside else self.cluster.bootstrap_servers

    def with_addresses(self, text: str) -> str:
        text = ADDRESS.sub(self.bootstrap_servers.split(",")[0], text)
        if self.beside:
            text = text.replace(STEERED, self.beside[-1].control)
        return _PATH.sub(f"{self.folder}/\\g<0>", text) if self.names_folder else text

    def run(self, block: Block) -> None:
        """A block that is not tests; AssertionError where it fails, or prints something else."""
        is_program = block.language == "python"
        printed = (self._run_program if is_program else self._run_commands)(block)
        if block.shown is not None:
            assert same_output(block.shown, printed), f"{block} prints:\n{printed}"

    def _run_program(self, block: Block) -> str:
        code = compile(self.with_addresses(block.text), str(block), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        return printed.getvalue()

    def _run_commands(self, block: Block) -> str:
        printed = []
        commands = list(block.commands())
        for command in filter(block.is_run, commands):
            is_last = command == commands[-1]
            code, text = self._run_command(command)
            printed.append(text)
            assert code == (block.exit_code if is_last else 0), f"{block}: {command}\n{text}"
        return "".join(printed)

    def _run_command(self, command: str) -> tuple[int, str]:
        words = shlex.split(command)
        if words[0] == "make":
            return _is_a_target(words[1])
        if words[0] == "curl" and shutil.which("curl") is None:
            pytest.skip(NEEDS_CURL)
        if words[:2] == ["understudy", "up"] and words[-1] == "&":
            self.beside.append(Beside.started(words[1:-1]))
            return 0, ""
        if words[0] == "understudy" and words[1] in SERVING:
            folder = self.folder if "--data-dir" in words else None
            said = SERVING["up --ui" if "--ui" in words else words[1]]
            return _until_it_serves(command.removeprefix("understudy "), said, folder)
        command = _OURS.sub(self._to_the_end, self.with_addresses(command))
        command = re.sub(r"^curl ", "curl --silent --show-error --fail ", command)
        if words[0] == "understudy" and not _OF_A_SHELL.search(command):
            return _in_process(list(_expanded(shlex.split(command)[1:])))
        return self._in_a_shell(command)

    def _to_the_end(self, found: re.Match[str]) -> str:
        """A command of ours, with what makes it end, and the cluster that it is to ask."""
        command, name = found[0].rstrip(), found[1]
        more = [each for each in ENDLESS.get(name, ()) if f" {each}" not in command]
        if name in ASKING and not re.search(r" (-b|--bootstrap-server) ", command):
            more += ["--bootstrap-server", self.bootstrap_servers]
        return " ".join([command, *more]) + found[0][len(command) :]

    def _in_a_shell(self, command: str) -> tuple[int, str]:
        bin_directory = self.folder / ".bin"
        bin_directory.mkdir(exist_ok=True)
        script = bin_directory / "understudy"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m replication.cli "$@"\n')
        script.chmod(0o755)
        paths = {
            "PATH": os.pathsep.join(
                [str(bin_directory), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")


@attrs.frozen
class Beside:
    """A cluster of processes of its own, at free ports, and where it is steered."""

    process: "subprocess.Popen[str]"
    bootstrap_servers: str
    control: str

    @classmethod
    def started(cls, words: Sequence[str]) -> "Beside":
        port = free_ports(1)[0]
        given = [str(port) if word == "8080" else word for word in words]
        given += ["--any-port", "--output", "json", *_QUICK]
        process = subprocess.Popen(
            [sys.executable, "-m", "replication.cli", *given],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        return cls(process, ready["bootstrap_servers"], f"127.0.0.1:{port}/control")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


def _expanded(words: Sequence[str]) -> Iterator[str]:
    """Yield the words, with wildcards expanded as a shell does."""
    for word in words:
        yield from sorted(glob.glob(word)) or [word]  # noqa: PTH207 - as it is written


def _in_process(words: list[str]) -> tuple[int, str]:
    """Call our command; return its exit code and its output."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    said.seek(0)
    return code, said.read()


@functools.cache
def _until_it_serves(command: str, said: str, folder: Path | None) -> tuple[int, str]:
    """Brokers, at any ports: others may be at work here. Interrupted once they are up.

    Several pages show the same commands, and a process costs half a second: each runs once, but for
    those that serve what lies in `folder`.
    """
    words = shlex.split(_PORTS.sub(lambda found: f"{found[1]} {free_ports(1)[0]}", command))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "replication.cli", *words, "--any-port"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if said in line:
                    process.send_signal(signal.SIGINT)
            return process.wait(60), "".join(printed)
        finally:
            process.kill()


def _is_a_target(name: str) -> tuple[int, str]:
    """Return 0 if `make` has such a target, which has tests of its own, and else 2 with a message."""
    known = re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return (0 if known else 2), f"make has no target {name}\n"


@contextlib.contextmanager
def cluster_at_work() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=3) as cluster:
        yield cluster


def fill(cluster: ThreadedCluster) -> None:
    """`orders` with some records, and `readers` who have read the half of them."""
    _on(cluster, _filled)


def in_order(cluster: ThreadedCluster) -> None:
    """`readers` again, where a page has deleted them; `orders` as it was."""
    _on(cluster, _read)


def _on(cluster: ThreadedCluster, do: Callable[[str], Awaitable[None]]) -> None:
    trio.run(do, cluster.bootstrap_servers)


async def _filled(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=3, replication_factor=3)])
    async with Producer(
        servers, key_serializer=str.encode, value_serializer=str.encode
    ) as producer:
        for number in range(RECORDS):
            await producer.send("orders", f"book {number}", key=f"k{number}", partition=number % 3)
        await producer.flush()
    await _read(servers)


async def _read(servers: str) -> None:
    """Commit offsets of the group `readers`, whether or not it still exists."""
    async with Admin(servers) as admin:
        read = {TopicPartition("orders", each): OffsetAndMetadata(2) for each in range(3)}
        await admin.alter_group_offsets("readers", read)


def at_rest(folder: Path, source: ThreadedCluster) -> None:
    """`broker-1/log` and its like, as three brokers left them, and a copy of what `source` has."""
    data = folder.with_name(folder.name + "-data")
    with ThreadedCluster(brokers=3, data_dir=str(data)) as cluster:
        fill(cluster)
    following = ("--bootstrap-server", source.bootstrap_servers, "--to", str(folder / "copy"))
    assert _in_process(["follow", "--topic", "orders", *following, "--until-caught-up"])[0] == 0
    (folder / "file").write_text("one book\n")
    shutil.copy(find_story("S04"), folder / "my-story.txt")
    for number in (1, 2, 3):
        shutil.copytree(data / f"broker-{number}", folder / f"broker-{number}")
