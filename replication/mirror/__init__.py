"""An exact copy of topics of a foreign cluster: a broker's following half, with foreign metadata.

    source cluster ── Metadata ──> source.py ──> image.py ──> ReplicaManager ── keeps logs open,
         ^                            the leaders, as the         syncs, checkpoints, throttles
         │                            image that our                        │
         │                            controller would send                 v
         └── Fetch, replica id -1 ── ReplicaFetcherManager: the fetchers of our brokers

    mirror      one copy, followed until it is stopped        options   the topics to follow, limits
    source      the foreign cluster, as its clients see it    image     its metadata in our form
    state       `mirror.json`, its writer, and progress       tails     checks for foreign writes
    promotion   the copy as a cluster of its own

Rule 1: batches are written as they came, by the same code that writes a broker's replica: the
same offsets, epochs, timestamps, compression, CRC, and the same gaps.

Rule 2: the copy's log end and its last epoch say where to go on. Nothing else counts after a kill.

Rule 3: the copy deletes only what the source has deleted: below its log start, or after an offset
where its epochs diverge. A topic that is deleted there stays here; a topic that was created again
under its name is followed anew, and the copy of the old one is set aside.
"""

from replication.mirror.mirror import Mirror
from replication.mirror.options import MirrorOptions, UpTo
from replication.mirror.state import MirrorError, PartitionProgress

__all__ = ["Mirror", "MirrorError", "MirrorOptions", "PartitionProgress", "UpTo"]
