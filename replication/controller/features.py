"""A controller's part in features: its registration, and `kraft.version`.

    the quorum          ControllerRegistration     from each controller to the active one (KIP-919)
    UpdateFeatures      UpgradeAsked               to the leader of the quorum, which is this node

Rule 1: a controller registers where others vote too, so that the active one knows what all of them
support. A controller alone knows what it supports itself. (Kafka's registers then too.)

Rule 2: it registers again where the log names another incarnation of it, and never before the log
has a `metadata.version` with such records. (ControllerRegistrationManager.)

Rule 3: where the log names another incarnation after its own, another process has its id. Two such
processes register less and less often, so that they do not fill the log. (Kafka's do not wait.)

Rule 4: a change of `kraft.version` is written once all that UpdateFeatures asks for is found right.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import attrs

from replication.controller.rules.features import QuorumLevel, level_of_quorum, refused
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.metadata.rules.levels import REGISTERED_CONTROLLERS, named_features
from replication.raft.node import RaftNode
from replication.raft.rules.messages import UpgradeAsked
from replication.wire.api_versions import KRAFT_VERSION, METADATA_VERSION
from replication.wire.broker_registration import Endpoint
from replication.wire.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from replication.wire.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from storage.attributes import define
from storage.types import LeaderEpoch

FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 120.0


def quorum_level(node: RaftNode) -> QuorumLevel:
    """Return what a decision about features has to know of the quorum."""
    return QuorumLevel(kraft_version=node.quorum.kraft_version, voter_ids=node.quorum.voters.ids)


async def raise_kraft_version(
    node: RaftNode, request: UpdateFeaturesRequest, leader_epoch: LeaderEpoch
) -> UpdateFeaturesResponse:
    """Append the level of `kraft.version` that a request asks for, and the voters with it.

    Only look whether that is possible, if the request says so. Raise KafkaError NOT_CONTROLLER if
    this node does not lead in that epoch.
    """
    level, current = level_of_quorum(request), node.quorum.kraft_version
    assert level is not None, "the request names kraft.version"
    reply = await node.replied(
        UpgradeAsked(
            kraft_version=level, leader_epoch=leader_epoch, validate_only=request.validate_only
        )
    )
    if reply.error is ErrorCode.NONE:
        return UpdateFeaturesResponse()
    if reply.sentence is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this controller has lost its leadership")
    return refused(
        reply.error,
        f"Invalid upgrade of {KRAFT_VERSION} from {current} to {level}: {reply.sentence}",
    )


@define(eq=False, kw_only=True)
class OwnRegistration:
    """The registration of this controller, kept true while it runs."""

    node: RaftNode
    decide: Callable[[ControllerRegistrationRequest], Awaitable[ControllerRegistrationResponse]]
    """Registers with this controller; raises KafkaError NOT_CONTROLLER if it is not active."""
    _incarnation_id: bytes | None = attrs.field(default=None, init=False)
    _backoff_seconds: float = attrs.field(default=FIRST_BACKOFF_SECONDS, init=False)

    async def run(self) -> None:
        """Register whenever the log does not name this incarnation, until cancelled."""
        await self.node.wait_until_others_vote()
        self._incarnation_id = self.node.seams.chance.randbytes(16)
        with suppress(PeerUnavailableError):  # this controller has stopped
            while not await self._register():
                await self._back_off()
            self._backoff_seconds = FIRST_BACKOFF_SECONDS
            while True:
                await self._wait_until(due=False)
                await self._wait_until(due=True)
                self.node.report_misconfiguration(
                    f"another process registers as controller {self.node.config.node_id}"
                )
                await self._back_off()
                while not await self._register():
                    await self._back_off()

    async def _wait_until(self, *, due: bool) -> None:
        while self._is_due is not due:
            await self.node.log.wait_for_movement()

    async def _back_off(self) -> None:
        await self.node.seams.clock.sleep(self._backoff_seconds)
        self._backoff_seconds = min(2 * self._backoff_seconds, LONGEST_BACKOFF_SECONDS)

    @property
    def _is_due(self) -> bool:
        image = self.node.log.committed_image
        known = image.controllers.get(self.node.config.node_id)
        return (
            METADATA_VERSION in image.feature_levels
            and image.metadata_version >= REGISTERED_CONTROLLERS
            and (known is None or known.incarnation_id != self._incarnation_id)
        )

    async def _register(self) -> bool:
        """Return whether the active controller has taken the registration, once it is due."""
        assert self._incarnation_id is not None, "it runs"
        await self._wait_until(due=True)
        where = self.node.listener
        request = ControllerRegistrationRequest(
            controller_id=self.node.config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[Endpoint(where.listener, where.host, where.port)],
            features=named_features(),
        )
        answer: ControllerRegistrationResponse | None
        try:
            answer = await self.decide(request)
        except KafkaError:
            answer = await self.node.ask_leader(request)
        except PeerUnavailableError:
            return False  # nothing can be written now
        return answer is not None and answer.error_code == ErrorCode.NONE
