"""The world as a node sees it: time, bytes to and from peers, slow work.

    seams.py     the five protocols for everything that may differ between two runs
    clock.py     trio's clock                   tcp.py      sockets and sendfile
    offload.py   worker threads                 detach.py   the resources of a killed node
    framing.py   length-prefixed frames         exchange.py  numbered requests, without waiting
    rpc.py       requests, read by the caller   sasl.py  tls.py  secure.py   logins and TLS
    turns.py     turns of senders               raising.py   one error out of a group of one
    alarms.py    calls at a moment              pace.py      steps of long work
    descriptors.py  file descriptors that connections leave free

`production_seams()` makes the seams of a real node. The simulator makes its own
(`scenarios/world/world.py`).
"""

import random

from replication.net.clock import TrioClock
from replication.net.offload import ThreadOffload
from replication.net.seams import Seams
from replication.net.tcp import TcpTransport
from storage.filesystem import OsFileSystem


def production_seams() -> Seams:
    """Return seams over this machine; each node has its own."""
    return Seams(
        clock=TrioClock(),
        chance=random.SystemRandom(),
        transport=TcpTransport(),
        file_system=OsFileSystem(),
        offload=ThreadOffload(),
    )
