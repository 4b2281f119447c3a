"""The coordinator of the groups in the partitions of `__consumer_offsets` that this broker leads.

    request ─> serving(group)? ─ no ──> COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
                   │ yes
                   └> ClassicGroup ─> effects ─> answers, writes, events

Rule: a group is changed on the loop, between two checkpoints, and only by its machine.
A request waits for its answer by ticket, and gets one even if the group ends.

(Kafka: GroupCoordinator, GroupCoordinatorService.)
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol, assert_never

import attrs
import trio

from replication.config import BrokerConfig
from replication.coordinator.log import Submission, is_too_long
from replication.coordinator.rules import GROUP_METADATA_TOPIC, write_error
from replication.coordinator.shards import LedShards
from replication.errors import ErrorCode, KafkaError
from replication.events import EventSink, GroupsLoaded, GroupsUnloaded
from replication.groups.forgetting import Forgetting
from replication.groups.rules.classic import GroupLimits
from replication.groups.rules.consumer_group.group import GroupChange
from replication.groups.rules.effects import (
    Answer,
    Emit,
    JoinResult,
    Moment,
    Purpose,
    Store,
    SyncResult,
)
from replication.groups.rules.group import Group, GroupState, Protocol as GroupProtocol
from replication.groups.rules.joining import Join, join
from replication.groups.rules.presence import heartbeat, leave, sync
from replication.groups.rules.replay import Replayed, read_batch
from replication.groups.shard import GroupShard, GroupTimers, HostedGroup
from replication.metadata.rules.image import MetadataDelta, MetadataImage
from replication.metrics import MetricName, MetricsRegistry
from replication.net.pace import in_steps
from replication.net.seams import Seams
from replication.replica_manager import ReplicaManager
from replication.steps import Steps, each_of
from storage.attributes import define
from storage.batch.compression import Codec


@define(eq=False)
class _Waiting:
    """A request without an answer so far."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    result: JoinResult | SyncResult | None = None


class ConsumerGroupRequests(Protocol):
    """The groups of KIP-848, and the requests of their classic members."""

    image: Callable[[], MetadataImage]

    def loaded(self, hosted: HostedGroup) -> None:
        """Begin the time limits of a group that has been read from the log."""

    def look(self, hosted: HostedGroup) -> None:
        """Fence the members that are too late."""

    async def join(self, shard: GroupShard, hosted: HostedGroup, request: Join) -> JoinResult: ...

    async def sync(
        self, shard: GroupShard, hosted: HostedGroup, member_id: str, **request: Any
    ) -> SyncResult: ...

    async def classic_heartbeat(
        self, shard: GroupShard, hosted: HostedGroup, member_id: str, **request: Any
    ) -> ErrorCode: ...

    async def leave(
        self, shard: GroupShard, hosted: HostedGroup, members: list[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members; raise KafkaError where that could not be written."""
        ...


@define(eq=False, kw_only=True)
class GroupCoordinator:
    """`run` first, then `apply_metadata` for everything there is."""

    broker_id: int
    config: BrokerConfig
    seams: Seams
    replica_manager: ReplicaManager
    sink: EventSink
    on_bug: Callable[[BaseException], None]
    consumers: "ConsumerGroupRequests" = attrs.field(init=False)
    """Serves the groups of KIP-848; it is set before `run`."""
    _led: LedShards[GroupShard] = attrs.field(init=False)
    _timers: GroupTimers = attrs.field(init=False)
    forgetting: Forgetting = attrs.field(init=False)
    _waiting: dict[int, _Waiting] = attrs.field(factory=dict, init=False)
    _tickets: "count[int]" = attrs.field(factory=count, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        config = self.config
        limits = GroupLimits(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
        )
        self._led = LedShards(
            topic=GROUP_METADATA_TOPIC,
            broker_id=self.broker_id,
            replica_manager=self.replica_manager,
            clock=self.seams.clock,
            timeout_ms=config.offsets_commit_timeout_ms,
            codec=Codec(config.offsets_topic_compression_codec),
            begin=partial(GroupShard, limits=limits),
            load=self._load,
            ended=self._ended,
            on_bug=self.on_bug,
        )
        self._timers = GroupTimers(self.seams.clock)
        self.forgetting = Forgetting(config=config, clock=self.seams.clock, sink=self.sink)

    @property
    def at(self) -> Moment:
        clock = self.seams.clock
        return Moment(now_ms=clock.now_ms(), wall_ms=clock.wall_ms())

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None, "groups are hosted while it runs"
        return self._nursery

    def watch(self, hosted: HostedGroup) -> None:
        """Call back for the group when something of it is due."""
        self._timers.watch(hosted)

    # The tasks.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; started once metadata may be applied."""
        async with trio.open_nursery() as nursery:
            self._nursery = self._led.nursery = nursery
            nursery.start_soon(self._timers.run, self._look)
            nursery.start_soon(self._forget_regularly)
            task_status.started()

    def _look(self, hosted: HostedGroup) -> None:
        if hosted.group.state is GroupState.DEAD:
            return
        try:
            if not hosted.is_upgrading:
                hosted.machine.tick(self.at)
                self.carry_out(hosted)
            self.consumers.look(hosted)
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            self.on_bug(bug)

    async def _forget_regularly(self) -> None:
        interval = self.config.offsets_retention_check_interval_ms / 1000
        while True:
            await self.seams.clock.sleep(interval)
            await in_steps(self._of_each_shard(self.forgetting.expire))

    # The partitions that are led here.

    @property
    def shards(self) -> dict[int, GroupShard]:
        return self._led.shards

    def hosted_groups(self) -> Iterator[HostedGroup]:
        for _, shard in sorted(self.shards.items()):
            for _, hosted in shard:
                yield hosted

    async def apply_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Begin to coordinate what this broker leads from now on, and end the rest."""
        self._led.apply_metadata(image)
        gone = {each.topic_partition for each in delta.removed}
        if gone:
            forget = partial(self.forgetting.topics_deleted, partitions=gone)
            await in_steps(self._of_each_shard(forget))

    def _of_each_shard(self, steps: Callable[[GroupShard], Steps[None]]) -> Steps[None]:
        for shard in list(self.shards.values()):
            yield from steps(shard)

    async def _load(self, shard: GroupShard) -> None:
        state = Replayed()
        await shard.log.read(
            read_batch,
            state.add,
            chunk_bytes=self.config.offsets_load_buffer_size,
            offload=self.seams.offload,
        )
        await in_steps(shard.load(state))
        await in_steps(each_of(partial(self._resume, shard), list(shard)))
        self.sink(
            GroupsLoaded(
                partition=shard.partition,
                leader_epoch=shard.leader_epoch,
                groups=len(shard.groups),
                offsets=sum(len(each.offsets) for each in shard.groups.values()),
            )
        )

    def _resume(self, shard: GroupShard, named: tuple[str, HostedGroup]) -> None:
        if shard.serves(*named):
            _, hosted = named
            hosted.machine.resume(self.at)
            if hosted.consumers is not None:
                self.consumers.loaded(hosted)
            self.carry_out(hosted)

    def _ended(self, shard: GroupShard, cause: str) -> None:
        for _, hosted in shard:
            hosted.machine.unload(ErrorCode.NOT_COORDINATOR, self.at)
            self.carry_out(hosted)
        self.sink(
            GroupsUnloaded(partition=shard.partition, leader_epoch=shard.leader_epoch, cause=cause)
        )

    # Requests.

    def serving(self, group_id: str) -> GroupShard:
        """Return the shard of the group; raise KafkaError where it is elsewhere, or not loaded yet."""
        if is_too_long(group_id):
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID, "the name of the group does not fit into a record"
            )
        return self._led.serving(group_id)

    def serving_members(self, group_id: str) -> GroupShard:
        """Return the shard of a request of a member, whose group must have a name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group with members needs a name")
        return self.serving(group_id)

    async def join_group(self, group_id: str, *, client_id: str, **request: Any) -> JoinResult:
        """Return the answer of a `Join` with these fields, once the group has its next generation."""
        member_id = request["member_id"]
        too_long = await in_steps(
            _any_too_long(
                [client_id, request["group_instance_id"], request["protocol_type"]],
                request["protocols"],
            )
        )
        try:
            shard = self.serving_members(group_id)
        except KafkaError as error:
            return JoinResult(error=error.code, member_id=member_id)
        hosted = shard.groups.get(group_id)
        if too_long:
            return JoinResult(error=ErrorCode.INVALID_REQUEST, member_id=member_id)
        if not shard.limits.allows_session(request["session_timeout_ms"]):
            return JoinResult(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
        if hosted is None:
            if member_id:
                return JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
            hosted = shard.add(Group(group_id))
        ticket = next(self._tickets)
        given = f"{request['group_instance_id'] or client_id}-{self._unique()}"
        asked = Join(ticket=ticket, new_member_id=given, client_id=client_id, **request)
        await self._upgraded(hosted)
        if hosted.consumers is not None and not self._becomes_classic(hosted):
            return await self.consumers.join(shard, hosted, asked)
        if not shard.serves(group_id, hosted):
            return JoinResult(error=ErrorCode.NOT_COORDINATOR, member_id=member_id)
        join(hosted.machine, asked, self.at)
        result = await self._answer(hosted, ticket)
        assert isinstance(result, JoinResult), "a join is answered as one"
        return result

    async def _upgraded(self, hosted: HostedGroup) -> None:
        """Return once no consumer group is about to take the place of a classic one."""
        while hosted.upgrade_ended is not None:
            await hosted.upgrade_ended.wait()

    def _becomes_classic(self, hosted: HostedGroup) -> bool:
        """Delete a consumer group without members; return False where it has some, or may soon."""
        assert hosted.consumers is not None, "a consumer group becomes a classic one"
        if hosted.consumers.members or hosted.consumers_change.locked():
            return False
        change = GroupChange(hosted.consumers)
        change.delete_group()
        hosted.log.submit(change.records)
        hosted.consumers = None
        return True

    def _unique(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.seams.chance.randbytes(16), version=4)

    async def sync_group(self, group_id: str, *, member_id: str, **request: Any) -> SyncResult:
        """Return the answer of `sync` with these fields, once the assignment is stored."""
        try:
            shard = self.serving_members(group_id)
        except KafkaError as error:
            # The rebalance ended with the former coordinator: the member joins again.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)
        hosted = shard.groups.get(group_id)
        if hosted is None:
            return SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
        await self._upgraded(hosted)
        if hosted.consumers is not None:
            del request["assignments"]  # the coordinator assigns
            return await self.consumers.sync(shard, hosted, member_id, **request)
        ticket = next(self._tickets)
        sync(hosted.machine, ticket=ticket, member_id=member_id, at=self.at, **request)
        result = await self._answer(hosted, ticket)
        assert isinstance(result, SyncResult), "a sync is answered as one"
        return result

    async def _answer(self, hosted: HostedGroup, ticket: int) -> JoinResult | SyncResult:
        waiting = self._waiting[ticket] = _Waiting()
        try:
            self.carry_out(hosted)
            await waiting.answered.wait()
        finally:
            del self._waiting[ticket]
        assert waiting.result is not None, "just answered"
        return waiting.result

    async def heartbeat(
        self, group_id: str, *, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            shard = self.serving_members(group_id)
        except KafkaError as error:
            # No member is late while the coordinator reads its log.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else error.code
        hosted = shard.groups.get(group_id)
        if hosted is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        await self._upgraded(hosted)
        if hosted.consumers is not None:
            return await self.consumers.classic_heartbeat(
                shard,
                hosted,
                member_id,
                group_instance_id=group_instance_id,
                generation=generation,
            )
        return heartbeat(
            hosted.machine,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            at=self.at,
        )

    def member_count(self, group_id: str) -> int:
        """Return how many members the group has; raise KafkaError as `serving` does."""
        hosted = self.serving_members(group_id).groups.get(group_id)
        if hosted is None:
            return 0
        return len(hosted.group.members if hosted.consumers is None else hosted.consumers.members)

    async def leave_group(
        self, group_id: str, members: list[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members by member id, instance id, or both; raise KafkaError as `serving` does."""
        shard = self.serving_members(group_id)
        hosted = shard.groups.get(group_id)
        if hosted is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        await self._upgraded(hosted)
        if hosted.consumers is not None:
            return await self.consumers.leave(shard, hosted, members)
        errors = [
            leave(hosted.machine, member_id=member_id, group_instance_id=instance, at=self.at)
            for member_id, instance in members
        ]
        self.carry_out(hosted)
        return errors

    def transaction_ended(self, producer_id: int, partitions: Iterable[int], commit: bool) -> None:  # noqa: FBT001 - how it ended
        """Commit or drop the offsets of a transaction, whose marker is in these partitions."""
        for number in partitions:
            shard = self.shards.get(number)
            if shard is not None and shard.ready:
                for _, hosted in shard:
                    hosted.offsets.end_transaction(producer_id, commit=commit)

    # Effects.

    def carry_out(self, hosted: HostedGroup) -> None:
        """Carry out the effects of the group, and watch its next deadline."""
        for effect in hosted.machine.take():
            match effect:
                case Answer():
                    # The connection of a request that no longer waits is closed.
                    if (waiting := self._waiting.get(effect.ticket)) is not None:
                        waiting.result = effect.result
                        waiting.answered.set()
                case Store():
                    submission = hosted.log.submit([effect.record])
                    self.nursery.start_soon(self._store, hosted, effect.purpose, submission)
                case Emit():
                    self.sink(effect.event)
                case never:
                    assert_never(never)
        self._timers.watch(hosted)

    async def _store(self, hosted: HostedGroup, purpose: Purpose, submission: Submission) -> None:
        await submission.wait()
        # Members whose group is not stored in time join again.
        timed_out = submission.error is ErrorCode.REQUEST_TIMED_OUT
        error = ErrorCode.REBALANCE_IN_PROGRESS if timed_out else write_error(submission.error)
        hosted.machine.on_stored(purpose, error, self.at)
        self.carry_out(hosted)


def register_gauges(registry: MetricsRegistry, coordinator: GroupCoordinator) -> None:
    """Register the gauges of Kafka's GroupMetadataManager."""

    def groups(state: GroupState | None) -> int:
        classic = (each for each in coordinator.hosted_groups() if each.consumers is None)
        return sum(state in (None, each.group.state) for each in classic)

    def offsets() -> int:
        return sum(len(each.offsets) for each in coordinator.hosted_groups())

    gauges: dict[str, Callable[[], float]] = {
        "NumGroups": partial(groups, None),
        "NumOffsets": offsets,
    }
    gauges |= {f"NumGroups{state.value}": partial(groups, state) for state in GroupState}
    for name, read in gauges.items():
        registry.gauge(MetricName("kafka.coordinator.group", "GroupMetadataManager", name), read)


def _any_too_long(names: list[str | None], protocols: Sequence[GroupProtocol]) -> Steps[bool]:
    """Return whether a record cannot hold one of `names`, or the name of one of `protocols`."""
    are_long = yield from each_of(lambda each: is_too_long(each.name), protocols)
    return is_too_long(*names) or any(are_long)
