"""The responses that name brokers, and the versions that a proxy lets clients use.

    Metadata, DescribeCluster      brokers[]            the cluster
    FindCoordinator                itself; coordinators[] since version 4
    Produce v10+, Fetch v16+       node_endpoints[]     the new leader (KIP-951)

Rule 1: a client that learned another address would go round the proxy. So an API with addresses is
served only in versions that the proxy can decode, and an unknown API only if it is known to have no
addresses. ApiVersions tells clients so; a client that uses another version all the same loses its
connection.

Rule 2: an API that understudy knows is offered in the versions that it knows: a fault rule cannot
match, nor answer, a request that is not decoded.

The addresses of controllers (Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, UpdateRaftVoter,
DescribeQuorum) stay as they are: a proxy stands in front of brokers.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from replication.errors import ErrorCode, ProtocolError
from replication.wire.api_versions import ApiVersion, ApiVersionsResponse
from replication.wire.apis import API, ApiKey, api_numbered
from replication.wire.describe_cluster import DescribeClusterBroker
from replication.wire.frames import RequestHeader
from replication.wire.primitives import read_uvarint
from replication.wire.schema import Field, fields_of

PLACES: Final[Mapping[ApiKey, tuple[str, ...]]] = {
    ApiKey.PRODUCE: ("node_endpoints",),
    ApiKey.FETCH: ("node_endpoints",),
    ApiKey.METADATA: ("brokers",),
    ApiKey.FIND_COORDINATOR: ("coordinators", "host"),
    ApiKey.DESCRIBE_CLUSTER: ("brokers",),
}
"""The fields of a response with addresses of brokers; `host` is a field of the response itself."""

UNKNOWN_WITHOUT_ADDRESSES: Final = frozenset(
    {
        *(34, 38, 39, 40, 41),  # AlterReplicaLogDirs, delegation tokens
        *(71, 72),  # client telemetry
        *(
            76,
            77,
            83,
            84,
            85,
            86,
            87,
            90,
            91,
            92,
        ),  # share groups, but ShareFetch and ShareAcknowledge
        *(88, 89),  # streams groups, which name addresses of clients
    }
)
"""APIs of Kafka 4.4 that understudy does not decode and that name no broker."""

_INT16: Final = struct.Struct(">h")


def has_addresses(key: ApiKey, version: int) -> bool:
    """Return whether the response to a request of this version may name brokers."""
    return key in PLACES and any(version in field.wire.versions for field in _place_fields(key))


def _place_fields(key: ApiKey) -> list[Field]:
    return [each for each in fields_of(API[key].response) if each.name in PLACES[key]]


def named_brokers(key: ApiKey, response: Any) -> list[Any]:
    """Return the parts of a response with `host` and `port` of a broker, and its id.

    A coordinator that is not there has no port.
    """
    found: list[Any] = []
    for place in PLACES[key]:
        found += [response] if place == "host" else getattr(response, place)
    return [each for each in found if each.port > 0]


def id_of(named: Any) -> int:
    """Return the id of a broker that `named_brokers` has returned."""
    found: int = named.broker_id if isinstance(named, DescribeClusterBroker) else named.node_id
    return found


def may_pass(header: RequestHeader) -> bool:
    """Return whether a request that cannot be decoded may pass."""
    api = api_numbered(header.api_key)
    return header.api_key in UNKNOWN_WITHOUT_ADDRESSES if api is None else api.key not in PLACES


def cut_versions(response: ApiVersionsResponse) -> ApiVersionsResponse:
    """Cut the versions that a broker offers to those that a proxy can serve; return the response."""
    response.api_keys = [cut for each in response.api_keys if (cut := _cut(each)) is not None]
    return response


def _cut(offered: ApiVersion) -> ApiVersion | None:
    api = api_numbered(offered.api_key)
    if api is None:
        return offered if offered.api_key in UNKNOWN_WITHOUT_ADDRESSES else None
    least = max(offered.min_version, api.advertised_from)
    most = min(offered.max_version, api.max_version)
    if least > most:
        return None
    return ApiVersion(api_key=offered.api_key, min_version=least, max_version=most)


def version_of_answer(response: object, version: int) -> int:
    """Return the version in which a response travels: ApiVersions refuses in version 0 (KIP-511)."""
    if (
        isinstance(response, ApiVersionsResponse)
        and response.error_code == ErrorCode.UNSUPPORTED_VERSION
    ):
        return 0
    return version


def is_answered(header: RequestHeader, frame: memoryview, body: int) -> bool:
    """Return whether a request has a response; Produce with acks=0 has none.

    `body` is where the request begins behind its header: with the transactional id, and the acks.
    """
    if header.api_key != ApiKey.PRODUCE:
        return True
    try:
        if API[ApiKey.PRODUCE].is_flexible(header.api_version):
            length, body = read_uvarint(frame, body)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(frame, body)
            body += _INT16.size
        (acks,) = _INT16.unpack_from(frame, body + max(length, 0))
    except (struct.error, IndexError) as broken:
        raise ProtocolError(f"not a ProduceRequest: {broken}") from broken
    return bool(acks != 0)
