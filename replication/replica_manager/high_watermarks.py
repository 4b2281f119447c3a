"""The checkpoint of high watermarks: what a former process of this broker wrote, and this one.

    read       at the start, for every log that was found
    of         once for each log, when its partition comes online
    write      regularly, and before the end

Rule 1: the mark of a log whose partition is not online yet stays.

Rule 2: no new log is appended to while the checkpoint has the mark of a deleted log of its name. A
power cut would make it the mark of the new one, which has not committed as much. (Apache Kafka
writes the checkpoint at its interval alone.)
"""

import contextlib
from collections.abc import Iterable, MutableMapping
from functools import partial
from weakref import WeakKeyDictionary

import attrs

from replication.leader.partition import Partition
from replication.net.pace import Turns, in_steps
from replication.net.seams import Offload
from replication.replica_manager.hosted import HostedPartitions
from replication.steps import each_of
from storage.attributes import define
from storage.errors import ShortageError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.types import Offset


@define(eq=False, kw_only=True)
class HighWatermarks:
    hosted: HostedPartitions
    log_manager: LogManager
    offload: Offload
    _before: MutableMapping[Log, Offset] = attrs.field(factory=WeakKeyDictionary, init=False)
    """The marks from before this start, each until its partition is online."""
    _turns: Turns = attrs.field(init=False, factory=Turns)

    async def read(self) -> None:
        self._before.update(await self.offload(self.log_manager.read_high_watermarks))

    def of(self, log: Log) -> Offset:
        """Return the mark from before this start, and forget it; 0 where there is none."""
        return self._before.pop(log, 0)

    async def write(self) -> None:
        """Write every partition's high watermark, for the next start."""
        async with self._turns:
            waiting = dict(self._before)
            held = await in_steps(each_of(_lasting, list(self.hosted)))
            marks = waiting | dict(held)
            await self.offload(partial(self.log_manager.checkpoint_high_watermarks, marks))

    async def forget_deleted(self, opened: Iterable[Log]) -> None:
        """Write the checkpoint if it has marks of deleted logs with the names of new ones."""
        if any(each not in self._before and self.log_manager.is_marked(each) for each in opened):
            with contextlib.suppress(ShortageError):  # the next write corrects it
                await self.write()


def _lasting(partition: Partition) -> tuple[Log, Offset]:
    """Return the high watermark of `partition` that the next start may believe."""
    return partition.log, partition.log.lasting_high_watermark
