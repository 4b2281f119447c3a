"""DescribeClientQuotas (KIP-546): there are no client quotas here, so none are found.

`kafka-configs.sh --describe --entity-type users` asks this before it asks for credentials of SCRAM.
A filter is checked as in Kafka (ClientQuotasImage), so that a wrong one is not taken for a right one
that finds nothing. AlterClientQuotas is not served: a client that sets a quota learns that none are kept.
"""

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.server.server import RequestContext
from replication.wire.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_IP = "ip"
_ENTITY_TYPES = frozenset({"user", "client-id", _IP})


async def describe_client_quotas(
    _: BrokerNode, __: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        _check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.detail, entries=None
        )
    return DescribeClientQuotasResponse()


def _check_filter(components: list[ComponentData]) -> None:
    """Raise KafkaError for a filter that Kafka refuses."""
    seen: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _refusal("Invalid empty entity type.")
        if kind in seen:
            raise _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise _refusal(f"Unknown match type {each.match_type}")
        if (each.match is not None) != (each.match_type == EXACT):
            raise _refusal(f"match type {each.match_type} does not go with {each.match!r}")
        seen.add(kind)
    if _IP in seen and len(seen) > 1:
        raise _refusal("An IP filter cannot be combined with a user or a client id filter.")


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
