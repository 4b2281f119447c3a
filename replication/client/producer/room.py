"""Where those wait for whom `buffer.memory` is full; first come, first served."""

from collections.abc import Callable

import attrs
import trio

from replication.client.errors import KafkaTimeoutError
from replication.client.producer.accumulator import RecordAccumulator
from replication.net.seams import NodeClock


@attrs.define(eq=False)
class Room:
    accumulator: RecordAccumulator
    clock: NodeClock
    on_wait: Callable[[], None] = lambda: None
    _line: trio.Lock = attrs.field(factory=trio.Lock)
    _freed: trio.Event = attrs.field(factory=trio.Event)

    def freed(self) -> None:
        self._freed.set()

    async def wait(self, size: int, *, timeout_ms: float) -> None:
        self.accumulator.waiting_for_room += 1
        self.on_wait()
        try:
            with self.clock.move_on_after(timeout_ms / 1000):
                async with self._line:
                    while not self.accumulator.has_room(size):
                        self._freed = trio.Event()
                        await self._freed.wait()
                return
        finally:
            self.accumulator.waiting_for_room -= 1
        raise KafkaTimeoutError(
            f"no room for {size} bytes within {timeout_ms:.0f} ms: {self.accumulator.used} of"
            f" {self.accumulator.buffer_memory} are on their way"
        )
