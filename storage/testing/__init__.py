"""A disk in memory on which forgetting to sync shows.

    SimulatedDisk       what is on the platter, and what only the page cache knows
    FaultyFileSystem    one process's view of it: a FileSystem that can be cut off

Rule 1: `write` reaches the page cache. `sync` of the file makes its bytes last,
`sync_directory` makes the names in it last; a name that was never synced is gone after a
crash, however well the file's bytes were synced.

Rule 2: killing a process (`detach`) loses nothing: the page cache is the kernel's. Every
later call of that process raises `DetachedError`, so that clean-up code which runs while
it dies cannot write. Its successor sees the same disk through `reopen`.

Rule 3: a power cut (`crash`) keeps what was synced, and of the rest whatever chance says:
a write may be whole, absent, torn at a sector, or a length with zeros in it. Truncations
and names are metadata: a journaling file system keeps those in order, so a crash keeps
some first part of them, per file and per directory. A write that came after a lost
truncation is lost with it.

A test that wants one of these ends names it: `crash(Fate.ZEROES)`. `Fate.NOTHING` is the only
one that forgets names: each directory is as it was when it was last synced, so what was created,
renamed or deleted since was not.

Rule 4: a fault is injected by operation and file name: it raises, once or for ever, and
a failed write may have written half. A failed sync loses the pages that it was to write,
as Linux does: the next sync succeeds and they are still not there, which shows when they
are evicted. A disk that lies answers a sync with success and does nothing. The power may fail
at an operation, too (`PowerFailure`).

Rule 5: some faults raise nothing: a bit flips at rest, a write lands elsewhere on the platter, which
the page cache hides until a power cut. A read finds out, or nothing does.

Rule 6: whatever is done costs seconds, which add up until somebody takes them: in a
simulation the offload seam, which sleeps them on its node's clock.
"""

from storage.testing.disk import DiskCosts, Fate, Fault, PowerFailure, SimulatedDisk
from storage.testing.file_system import DetachedError, FaultyFile, FaultyFileSystem

__all__ = [
    "DetachedError",
    "DiskCosts",
    "Fate",
    "Fault",
    "FaultyFile",
    "FaultyFileSystem",
    "PowerFailure",
    "SimulatedDisk",
]
