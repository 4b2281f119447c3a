"""The requests and the time limits of consumer groups (KIP-848), one change of a group at a time.

    heartbeat ─> rules ─> records ─> written ─> the changed group takes the place of the old one
                    └─ refused: nothing is written    └─ not written: it does not

The old group may be a classic one (an upgrade), and the changed one too (a downgrade). A classic
group stands still while it is upgraded: its requests wait, and its time limits.

Each change runs in the coordinator's nursery: once records are submitted the group has to follow
what becomes of them, also if the connection that asked is closed meanwhile.

The file is long because every request, time limit and look-up changes a group in the same way.
(Kafka: GroupCoordinatorService, GroupMetadataManager.)
"""

import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from replication.config.group import GroupConfig
from replication.coordinator.log import is_too_long
from replication.coordinator.rules import write_error
from replication.errors import ErrorCode, KafkaError
from replication.events import GroupProtocolChanged
from replication.groups.coordinator import GroupCoordinator
from replication.groups.rules.classic import ClassicGroup
from replication.groups.rules.consumer_group import classic_members
from replication.groups.rules.consumer_group.group import ConsumerGroup, GroupChange
from replication.groups.rules.consumer_group.heartbeat import (
    Beat,
    Caller,
    fault_in,
    heartbeat,
    note_topics,
)
from replication.groups.rules.consumer_group.membership import (
    Conditions,
    ConsumerGroupSettings,
    Refusal,
)
from replication.groups.rules.consumer_group.migration import fence_or_downgrade, upgrade
from replication.groups.rules.consumer_group.patterns import resolve
from replication.groups.rules.consumer_group.sessions import TimeLimit
from replication.groups.rules.effects import JoinResult, SyncResult
from replication.groups.rules.group import Group, GroupState
from replication.groups.rules.joining import Join
from replication.groups.rules.records import group_tombstone
from replication.groups.shard import GroupShard, HostedGroup
from replication.metadata.rules.image import MetadataImage
from replication.wire.consumer_group_heartbeat import JOIN_EPOCH, ConsumerGroupHeartbeatRequest
from storage.attributes import define

LARGE_CHANGE: Final = 500
"""The number of members, partitions and names from which a change is computed in a thread."""
BYTES_OF_NAME: Final = 16
"""The bytes of a subscription that count as one name."""
LEAST_REGEX_INTERVAL_MS: Final = 10_000
"""The least time between two look-ups of a group's patterns (GroupMetadataManager)."""

_ANOTHER_TYPE: Final = Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "the group has changed its type")
_FAILED: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator has failed")
T = TypeVar("T")
Rule = Callable[[GroupChange], T | Refusal]


@define(eq=False)
class _Asked(Generic[T]):
    """A change that somebody waits for."""

    done: trio.Event = attrs.field(factory=trio.Event)
    answer: T | Refusal = _FAILED


@define(eq=False, kw_only=True)
class ConsumerGroups:
    """The consumer groups of a coordinator; `image` returns the metadata as it is now."""

    coordinator: GroupCoordinator
    image: Callable[[], MetadataImage]
    settings: ConsumerGroupSettings
    regex_refresh_interval_ms: int
    config_of: Callable[[str], GroupConfig]
    """Returns the settings of a group as they are now, by its name."""

    def __attrs_post_init__(self) -> None:
        self.coordinator.consumers = self

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
        if hosted is None or (hosted.consumers is None and not joins):
            return Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        return await self._ask(partial(self._beat, shard, hosted, request, caller))

    async def _ask(self, change: Callable[[], Awaitable[T | Refusal]]) -> T | Refusal:
        """Run `change` in the coordinator's nursery, and return its answer."""
        asked: _Asked[T] = _Asked()
        self.coordinator.nursery.start_soon(self._run, change, asked)
        await asked.done.wait()
        return asked.answer

    async def _run(self, change: Callable[[], Awaitable[T | Refusal]], asked: _Asked[T]) -> None:
        try:
            asked.answer = await change()
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
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
        conditions = self._conditions(hosted)
        rule = partial(heartbeat, request=request, caller=caller, conditions=conditions)
        weight = len(request.subscribed_topic_names or ()) + sum(
            1 + len(each.partitions) for each in request.topic_partitions or ()
        )
        is_quiet = (
            request.member_epoch > JOIN_EPOCH
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and not conditions.image_changed
        )
        answer = await self._change(shard, hosted, rule, weight=weight, is_quiet=is_quiet)
        if isinstance(answer, Beat):
            self._has_come(shard, hosted, request.member_id, conditions)
        return answer

    def _conditions(self, hosted: HostedGroup) -> Conditions:
        image = self.image()
        return Conditions(
            image,
            self.settings,
            self.coordinator.at.wall_ms,
            image_changed=hosted.known_image is not image,
            assignment_interval_ms=self.config_of(hosted.group.group_id).assignment_interval_ms,
        )

    def _has_come(
        self, shard: GroupShard, hosted: HostedGroup, member_id: str, conditions: Conditions
    ) -> None:
        """Note that a member's request has been answered, in a group that is one of consumers."""
        consumers = hosted.consumers
        if consumers is not None:
            hosted.known_image = conditions.image
            self._renew(hosted, member_id)
            self._maybe_resolve(shard, hosted)

    def _renew_all(self, hosted: HostedGroup, member_ids: Iterable[str]) -> None:
        assert hosted.consumers is not None, "a consumer group has sessions"
        now_ms = self.coordinator.at.now_ms
        timeout_ms = self.config_of(hosted.group.group_id).session_timeout_ms
        for each in member_ids:
            hosted.sessions.renew(hosted.consumers, each, now_ms, session_timeout_ms=timeout_ms)
        self.coordinator.watch(hosted)

    def _renew(self, hosted: HostedGroup, member_id: str) -> None:
        if hosted.consumers is not None and member_id in hosted.consumers.members:
            self._renew_all(hosted, [member_id])

    async def _change(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        rule: Rule[T],
        *,
        weight: int = 0,
        is_quiet: bool = False,
    ) -> T | Refusal:
        """Apply `rule` to the group, and write what it changes; its answer, or why it is not.

        `is_quiet`: the rule looks at one member alone, if the group has its target assignment.
        """
        try:
            async with hosted.consumers_change:
                with hosted.changing():
                    return await self._change_alone(shard, hosted, rule, weight, is_quiet=is_quiet)
        finally:
            self.coordinator.watch(hosted)

    async def _change_alone(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        rule: Rule[T],
        weight: int,
        *,
        is_quiet: bool,
    ) -> T | Refusal:
        if not shard.serves(hosted.group.group_id, hosted):
            return Refusal(ErrorCode.NOT_COORDINATOR, "the group has moved, or was deleted")
        change = GroupChange(hosted.consumers or ConsumerGroup(hosted.group.group_id))
        if hosted.consumers is None and hosted.group.state is not GroupState.EMPTY:
            weight += 2 * len(hosted.group.members)
            rule = partial(_upgraded, hosted.group, self._conditions(hosted), rule)
        if not is_quiet or change.group.epoch != change.group.assignment_epoch:
            weight += _size(change.group)
        if weight > LARGE_CHANGE:
            answer = await self.coordinator.seams.offload(partial(rule, change))
        else:
            answer = rule(change)
        if isinstance(answer, Refusal) or not change.records:
            return answer
        return await self._write(hosted, change) or answer

    async def _write(self, hosted: HostedGroup, change: GroupChange) -> Refusal | None:
        records = list(change.records)
        if hosted.consumers is None and hosted.group.generation > 0:
            records.insert(0, group_tombstone(hosted.group.group_id))
        submission = hosted.log.submit(records)
        await submission.wait()
        if submission.is_in_log and hosted.group.state is not GroupState.DEAD:
            self._take_over(hosted, change)
        if submission.error is ErrorCode.NONE:
            return None
        return Refusal(write_error(submission.error), "the group could not be written")

    def _take_over(self, hosted: HostedGroup, change: GroupChange) -> None:
        """Put the changed group in the place of the former one, which may be of the other type."""
        at, limits = self.coordinator.at, hosted.machine.limits
        group: Group | ConsumerGroup = change.downgraded or change.group
        if change.downgraded or (hosted.consumers is None and hosted.group.members):
            self.coordinator.sink(
                GroupProtocolChanged(
                    group=group.group_id,
                    protocol="classic" if change.downgraded else "consumer",
                    epoch=change.downgraded.generation if change.downgraded else change.group.epoch,
                    members=tuple(sorted(group.members)),
                )
            )
        if hosted.consumers is None:
            hosted.machine.unload(ErrorCode.REBALANCE_IN_PROGRESS, at)
            self.coordinator.carry_out(hosted)
            hosted.machine = ClassicGroup(Group(hosted.group.group_id), limits)
        if change.downgraded is None:
            known = () if hosted.consumers is None else hosted.consumers.members.keys()
            hosted.consumers = change.group
            hosted.sessions.follow(change.group)
            # A member that has joined is expected, also if its join is answered with an error.
            self._renew_all(hosted, change.group.members.keys() - known)
            return
        hosted.consumers = hosted.known_image = None
        hosted.sessions.follow(None)
        hosted.machine = ClassicGroup(change.downgraded, limits)
        hosted.machine.resume(at)
        if change.rebalance_cause:
            hosted.machine.maybe_prepare_rebalance(change.rebalance_cause, at)
        self.coordinator.carry_out(hosted)

    # The requests of classic members.

    async def join(self, shard: GroupShard, hosted: HostedGroup, request: Join) -> JoinResult:
        """Return the answer to a JoinGroup, once what it changes is written."""
        conditions = self._conditions(hosted)

        def rule(change: GroupChange) -> JoinResult | Refusal:
            if hosted.consumers is None or not hosted.consumers.members:
                return _ANOTHER_TYPE
            return classic_members.join(change, request, conditions)

        weight = sum(len(each.metadata) for each in request.protocols) // BYTES_OF_NAME
        answer = await self._ask(partial(self._change, shard, hosted, rule, weight=weight))
        if isinstance(answer, Refusal):
            return JoinResult(error=answer.error, member_id=request.member_id)
        if answer.error is ErrorCode.NONE and hosted.consumers is not None:
            member = hosted.consumers.members.get(answer.member_id)
            if member is not None:
                hosted.sessions.end(TimeLimit.JOIN, member.member_id)
                hosted.sessions.begin(TimeLimit.SYNC, member, self.coordinator.at.now_ms)
            self._has_come(shard, hosted, answer.member_id, conditions)
        return answer

    async def sync(
        self, shard: GroupShard, hosted: HostedGroup, member_id: str, **request: Any
    ) -> SyncResult:
        """Return the partitions of a classic member."""
        result = await self._look_up(
            shard,
            hosted,
            lambda group: classic_members.sync(group, self.image(), member_id=member_id, **request),
        )
        if isinstance(result, Refusal):
            return SyncResult(error=result.error)
        if result.error is ErrorCode.NONE:
            hosted.sessions.end(TimeLimit.SYNC, member_id)
            self._renew(hosted, member_id)
        elif result.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join(hosted, member_id)
        return result

    async def classic_heartbeat(
        self, shard: GroupShard, hosted: HostedGroup, member_id: str, **request: Any
    ) -> ErrorCode:
        """Return the answer to a Heartbeat; a classic member learns by it that it has to join."""
        error = await self._look_up(
            shard,
            hosted,
            lambda group: classic_members.heartbeat(group, member_id=member_id, **request),
        )
        if isinstance(error, Refusal):
            return error.error
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._renew(hosted, member_id)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join(hosted, member_id)
        return error

    async def leave(
        self, shard: GroupShard, hosted: HostedGroup, members: list[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members of either kind; raise KafkaError where that could not be written."""

        def rule(change: GroupChange) -> list[ErrorCode] | Refusal:
            if hosted.consumers is None:
                return _ANOTHER_TYPE
            return classic_members.leave(change, members, self._conditions(hosted))

        answer = await self._ask(partial(self._change, shard, hosted, rule, weight=len(members)))
        if isinstance(answer, Refusal):
            raise KafkaError(answer.error, answer.message)
        return answer

    async def _look_up(
        self, shard: GroupShard, hosted: HostedGroup, read: Callable[[ConsumerGroup], T]
    ) -> T | Refusal:
        """Return what `read` says of the group, between two changes of it."""
        async with hosted.consumers_change:
            if not shard.serves(hosted.group.group_id, hosted):
                return Refusal(ErrorCode.NOT_COORDINATOR, "the group has moved, or was deleted")
            return _ANOTHER_TYPE if hosted.consumers is None else read(hosted.consumers)

    def _must_join(self, hosted: HostedGroup, member_id: str) -> None:
        if hosted.consumers is not None and member_id in hosted.consumers.members:
            member = hosted.consumers.members[member_id]
            hosted.sessions.begin_join(member, self.coordinator.at.now_ms)
            self.coordinator.watch(hosted)

    # Time limits.

    def loaded(self, hosted: HostedGroup) -> None:
        """Begin the time limits of every member."""
        assert hosted.consumers is not None, "a consumer group was read, or upgraded"
        self._renew_all(hosted, hosted.consumers.members)

    def look(self, hosted: HostedGroup) -> None:
        """Fence the members of a group that are too late."""
        late = hosted.sessions.take_late(self.coordinator.at.now_ms)
        if late:
            self.coordinator.nursery.start_soon(
                self._run, partial(self._fence, hosted, set(late)), _Asked()
            )

    async def _fence(self, hosted: HostedGroup, late: set[str]) -> None:
        try:
            shard = self.coordinator.serving(hosted.group.group_id)
        except KafkaError:
            return  # another broker has the group, and begins its deadlines anew
        sessions = hosted.sessions

        def rule(change: GroupChange) -> None:
            # One that has come meanwhile has a new deadline.
            gone = {each for each in late & change.group.members.keys() if not sessions.has(each)}
            if gone:
                fence_or_downgrade(change, gone, self._conditions(hosted))

        refusal = await self._change(shard, hosted, rule)
        if hosted.consumers is not None and isinstance(refusal, Refusal):
            self._renew_all(hosted, late & hosted.consumers.members.keys())

    # Regular expressions.

    def _maybe_resolve(self, shard: GroupShard, hosted: HostedGroup) -> None:
        """Look up the topics of the group's patterns, if there are others or others may match.

        One look-up is under way at a time, so that no older one can replace the topics of a newer
        one; the next heartbeat after it sees what has changed meanwhile.
        """
        consumers = hosted.consumers
        if consumers is None or hosted.is_resolving:
            return
        patterns, image = set(consumers.subscribed_patterns()), self.image()
        if not patterns:
            return
        last_ms = max((each.timestamp for each in consumers.patterns.values()), default=0)
        since_ms = self.coordinator.at.wall_ms - last_ms
        if since_ms <= LEAST_REGEX_INTERVAL_MS:
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
    ) -> None:
        look_up = partial(
            resolve,
            sorted(patterns),
            list(image.topics),
            version=image.offset,
            timestamp=self.coordinator.at.wall_ms,
        )
        refusal: Refusal | None = _FAILED
        try:
            found = await self.coordinator.seams.offload(look_up)
            refusal = await self._change(
                shard, hosted, lambda change: note_topics(change, found, image)
            )
        finally:
            hosted.is_resolving = False
            if isinstance(refusal, Refusal):
                hosted.resolved_in = None  # the next heartbeat tries again

    def described(self, group_id: str) -> ConsumerGroup:
        """Return the group; raise KafkaError where there is none, as `serving` does."""
        hosted = self.coordinator.serving(group_id).groups.get(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if hosted.consumers is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        return hosted.consumers


def _upgraded(
    classic: Group, conditions: Conditions, rule: Rule[T], change: GroupChange
) -> T | Refusal:
    """Apply `rule` to the consumer group that a classic one becomes."""
    return upgrade(change, classic, conditions) or rule(change)


def _size(group: ConsumerGroup) -> int:
    names = sum(len(each.topic_names) for each in group.members.values())
    return len(group.members) + names + group.owned_count
