"""A Spark standalone cluster on this machine: a master and workers, from pyspark's own files.

    with standalone_cluster(directory, workers=2) as master:
        ...                                              # "spark://127.0.0.1:40123"

By hand: `python -m tests.pipeline.standalone` runs one until interrupted.

Executors get nothing of this process's environment but what is listed here: what they import
of ours has to be sent to them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from pipeline.java import find_java
from replication.cli.isolated import free_ports

HOST = "127.0.0.1"
READY_SECONDS = 300
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@contextlib.contextmanager
def standalone_cluster(directory: Path, *, workers: int = 2) -> Iterator[str]:
    """Its master's URL, once every worker has registered; all of it is stopped at the end."""
    port, web_port, *worker_web_ports = free_ports(2 + workers)
    master = f"spark://{HOST}:{port}"
    with contextlib.ExitStack() as running:
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        log = _start(running, directory, "master", _MASTER, *arguments)
        _wait_for(log, "I have been elected leader", 1)
        for number, worker_web_port in enumerate(worker_web_ports, start=1):
            arguments = [master, "--host", HOST, "--cores", "2", "--memory", "2g"]
            arguments += ["--work-dir", str(directory / f"work-{number}")]
            arguments += ["--webui-port", str(worker_web_port)]
            _start(running, directory, f"worker-{number}", _WORKER, *arguments)
        _wait_for(log, "Registering worker", workers)
        yield master


def environment(directory: Path) -> dict[str, str]:
    """For the cluster and for who submits to it: no path of ours in it."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return kept | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOG_DIR": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": small,
        "PYSPARK_PYTHON": sys.executable,
    }


def _start(
    running: contextlib.ExitStack, directory: Path, name: str, kind: str, *arguments: str
) -> Path:
    log = directory / f"{name}.log"
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(launcher), kind, *arguments],
            stdout=output,
            stderr=output,
            cwd=directory,
            env=environment(directory),
            process_group=0,
        )
    running.callback(_stop, process)
    return log


def _stop(process: subprocess.Popen[bytes]) -> None:
    """It and what it has started, executors among them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(log: Path, line: str, times: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while log.read_text(errors="replace").count(line) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {line!r} in {log}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)  # of a Spark process only its log tells, until the deadline


if __name__ == "__main__":
    assert find_java(), "Spark needs Java"
    with tempfile.TemporaryDirectory() as scratch, standalone_cluster(Path(scratch)) as url:
        print(url, flush=True)
        signal.pause()
