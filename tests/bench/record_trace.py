"""When each process begins and ends its part in one record with acks=all.

    python -m tests.bench.record_trace [RECORDS] [PAUSE_MS]

    client ── send ──> leader  read, append, answer the two fetches that wait
                       followers  read, append, send the next fetch
                       leader  read both; the second moves the high watermark; answer
    client <─ receive ─

Three brokers and the controller are forks of this process, and this process is the client: one
socket, one record at a time, each after a pause. Before the fork every system call on the way of a
record gets a stamp: a number of the monotonic clock, which all processes share, in memory that they
share, too. A stamp costs about a microsecond.

The printed moments are medians over all records, with the first and the last tenth; they are counted
from the client's send.
"""

import functools
import mmap
import os
import statistics
import struct
import sys
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from trio._core import _io_epoll

from replication.cli.isolated import IsolatedCluster
from tests.bench.acks import Asker, acknowledged, create_topic, leader_address, produce_frame

WARM_UP: Final = 300
NODES: Final = 4
CONTROLLER, LEADER, *FOLLOWERS = range(NODES)
SLOT_BYTES: Final = 64 * 1024 * 1024
_STAMP: Final = struct.Struct("=qqqi")  # the call's begin and end in nanoseconds, what it returned
KINDS = READ, SENT, WRITTEN, WAITED = range(4)


@attrs.define
class Stamp:
    """A system call of a node; times are in microseconds."""

    kind: int
    begin: float
    end: float
    size: int


class Stamps:
    """The stamps of all nodes, in memory that forks share; a node is numbered by its fork."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, NODES * SLOT_BYTES)
        self._forks = 0
        self._position = -1
        os.register_at_fork(after_in_parent=self._count, after_in_child=self._begin)

    def _count(self) -> None:
        self._forks += 1

    def _begin(self) -> None:
        self._position = self._forks * SLOT_BYTES

    def around(self, kind: int, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with a stamp, if it is made by a node."""
        now, pack = time.monotonic_ns, _STAMP.pack_into

        @functools.wraps(call)
        def stamped(*arguments: Any) -> Any:
            begin = now()
            result = call(*arguments)
            if self._position >= 0:
                size = result if isinstance(result, int) else len(result)
                pack(self._memory, self._position, begin, now(), kind, size)
                self._position += _STAMP.size
            return result

        return stamped

    def of(self, node: int) -> Iterator[Stamp]:
        for at in range(node * SLOT_BYTES, (node + 1) * SLOT_BYTES, _STAMP.size):
            begin, end, kind, size = _STAMP.unpack_from(self._memory, at)
            if not begin:
                return
            yield Stamp(kind, begin / 1000, end / 1000, size)


def stamp_calls() -> Stamps:
    """Put stamps around the system calls of every node that this process forks."""
    stamps = Stamps()
    os.readv = stamps.around(READ, os.readv)
    os.writev = stamps.around(SENT, os.writev)
    os.pwrite = stamps.around(WRITTEN, os.pwrite)
    manager = _io_epoll.EpollIOManager
    manager.get_events = stamps.around(WAITED, manager.get_events)  # type: ignore[method-assign]
    return stamps


def moments_of(begin: float, within: Sequence[Sequence[Stamp]], end: float) -> dict[str, float]:
    """Return the moments of one record; none where other work came between."""
    leader = _by_kind(within[LEADER])
    if len(leader[READ]) != 3 or len(leader[SENT]) != 3 or len(leader[WRITTEN]) != 1:
        return {}
    (record, first, second), (one, other, answer) = leader[READ], leader[SENT]
    woken = [each.end for each in leader[WAITED] if each.end > begin]
    moments = {
        "leader is awake": woken[0],
        "leader has read the record": record.end,
        "leader begins to append": leader[WRITTEN][0].begin,
        "leader has appended": leader[WRITTEN][0].end,
        "leader begins to send to the first follower": one.begin,
        "leader has sent that": one.end,
        "leader begins to send to the second follower": other.begin,
        "leader has sent that, too": other.end,
        "leader has read the first acknowledging fetch": first.end,
        "leader has read the second": second.end,
        "leader begins to answer the client": answer.begin,
        "leader has answered": answer.end,
        "client has the answer": end,
    }
    followers = [_follower_moments(within[node], begin) for node in FOLLOWERS]
    if not all(followers):
        return {}
    for place, follower in zip(("first", "second"), sorted(followers, key=_last), strict=True):
        moments |= {f"{place} follower {what}": moment for what, moment in follower.items()}
    return {what: moment - begin for what, moment in moments.items()}


def _follower_moments(stamps: Sequence[Stamp], begin: float) -> dict[str, float]:
    kinds = _by_kind(stamps)
    if any(len(kinds[kind]) != 1 for kind in (READ, WRITTEN, SENT)):
        return {}
    (read,), (written,), (sent,) = kinds[READ], kinds[WRITTEN], kinds[SENT]
    woken = [each.end for each in kinds[WAITED] if begin < each.end <= read.begin]
    return {
        "is awake": woken[-1] if woken else read.begin,
        "has read": read.end,
        "begins to append": written.begin,
        "begins to send its next fetch": sent.begin,
        "has sent it": sent.end,
    }


def _last(moments: dict[str, float]) -> float:
    return max(moments.values())


def _by_kind(stamps: Sequence[Stamp]) -> dict[int, list[Stamp]]:
    return {kind: [each for each in stamps if each.kind == kind] for kind in KINDS}


def asked(records: int, pause: float) -> list[tuple[float, float]]:
    """Return when each record was sent and when its answer had come."""
    moments = []
    with (
        tempfile.TemporaryDirectory(prefix="understudy-trace-") as scratch,
        IsolatedCluster(Path(scratch), brokers=3, forked=True) as cluster,
    ):
        cluster.wait_until_ready()
        create_topic(cluster.bootstrap_servers)
        with Asker(*leader_address(cluster), produce_frame()) as asker:
            asker.wait_until(acknowledged)
            asker.times(WARM_UP)
            for _ in range(records):
                time.sleep(pause)  # the rate that was asked for
                begin = time.monotonic_ns() / 1000
                asker.ask()
                moments.append((begin, time.monotonic_ns() / 1000))
    return moments


def run(records: int, pause: float) -> None:
    stamps = stamp_calls()
    records_asked = asked(records, pause)
    by_node = [list(stamps.of(node)) for node in range(NODES)]
    ends = [[each.end for each in of_node] for of_node in by_node]
    found: defaultdict[str, list[float]] = defaultdict(list)
    for begin, end in records_asked:
        within = [
            of_node[bisect_left(of_ends, begin) : bisect_left(of_ends, end)]
            for of_node, of_ends in zip(by_node, ends, strict=True)
        ]
        for what, moment in moments_of(begin, within, end).items():
            found[what].append(moment)
    whole = statistics.median(end - begin for begin, end in records_asked)
    taken = len(next(iter(found.values()), ()))
    print(f"{whole:.0f} us, the median of {records}; moments of {taken} of them:")
    for what, moments in sorted(found.items(), key=lambda each: statistics.median(each[1])):
        least, *_, most = statistics.quantiles(moments, n=10)
        print(f"{statistics.median(moments):8.0f} us  {least:8.0f} to {most:<8.0f}  {what}")


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["1000", "10"][len(sys.argv) - 1 :]
    run(int(arguments[0]), float(arguments[1]) / 1000)
