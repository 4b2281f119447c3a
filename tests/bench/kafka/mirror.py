"""`understudy follow`: an empty copy of a topic of Apache Kafka's, until nothing is missing.

Only ours has a rate: Kafka's own tools make no exact copy. The command is timed from its start to
its end, and its processor time is all that it used.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.catch_up import MIB
from tests.bench.kafka.catch_up import BATCH_BYTES, fill
from tests.bench.kafka.comparison import GIB, KAFKA, OURS, Comparison, Sizes
from tests.bench.kafka.sides import RivalCluster


def run(clusters: Mapping[str, RivalCluster], sizes: Sizes) -> Iterator[Comparison]:
    source = KAFKA if KAFKA in clusters else OURS
    for name, batch_bytes in BATCH_BYTES.items():
        topic = f"mirrored-{batch_bytes}"
        fill(clusters[source], topic, sizes.mirrored_bytes, batch_bytes)
        taken = [follow(clusters[source], topic) for _ in range(1 + sizes.rounds)][1:]
        label = f"mirror of {source}, {sizes.mirrored_bytes / GIB:g} GiB of {name} batches"
        rates, worked = [each[0] for each in taken], [each[1] for each in taken]
        yield Comparison(name=label, unit="MiB/s", more_is_better=True, rounds={OURS: rates})
        yield Comparison(
            name=f"{label}, the mirror's processor time", unit="s/GiB", rounds={OURS: worked}
        )


def follow(source: RivalCluster, topic: str) -> tuple[float, float]:
    """MiB/s, and the mirror's seconds of processor time for a GiB."""
    os.sync()
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as scratch:
        command = [sys.executable, "-m", "replication.cli", "follow", "--until-caught-up"]
        command += ["--bootstrap-server", source.bootstrap_servers, "--topic", topic]
        began = time.perf_counter()
        process = subprocess.Popen([*command, "--to", scratch], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        taken = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"follow ended with {process.returncode}")
        copied = sum(path.stat().st_size for path in Path(scratch).rglob(f"{topic}-*/*.log"))
    return copied / MIB / taken, (used.ru_utime + used.ru_stime) / (copied / GIB)
