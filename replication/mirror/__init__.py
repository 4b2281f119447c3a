"""An exact copy of topics of a foreign cluster: a broker's following half, fed with news of others.

    source cluster ── Metadata ──> source.py ──> image.py ──> ReplicaManager ── keeps logs open,
         ^                            who leads what, as the      syncs, checkpoints, throttles
         │                            image that our own                    │
         │                            controller would tell                 v
         └── Fetch, replica id -1 ── ReplicaFetcherManager: what our brokers follow with

    mirror      one copy, followed until it is stopped        options   what is followed, how far
    source      the foreign cluster, as its clients see it    image     that, as metadata of ours
    leader      the way to one of its leaders                 progress  how far the copy is

Rule 1: batches are written as they came, by the same code that writes a broker's replica: the
same offsets, epochs, timestamps, compression, CRC, and the same gaps.

Rule 2: what is there says where to go on: the copy's log end and its last epoch. Nothing else is
believed after a kill.

Rule 3: nothing of the copy goes but what the source has let go of: below its log start, or on
another branch than its epochs tell of. A topic that is deleted there stays here; one that was
made again under its name is followed anew, and the copy of the old one is set aside.
"""

from replication.mirror.errors import MirrorError
from replication.mirror.mirror import Mirror
from replication.mirror.options import MirrorOptions, UpTo
from replication.mirror.progress import PartitionProgress

__all__ = ["Mirror", "MirrorError", "MirrorOptions", "PartitionProgress", "UpTo"]
