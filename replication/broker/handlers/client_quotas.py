"""DescribeClientQuotas (KIP-546): the quotas that fit a filter, from the metadata (ClientQuotasImage).

The controller keeps client quotas (`replication/controller/rules/client_quotas.py`); nothing here
enforces them.
"""

from collections.abc import Mapping

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage, QuotaEntity
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import Steps
from replication.wire.describe_client_quotas import (
    CLIENT_ID,
    DEFAULT,
    EXACT,
    IP,
    SPECIFIED,
    USER,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def describe_client_quotas(
    node: BrokerNode, _: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        _check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.detail, entries=None
        )
    await node.metadata.catch_up()
    return DescribeClientQuotasResponse(
        entries=await in_steps(_found(node.metadata.image, request))
    )


def _check_filter(components: list[ComponentData]) -> None:
    """Raise KafkaError for a filter that Kafka refuses."""
    seen: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _refusal("Invalid empty entity type.")
        if kind in seen:
            raise _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise _refusal(f"Unknown match type {each.match_type}")
        if (each.match is not None) != (each.match_type == EXACT):
            raise _refusal(f"match type {each.match_type} does not go with {each.match!r}")
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _refusal("An IP filter cannot be combined with a user or a client id filter.")


def _found(image: MetadataImage, request: DescribeClientQuotasRequest) -> Steps[list[EntryData]]:
    entries = []
    for entity, quotas in image.client_quotas.items():
        yield 1
        if _matches(dict(entity), request):
            entries.append(_entry(entity, quotas))
    return entries


def _matches(entity: Mapping[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    """Return whether an entity has what every component asks for, and if strict, nothing else."""
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        each.entity_type in entity
        and (each.match_type == SPECIFIED or entity[each.entity_type] == each.match)
        for each in request.components
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
    )


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
