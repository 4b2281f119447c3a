"""The requests and the time limits of consumer groups (KIP-848), one change of a group at a time.

    heartbeat ─> rules ─> records ─> written ─> the changed group takes the place of the old one
                    └─ refused: nothing is written    └─ not written: it does not

Each change runs in the coordinator's nursery: once records are submitted the group has to follow
what becomes of them, also if the connection that asked is closed meanwhile.

(Kafka: GroupCoordinatorService, GroupMetadataManager.)
"""

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs
import trio

from replication.coordinator.log import is_too_long
from replication.coordinator.rules import write_error
from replication.errors import ErrorCode, KafkaError
from replication.groups.coordinator import GroupCoordinator
from replication.groups.rules.classic import ClassicGroup
from replication.groups.rules.consumer_group.group import (
    ConsumerGroup,
    GroupChange,
)
from replication.groups.rules.consumer_group.heartbeat import (
    Beat,
    Caller,
    ConsumerGroupSettings,
    Refusal,
    fault_in,
    fence,
    heartbeat,
    note_topics,
)
from replication.groups.rules.consumer_group.patterns import resolve
from replication.groups.rules.group import Group
from replication.groups.rules.records import group_tombstone
from replication.groups.shard import GroupShard, HostedGroup
from replication.metadata.rules.image import MetadataImage
from replication.wire.consumer_group_heartbeat import JOIN_EPOCH, ConsumerGroupHeartbeatRequest
from storage.types import NO_OFFSET

LARGE_CHANGE: Final = 500
"""The number of members, partitions and names from which a change is computed in a thread."""
LEAST_REGEX_INTERVAL_MS: Final = 10_000
"""The least time between two look-ups of a group's patterns (GroupMetadataManager)."""

Rule = Callable[[GroupChange], Beat | Refusal | None]


@attrs.define(eq=False)
class _Asked:
    """A change that somebody waits for."""

    done: trio.Event = attrs.field(factory=trio.Event)
    answer: Beat | Refusal | None = None


@attrs.define(eq=False, kw_only=True)
class ConsumerGroups:
    """The consumer groups of a coordinator; `image` returns the metadata as it is now."""

    coordinator: GroupCoordinator
    image: Callable[[], MetadataImage]
    settings: ConsumerGroupSettings
    regex_refresh_interval_ms: int

    def __attrs_post_init__(self) -> None:
        self.coordinator.on_deadline = self.look

    async def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, *, version: int
    ) -> Beat | Refusal:
        """Return the response to a member, once what it changes is written."""
        fault = fault_in(request, version, self.settings.assignors)
        if fault is not None:
            return fault
        names = (request.member_id, request.instance_id, request.rack_id, caller.client_id)
        if is_too_long(
            *names, request.subscribed_topic_regex, *request.subscribed_topic_names or ()
        ):
            return Refusal(ErrorCode.INVALID_REQUEST, "a name does not fit into a record")
        if not request.member_id:
            unique = self.coordinator.seams.chance.randbytes(16)
            request.member_id = str(uuid.UUID(bytes=unique, version=4))
        try:
            shard = self.coordinator.serving_members(request.group_id)
        except KafkaError as error:
            return Refusal(error.code, str(error))
        hosted = shard.groups.get(request.group_id)
        joins = request.member_epoch == JOIN_EPOCH
        if hosted is None and joins:
            hosted = shard.add(Group(request.group_id))
        if hosted is None or (hosted.consumers is None and not (joins and hosted.is_convertible)):
            return Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        answer = await self._ask(partial(self._beat, shard, hosted, request, caller))
        assert answer is not None, "a heartbeat is answered"
        return answer

    async def _ask(
        self, change: Callable[[], Awaitable[Beat | Refusal | None]]
    ) -> Beat | Refusal | None:
        """Run `change` in the coordinator's nursery, and return its answer."""
        asked = _Asked()
        self.coordinator.nursery.start_soon(self._run, change, asked)
        await asked.done.wait()
        return asked.answer

    async def _run(
        self, change: Callable[[], Awaitable[Beat | Refusal | None]], asked: _Asked
    ) -> None:
        try:
            asked.answer = await change()
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            asked.answer = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator has failed")
            self.coordinator.on_bug(bug)
        finally:
            asked.done.set()

    async def _beat(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
    ) -> Beat | Refusal:
        image = self.image()
        rule = partial(
            heartbeat,
            request=request,
            caller=caller,
            image=image,
            settings=self.settings,
            image_changed=hosted.known_image is not image,
        )
        weight = len(request.subscribed_topic_names or ()) + sum(
            1 + len(each.partitions) for each in request.topic_partitions or ()
        )
        answer = await self._change(shard, hosted, rule, weight=weight)
        assert answer is not None, "a heartbeat is answered"
        consumers = hosted.consumers
        if isinstance(answer, Beat) and consumers is not None:
            hosted.known_image = image
            if request.member_id in consumers.members:
                hosted.sessions.renew(consumers, request.member_id, self.coordinator.at.now_ms)
            self.coordinator.watch(hosted)
            self._maybe_resolve(shard, hosted)
        return answer

    async def _change(
        self, shard: GroupShard, hosted: HostedGroup, rule: Rule, *, weight: int = 0
    ) -> Beat | Refusal | None:
        """Apply `rule` to the group, and write what it changes; its answer, or why it is not."""
        async with hosted.consumers_change:
            if not shard.serves(hosted.group.group_id, hosted):
                return Refusal(ErrorCode.NOT_COORDINATOR, "the group has moved, or was deleted")
            group = hosted.consumers or ConsumerGroup(hosted.group.group_id)
            change = GroupChange(group)
            if weight + _size(group) > LARGE_CHANGE:
                answer = await self.coordinator.seams.offload(partial(rule, change))
            else:
                answer = rule(change)
            if isinstance(answer, Refusal) or not change.records:
                return answer
            if hosted.consumers is None and not hosted.is_convertible:
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "a classic member has joined")
            return await self._write(hosted, change) or answer

    async def _write(self, hosted: HostedGroup, change: GroupChange) -> Refusal | None:
        records = list(change.records)
        if hosted.consumers is None and hosted.group.generation > 0:
            records.insert(0, group_tombstone(hosted.group.group_id))
        submission = hosted.log.submit(records)
        await submission.wait()
        is_written = submission.error is ErrorCode.NONE or submission.log_offset != NO_OFFSET
        if is_written:
            if hosted.consumers is None:
                hosted.machine = ClassicGroup(Group(hosted.group.group_id), hosted.machine.limits)
            hosted.consumers = change.group
            hosted.sessions.follow(change.group)
        if submission.error is ErrorCode.NONE:
            return None
        return Refusal(write_error(submission.error), "the group could not be written")

    # Time limits.

    def look(self, hosted: HostedGroup) -> None:
        """Fence the members of a group that are too late."""
        late = hosted.sessions.take_late(self.coordinator.at.now_ms)
        if late:
            self.coordinator.nursery.start_soon(
                self._run, partial(self._fence, hosted, set(late)), _Asked()
            )

    async def _fence(self, hosted: HostedGroup, late: set[str]) -> Refusal | None:
        try:
            shard = self.coordinator.serving(hosted.group.group_id)
        except KafkaError:
            return None  # another broker has the group, and begins its deadlines anew

        def rule(change: GroupChange) -> None:
            # One that has come meanwhile has a new deadline.
            gone = [each for each in late & change.group.members.keys() if not sessions.has(each)]
            if gone:
                fence(change, gone, self.image())

        sessions = hosted.sessions
        refusal = await self._change(shard, hosted, rule)
        if hosted.consumers is not None and isinstance(refusal, Refusal):
            for member_id in late & hosted.consumers.members.keys():
                sessions.renew(hosted.consumers, member_id, self.coordinator.at.now_ms)
        self.coordinator.watch(hosted)
        return None

    # Regular expressions.

    def _maybe_resolve(self, shard: GroupShard, hosted: HostedGroup) -> None:
        """Look up the topics of the group's patterns, if there are others or others may match.

        One look-up is under way at a time, so that no older one can replace the topics of a newer
        one; the next heartbeat after it sees what has changed meanwhile.
        """
        consumers = hosted.consumers
        if consumers is None or hosted.is_resolving:
            return
        patterns, image = consumers.subscribed_patterns(), self.image()
        last_ms = max((each.timestamp for each in consumers.patterns.values()), default=0)
        since_ms = self.coordinator.at.wall_ms - last_ms
        if not patterns or since_ms <= LEAST_REGEX_INTERVAL_MS:
            return
        are_new = patterns != consumers.patterns.keys()
        is_old = since_ms > self.regex_refresh_interval_ms
        if are_new or is_old or hosted.are_new_topics(image):
            hosted.is_resolving, hosted.resolved_in = True, image
            self.coordinator.nursery.start_soon(
                self._run, partial(self._resolve, shard, hosted, patterns, image), _Asked()
            )

    async def _resolve(
        self, shard: GroupShard, hosted: HostedGroup, patterns: set[str], image: MetadataImage
    ) -> Refusal | None:
        look_up = partial(
            resolve,
            sorted(patterns),
            list(image.topics),
            version=image.offset,
            timestamp=self.coordinator.at.wall_ms,
        )
        refusal: Beat | Refusal | None = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "it has failed")
        try:
            found = await self.coordinator.seams.offload(look_up)
            refusal = await self._change(
                shard, hosted, lambda change: note_topics(change, found, image)
            )
        finally:
            hosted.is_resolving = False
            if isinstance(refusal, Refusal):
                hosted.resolved_in = None  # the next heartbeat tries again
        return None

    def described(self, group_id: str) -> ConsumerGroup:
        """Return the group; raise KafkaError where there is none, as `serving` does."""
        hosted = self.coordinator.serving(group_id).groups.get(group_id)
        if hosted is None or hosted.consumers is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        return hosted.consumers


def _size(group: ConsumerGroup) -> int:
    names = sum(len(each.topic_names) for each in group.members.values())
    return len(group.members) + names + group.owned_count
