"""SCRAM credentials (KIP-554): described from the metadata, altered by the controller."""

from collections import Counter

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, PeerUnavailableError
from replication.metadata.rules.image import MetadataImage
from replication.net.pace import in_steps
from replication.security.rules.scram import SCRAM_NUMBERS
from replication.server.server import RequestContext
from replication.steps import Steps, each_of
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from replication.wire.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_NUMBER_OF = {name: number for number, name in SCRAM_NUMBERS.items()}


async def describe_user_scram_credentials(
    node: BrokerNode, _: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    await node.metadata.catch_up()
    known = await in_steps(_known(node.metadata.image))
    times = Counter(each.name for each in request.users or ())
    described = each_of(
        lambda name: _described(name, known, twice=times[name] > 1), list(times or known)
    )
    return DescribeUserScramCredentialsResponse(results=await in_steps(described))


def _known(image: MetadataImage) -> Steps[dict[str, list[CredentialInfo]]]:
    """Return the credentials of each user, sorted by user and mechanism."""
    known: dict[str, list[CredentialInfo]] = {}
    credentials = image.security.credentials
    for name, mechanism in sorted(credentials):
        iterations = credentials[name, mechanism].iterations
        info = CredentialInfo(mechanism=_NUMBER_OF[mechanism], iterations=iterations)
        known.setdefault(name, []).append(info)
        yield 1
    return known


def _described(
    name: str, known: dict[str, list[CredentialInfo]], *, twice: bool
) -> DescribeUserScramCredentialsResult:
    if not twice and name in known:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=known[name])
    error = ErrorCode.DUPLICATE_RESOURCE if twice else ErrorCode.RESOURCE_NOT_FOUND
    why = "is named twice" if twice else "has no credential"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=error, error_message=f"{name} {why}"
    )


async def alter_user_scram_credentials(
    node: BrokerNode, _: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    try:
        response = await node.forward(request, timeout_ms=node.config.request_timeout_ms)
    except PeerUnavailableError as error:
        asked = [each.name for each in request.deletions]
        asked += [each.name for each in request.upsertions]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=str(error)
                )
                for name in dict.fromkeys(asked)
            ]
        )
    assert isinstance(response, AlterUserScramCredentialsResponse), "an answer decodes as asked"
    return response
