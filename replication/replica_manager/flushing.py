"""The flush of a log: planned on the loop, synced away from it, and committed on the loop."""

from functools import partial

from replication.net.seams import Offload
from storage.errors import ShortageError
from storage.log.log import Log


async def flush_log(log: Log, offload: Offload) -> None:
    """Sync everything in `log`, unless it is closed or has failed."""
    if log.closed or log.failed:
        return
    try:
        # Before the plan, which would write the leader epochs on the loop.
        await offload(log.leader_epoch_cache.flush)
    except ShortageError:
        raise
    except OSError as error:
        raise log.fail(error) from error
    plan = log.flush_plan()
    await offload(partial(log.local.sync, plan))
    log.local.commit_flush(plan)
