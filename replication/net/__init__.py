"""The world as a node sees it: time, bytes to and from peers, slow work.

    seams.py     the five protocols for everything that may differ between two runs
    clock.py     trio's clock, and alarms       tcp.py      sockets and sendfile
    wrapped.py   connections over others        detach.py   the resources of a killed node
    framing.py   length-prefixed frames         exchange.py  numbered requests, without waiting
    rpc.py       requests, read by the caller   sasl.py  tls.py  secure.py   logins and TLS
    pace.py      turns, and steps of long work  raising.py   one error out of a group of one
    ports.py     ports that stay free for servers that start again

`production_seams()` makes the seams of a real node. The simulator makes its own
(`scenarios/world/world.py`).
"""

import random
from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

from replication.net.clock import TrioClock
from replication.net.seams import Seams
from replication.net.tcp import TcpTransport
from storage.attributes import define
from storage.filesystem import OsFileSystem

T = TypeVar("T")

DEFAULT_THREADS = 4


@define
class ThreadOffload:
    """`Offload` to worker threads, with at most `threads` calls at once.

    A call that is cancelled while it waits for a thread never runs. A call that is cancelled after
    that still waits for `fn` and returns its result, because work that no task waits for would
    touch files that their owner has closed.

    Each node has a limit of its own, so that one node's recovery cannot keep another node in the
    same process from syncing.
    """

    threads: int = DEFAULT_THREADS
    _limiter: trio.CapacityLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limiter = trio.CapacityLimiter(self.threads)

    async def __call__(self, fn: Callable[[], T], /) -> T:
        return await trio.to_thread.run_sync(fn, limiter=self._limiter)


def production_seams() -> Seams:
    """Return seams over this machine; each node has its own."""
    return Seams(
        clock=TrioClock(),
        chance=random.SystemRandom(),
        transport=TcpTransport(),
        file_system=OsFileSystem(),
        offload=ThreadOffload(),
    )
