"""The groups of one partition of `__consumer_offsets`, for one leader epoch of this broker.

A heap of deadlines says when a group has to be looked at next, and one task waits for the first.
A heartbeat only ever moves a deadline back, so it costs nothing here: the group is looked at when
it was first due, and goes back into the heap with its present deadline.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import attrs
import trio

from replication.coordinator.log import CoordinatorLog
from replication.coordinator.shards import Shard
from replication.groups.rules.classic import ClassicGroup, GroupLimits
from replication.groups.rules.consumer_group.group import ConsumerGroup
from replication.groups.rules.consumer_group.sessions import Sessions
from replication.groups.rules.group import Group, GroupState
from replication.groups.rules.offsets import GroupOffsets
from replication.groups.rules.replay import Replayed
from replication.metadata.rules.image import MetadataImage
from replication.net.seams import NodeClock
from replication.steps import Steps
from storage.attributes import define


@define(eq=False)
class HostedGroup:
    """A group at work, and its committed offsets; `machine` is empty while it is a consumer group."""

    machine: ClassicGroup
    log: CoordinatorLog
    sessions: Sessions
    consumers: ConsumerGroup | None = None
    """The group of KIP-848, as the log has it; None while the group is a classic one."""
    consumers_change: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while a change of `consumers` is made and written: there is one at a time."""
    upgrade_ended: trio.Event | None = None
    """Set once the upgrade of this classic group has ended; None where none is under way."""
    known_image: MetadataImage | None = None
    """The metadata that the last heartbeat of a consumer was answered with."""
    resolved_in: MetadataImage | None = None
    """The metadata in whose topics its regular expressions were looked up last."""
    is_resolving: bool = False
    """Whether its regular expressions are being looked up."""
    offsets: GroupOffsets = attrs.field(factory=GroupOffsets)
    timer_ms: int | None = None
    """The time of its next entry in the heap of deadlines; None without one."""

    @property
    def group(self) -> Group:
        return self.machine.group

    @property
    def is_idle(self) -> bool:
        """Whether the group has neither members nor offsets."""
        return self.is_empty and not self.machine.pending and self.offsets.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and none is about to be written."""
        has_consumers = self.consumers is not None and bool(self.consumers.members)
        is_changing = self.consumers_change.locked()
        return self.group.state is GroupState.EMPTY and not has_consumers and not is_changing

    @property
    def is_upgrading(self) -> bool:
        """Whether a consumer group is about to take the place of this classic one, which stands
        still meanwhile.
        """
        return self.upgrade_ended is not None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let a classic group stand still during a change, which may make it a consumer group."""
        ended = self.upgrade_ended = trio.Event() if self.consumers is None else None
        try:
            yield
        finally:
            self.upgrade_ended = None
            if ended is not None:
                ended.set()

    def are_new_topics(self, image: MetadataImage) -> bool:
        """Return whether there are other topics than those in which patterns were looked up last."""
        known = self.resolved_in
        if known is image:
            return False
        if known is None or known.topic_names_by_id != image.topic_names_by_id:
            return True
        self.resolved_in = image
        return False

    @property
    def state_name(self) -> str:
        """The state of the group, as responses say it."""
        state = self.group.state if self.consumers is None else self.consumers.state
        return str(state.value)

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time limit of a member; None for a group that has moved to another broker."""
        if self.group.state is GroupState.DEAD:
            return None
        of_classic = None if self.is_upgrading else self.machine.next_deadline_ms
        known = (of_classic, self.sessions.next_deadline_ms)
        return min((each for each in known if each is not None), default=None)


@define(eq=False)
class GroupShard(Shard):
    """The groups of one partition of `__consumer_offsets`."""

    limits: GroupLimits = attrs.field(kw_only=True)
    groups: dict[str, HostedGroup] = attrs.field(factory=dict, init=False)

    def __iter__(self) -> Iterator[tuple[str, HostedGroup]]:
        """Return an iterator over a copy of the groups, by name: some may be removed meanwhile."""
        return iter(sorted(self.groups.items()))

    def serves(self, group_id: str, hosted: HostedGroup) -> bool:
        """Return whether `hosted` is still the group of that name, here and not elsewhere."""
        return not self.log.is_closed and self.groups.get(group_id) is hosted

    def add(self, group: Group) -> HostedGroup:
        assert group.group_id not in self.groups, "a group is hosted once"
        machine = ClassicGroup(group, self.limits)
        hosted = HostedGroup(machine, self.log, Sessions())
        self.groups[group.group_id] = hosted
        return hosted

    def load(self, state: Replayed) -> Steps[None]:
        """Host the groups that the log contains, also those that have only offsets."""
        for group_id, value in state.groups.items():
            self.add(Group.of(group_id, value))
            yield 1 + len(value.members)
        for group_id, consumers in state.consumers.items():
            hosted = self.groups.get(group_id) or self.add(Group(group_id))
            hosted.consumers = consumers
            yield 1 + len(consumers.members)
        for group_id, offsets in state.offsets.items():
            if not offsets.is_empty or group_id in self.groups:
                (self.groups.get(group_id) or self.add(Group(group_id))).offsets = offsets
            yield 1
        self.ready = True


@define(eq=False)
class GroupTimers:
    """The deadlines of every group at this broker."""

    clock: NodeClock
    _due: list[tuple[int, int, HostedGroup]] = attrs.field(factory=list, init=False)
    _order: "count[int]" = attrs.field(factory=count, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)

    def watch(self, hosted: HostedGroup) -> None:
        """Call back for the group when it is next due."""
        due_ms = hosted.next_deadline_ms
        if due_ms is None or (hosted.timer_ms is not None and hosted.timer_ms <= due_ms):
            return
        hosted.timer_ms = due_ms
        heapq.heappush(self._due, (due_ms, next(self._order), hosted))
        if self._due[0][2] is hosted:
            self._sooner.set()

    async def run(self, look: Callable[[HostedGroup], None]) -> None:
        """Call `look` for every group that is due, and watch it again."""
        while True:
            now_ms = self.clock.now_ms()
            for hosted in self._take(now_ms):
                look(hosted)
                self.watch(hosted)
            self._sooner = trio.Event()
            if self._due:
                # A group that is due again at once waits for the next millisecond.
                wait_ms = max(self._due[0][0] - now_ms, 1)
                with self.clock.move_on_after(wait_ms / 1000):
                    await self._sooner.wait()
            else:
                await self._sooner.wait()

    def _take(self, now_ms: int) -> list[HostedGroup]:
        """Return the groups that are due."""
        taken = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, hosted = heapq.heappop(self._due)
            if hosted.timer_ms == due_ms:
                hosted.timer_ms = None
                taken.append(hosted)
        return taken
