"""Requests about the whole cluster: features, the quorum, client quotas, configured resources.

The values that these functions return stand beside them.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from replication.client.admin.calls import OpenAdmin, only, raise_if_refused, some_failed
from replication.errors import ErrorCode, KafkaError
from replication.net.exchange import SOFTWARE_NAME, SOFTWARE_VERSION
from replication.wire.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaOperation,
)
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from replication.wire.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from replication.wire.unregister_broker import UnregisterBrokerRequest
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from storage.attributes import frozen

_UPDATES = {None: UPGRADE, "safe": SAFE_DOWNGRADE, "unsafe": UNSAFE_DOWNGRADE}


@frozen(kw_only=True)
class FeatureDescription:
    """The levels of a feature that a broker supports, and the cluster's; 0 is switched off."""

    lowest: int
    highest: int
    level: int


@frozen(kw_only=True)
class QuorumReplicaDescription:
    """A copy of the metadata log; times are in milliseconds since the epoch, -1 if not known."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@frozen(kw_only=True)
class QuorumDescription:
    """The controllers that vote, and the nodes that only read the metadata log (KIP-836)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaDescription, ...]
    observers: tuple[QuorumReplicaDescription, ...]


@frozen(kw_only=True)
class ClientQuota:
    """The quotas of one entity, which is given by types and names; None is the default name."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


async def describe_features(admin: OpenAdmin) -> dict[str, FeatureDescription]:
    """Return the features that a broker supports, with their finalized levels (KIP-584)."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    response: ApiVersionsResponse = await admin.calls.ask(request)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return {
        each.name: FeatureDescription(
            lowest=each.min_version, highest=each.max_version, level=levels.get(each.name, 0)
        )
        for each in sorted(response.supported_features, key=lambda each: each.name)
    }


async def update_features(
    admin: OpenAdmin,
    levels: Mapping[str, int],
    *,
    downgrade: Literal["safe", "unsafe"] | None = None,
    validate_only: bool = False,
) -> None:
    """Raise features to these levels, or lower them where `downgrade` says how.

    Raise KafkaError INVALID_UPDATE_VERSION, and change nothing, if one of the levels is refused.
    """
    updates = [
        FeatureUpdate(
            feature=name,
            max_version_level=level,
            allow_downgrade=downgrade is not None,
            upgrade_type=_UPDATES[downgrade],
        )
        for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    response: UpdateFeaturesResponse = await admin.calls.ask(request)
    some_failed(
        {
            each.feature: KafkaError(ErrorCode.of(each.error_code), each.error_message or "")
            for each in response.results
            if each.error_code
        }
    )


async def describe_metadata_quorum(admin: OpenAdmin) -> QuorumDescription:
    """Return the leader of the metadata log, and how far each node has read it."""
    asked = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)])
    response: DescribeQuorumResponse = await admin.calls.ask(DescribeQuorumRequest(topics=[asked]))
    quorum = only(only(response.topics).partitions)
    raise_if_refused(quorum)
    return QuorumDescription(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        voters=tuple(map(_replica, quorum.current_voters)),
        observers=tuple(map(_replica, quorum.observers)),
    )


def _replica(replica: QuorumReplica) -> QuorumReplicaDescription:
    return QuorumReplicaDescription(
        node_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_ms=replica.last_fetch_timestamp,
        last_caught_up_ms=replica.last_caught_up_timestamp,
    )


async def unregister_broker(admin: OpenAdmin, broker_id: int) -> None:
    """Remove a broker that does not come back; KafkaError BROKER_ID_NOT_REGISTERED if unknown."""
    await admin.calls.ask(UnregisterBrokerRequest(broker_id=broker_id))


async def list_config_resources(
    admin: OpenAdmin, kinds: Iterable[ConfigResourceType] = ()
) -> dict[ConfigResourceType, list[str]]:
    """Return the names of what may be configured, by kind; without `kinds`, of every kind."""
    request = ListConfigResourcesRequest(resource_types=[int(each) for each in kinds])
    response: ListConfigResourcesResponse = await admin.calls.ask(request)
    found: dict[ConfigResourceType, list[str]] = {}
    for each in response.config_resources:
        if each.resource_type in list(ConfigResourceType):
            kind = ConfigResourceType(each.resource_type)
            found.setdefault(kind, []).append(each.resource_name)
    return found


# Client quotas.


async def describe_client_quotas(
    admin: OpenAdmin,
    names: Mapping[str, str | None] | None = None,
    *,
    kinds: Iterable[str] = (),
    strict: bool = False,
) -> list[ClientQuota]:
    """Return the quotas of entities with these names by type, and with any name of `kinds`.

    Types are `user`, `client-id` and `ip`; a name of None is the default. With `strict` an entity
    has no other types.
    """
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in (names or {}).items()
    ]
    components += [
        ComponentData(entity_type=kind, match_type=SPECIFIED, match=None) for kind in kinds
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    response: DescribeClientQuotasResponse = await admin.calls.ask(request)
    return [
        ClientQuota(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            values={each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    ]


async def alter_client_quotas(
    admin: OpenAdmin,
    entity: Mapping[str, str | None],
    changes: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set some quotas of an entity, such as `{"user": "alice"}`; None removes a quota (KIP-546)."""
    calls = admin.calls
    alteration = QuotaAlteration(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            QuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[alteration], validate_only=validate_only)

    async def once() -> None:
        response = await calls.any_broker(request)
        raise_if_refused(only(response.entries))

    await calls.keep_asking(once)
