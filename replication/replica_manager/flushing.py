"""A log is flushed away from the loop: planned there, synced elsewhere, and then it counts."""

from functools import partial

from replication.net.seams import Offload
from storage.errors import ShortageError
from storage.log.log import Log


async def flush_log(log: Log, offload: Offload) -> None:
    """Make everything in `log` last, unless it is closed or has failed."""
    if log.closed or log.failed:
        return
    try:
        # First, so that the plan finds them on disk and does not write them on the loop.
        await offload(log.leader_epoch_cache.flush)
    except ShortageError:
        raise
    except OSError as error:
        raise log.fail(error) from error
    plan = log.flush_plan()
    await offload(partial(log.sync, plan))
    log.commit_flush(plan)
