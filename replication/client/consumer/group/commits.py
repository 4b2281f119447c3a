"""The committed offsets of a group: OffsetCommit and OffsetFetch.

Rule 1: commits are sent one after the other, in the order of the calls, so that an older one
never overwrites a newer one.

Rule 2: a member commits with its generation. During a rebalance no member may commit: it has to
join first (RebalanceInProgressError).

Rule 3: `commit` tries until it is done or cannot be; `commit_soon` tries once. A commit that is
tried again in another generation is given up if one of its partitions is not ours any more: it
would overwrite what the present owner has committed.

Rule 4: a member of a consumer group (KIP-848) fetches offsets under its name and its epoch, and
again once it has heard of a newer epoch; the coordinator refuses a member that it has fenced.

(Kafka: ConsumerCoordinator's commits, CommitRequestManager.)
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs
import trio

from replication.client.consumer.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from replication.client.consumer.group.membership import (
    COMMIT,
    CommittingMember,
    MemberVerdict,
    act_upon,
    commit_error_of,
    error_of,
    judge,
)
from replication.client.consumer.subscription import SubscriptionState
from replication.client.coordinators import CoordinatorFinder
from replication.client.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from replication.client.offsets import (
    OffsetAndMetadata,
    committed_offset,
    offset_fetch_request,
    topics_to_commit,
)
from replication.client.requests import ask
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from replication.wire.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from storage.attributes import define
from storage.types import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
OnCommitted: TypeAlias = Callable[[Offsets, KafkaError | None], None]
_AGAIN = (MemberVerdict.RETRY, MemberVerdict.REDISCOVER)


@define(eq=False)
class _Commit:
    """A commit that waits for its turn, or is being sent."""

    offsets: Offsets
    persists: bool = attrs.field(kw_only=True)
    then: OnCommitted | None = None
    error: KafkaError | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)


@define(eq=False, kw_only=True)
class Commits:
    """The commits of one member, or of a consumer that has only the name of the group."""

    membership: CommittingMember
    subscriptions: SubscriptionState
    """Unless the group assigns the partitions, commits name no generation."""
    finder: CoordinatorFinder
    on_committed: Callable[[Offsets], None]
    on_change: Callable[[], None]
    _queue: deque["_Commit"] = attrs.field(init=False, factory=deque)
    _working: bool = attrs.field(init=False, default=False)

    # -- committing

    async def commit(self, offsets: Offsets, *, timeout_ms: float) -> None:
        """Commit, with retries; KafkaTimeoutError, or an error that no retry would mend.

        If cancelled, it is not tried again; it may be done or not.
        """
        job = self._enqueue(_Commit(offsets, persists=True))
        try:
            with self.finder.metadata.network.clock.move_on_after(timeout_ms / 1000):
                await job.done.wait()
        finally:
            job.scope.cancel()
        if not job.done.is_set():
            raise KafkaTimeoutError(f"not committed within {timeout_ms:.0f} ms") from job.error
        if job.error is not None:
            raise job.error

    def commit_soon(self, offsets: Offsets, then: OnCommitted) -> None:
        """Commit once, beside the program; `then` gets the outcome."""
        self._enqueue(_Commit(offsets, persists=False, then=then))

    def _enqueue(self, job: "_Commit") -> "_Commit":
        self._queue.append(job)
        if not self._working:
            self._working = True
            self.finder.metadata.network.nursery.start_soon(self._work)
        return job

    async def _work(self) -> None:
        """Send the queued commits, one at a time and in order."""
        while self._queue:
            job = self._queue[0]
            with job.scope:
                await self._attempt(job)
                job.done.set()
            self._queue.popleft()
            if job.done.is_set() and job.then is not None:
                job.then(job.offsets, job.error)
            self.on_change()
        self._working = False

    async def _attempt(self, job: "_Commit") -> None:
        failures = 0
        generation = self.membership.generation_id
        while True:
            job.error = None
            try:
                if generation != self.membership.generation_id:
                    self._raise_unless_ours(job.offsets)
                await self._once(job.offsets)
            except NO_ANSWER as lost:
                job.error = RetriableCommitFailedError(ErrorCode.NETWORK_EXCEPTION, str(lost))
            except KafkaError as error:
                job.error = error
            if not job.persists or not isinstance(job.error, RetriableCommitFailedError):
                return
            failures += 1
            await self.finder.pause(failures)

    def _raise_unless_ours(self, offsets: Offsets) -> None:
        if self.subscriptions.uses_group and not offsets.keys() <= set(self.subscriptions.assigned):
            raise CommitFailedError

    async def _once(self, offsets: Offsets) -> None:
        await trio.lowlevel.checkpoint()
        if not offsets:
            return
        request = self._request(offsets)
        response = await self.finder.call(ask(request))
        self._check(request, response)
        self.on_committed(offsets)

    def _request(self, offsets: Offsets) -> OffsetCommitRequest:
        member = self.membership
        topics = topics_to_commit(offsets, OffsetCommitTopic, OffsetCommitPartition)
        request = OffsetCommitRequest(group_id=member.group_id, topics=topics)
        if self.subscriptions.uses_group:
            if not member.may_commit:
                raise self._not_in_group()
            request.generation_id_or_member_epoch = member.generation_id
            request.member_id = member.member_id
            request.group_instance_id = member.group_instance_id
        return request

    def _not_in_group(self) -> KafkaError:
        if self.membership.is_lost:
            return CommitFailedError()
        return RebalanceInProgressError("the group is rebalancing: poll, and commit after that")

    def _check(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        unauthorized = set()
        unanswered = {
            (topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        }
        for topic in response.topics:
            for each in topic.partitions:
                unanswered.discard((topic.name, each.partition_index))
                error = ErrorCode.of(each.error_code)
                if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                elif error is not ErrorCode.NONE:
                    self._act_upon(error, request)
                    raise commit_error_of(error, self.membership.group_id)
        if unauthorized:
            raise TopicAuthorizationFailedError(unauthorized)
        if unanswered:
            raise RetriableCommitFailedError(
                ErrorCode.NETWORK_EXCEPTION, f"the response leaves out {min(unanswered)}"
            )

    def _act_upon(self, error: ErrorCode, request: OffsetCommitRequest) -> None:
        member, verdict = self.membership, judge(COMMIT, error)
        sent = (request.generation_id_or_member_epoch, request.member_id)
        is_current = sent == (member.generation_id, member.member_id)
        if verdict is MemberVerdict.REDISCOVER or (
            verdict in (MemberVerdict.REJOIN, MemberVerdict.RESET)
            and is_current
            and self.subscriptions.uses_group
        ):
            act_upon(COMMIT, error, member, self.finder, request="commit")

    # -- committed offsets

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch committed offsets, None if there is none; KafkaError if no retry would help."""
        wanted = list(partitions)
        failures = 0
        while True:
            found = await self._fetch_once(wanted)
            if found is not None:
                return found
            failures += 1
            await self.finder.pause(failures)

    async def _fetch_once(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
        member = self.membership
        request = offset_fetch_request(member.group_id, partitions, require_stable=True)
        (asked,) = request.groups
        if member.is_named_in_fetches:
            asked.member_id, asked.member_epoch = member.member_id, member.generation_id
        try:
            response: OffsetFetchResponse = await self.finder.call(ask(request))
        except NO_ANSWER:
            return None
        group = response.groups[0] if response.groups else response
        error = ErrorCode.of(group.error_code)
        if error is not ErrorCode.NONE:
            self._raise_unless_retriable(error, asked)
            return None
        return self._read(partitions, group.topics)

    def _raise_unless_retriable(self, error: ErrorCode, sent: OffsetFetchGroup) -> None:
        """Raise an error that no retry would help.

        A member that the group does not have any more is lost, which its next poll tells the
        program; offsets are fetched without its name.
        """
        member, verdict = self.membership, judge(COMMIT, error)
        if verdict is MemberVerdict.REDISCOVER:
            self.finder.forget()
        if verdict is MemberVerdict.RESET and sent.member_id is not None:
            if (sent.member_epoch, sent.member_id) == (member.generation_id, member.member_id):
                act_upon(COMMIT, error, member, self.finder, request="fetch of offsets")
        elif verdict not in _AGAIN and not error.retriable:
            raise error_of(error, member.group_id)

    def _read(
        self, partitions: list[TopicPartition], topics: list[OffsetFetchResponseTopic]
    ) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        unauthorized = set()
        for topic in topics:
            for each in topic.partitions:
                error = ErrorCode.of(each.error_code)
                tp = TopicPartition(topic.name, each.partition_index)
                if error is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return None  # a transaction that may yet move it (KIP-447)
                if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                elif error is not ErrorCode.NONE:
                    raise KafkaError(error, f"the committed offset of {tp}")
                else:
                    found[tp] = committed_offset(each)
        if unauthorized:
            raise TopicAuthorizationFailedError(unauthorized)
        if not found.keys() >= set(partitions):
            return None  # a partition that is left out may have a committed offset
        return {tp: found[tp] for tp in partitions}
