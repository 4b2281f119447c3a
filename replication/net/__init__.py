"""The world as a node meets it: time, bytes to and from peers, slow work.

    seams.py     the five protocols through which everything comes that may differ
    clock.py     trio's clock                   tcp.py      sockets and sendfile
    offload.py   worker threads                 detach.py   what a killed node still holds
    framing.py   length-prefixed frames         rpc.py      requests and their responses
    turns.py     who may send now               raising.py   one error out of a group of one
    alarms.py    calls at a moment              pace.py      steps of long work
    descriptors.py  what connections leave to files

`production_seams()` is what a node in real life is handed. The simulator hands out its
own: scenarios/world/world.py.
"""

import random

from replication.net.clock import TrioClock
from replication.net.offload import ThreadOffload
from replication.net.seams import Seams
from replication.net.tcp import TcpTransport
from storage.filesystem import OsFileSystem


def production_seams() -> Seams:
    """Seams over this machine; each node has its own."""
    return Seams(
        clock=TrioClock(),
        chance=random.SystemRandom(),
        transport=TcpTransport(),
        file_system=OsFileSystem(),
        offload=ThreadOffload(),
    )
