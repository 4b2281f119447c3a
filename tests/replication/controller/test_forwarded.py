"""Envelopes of Apache Kafka's brokers (KIP-590): the request is that of the client which the envelope names."""

from ipaddress import ip_address
from typing import Any

import attrs
import pytest

from replication.config import Voter
from replication.config.security import STANDARD_AUTHORIZER
from replication.controller.controller import Controller
from replication.errors import ErrorCode
from replication.net.framing import LENGTH_SIZE
from replication.security.rules.acls import (
    Operation,
    PatternType,
    ResourceType,
)
from replication.server.server import RequestContext
from replication.wire.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from replication.wire.apis import ApiKey, api_of
from replication.wire.codec import encode_versioned
from replication.wire.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from replication.wire.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from replication.wire.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from replication.wire.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumTopic,
)
from replication.wire.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from replication.wire.fetch import FetchRequest
from replication.wire.frames import decode_response, encode_request
from replication.wire.update_features import (
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from scenarios.world.world import World
from tests.replication.controller.running_controller import CONFIG, join, running

FROM_BROKER = RequestContext(ApiKey.ENVELOPE, 0, "broker-11", "10.0.0.11:5000", "CONTROLLER")
WITH_ACLS = attrs.evolve(
    CONFIG,
    authorizer_class_name=STANDARD_AUTHORIZER,
    super_users="User:root;User:ANONYMOUS",  # the broker, which has not logged in
)
CORRELATION_ID = 77


def principal(user: str) -> bytes:
    return encode_versioned(DefaultPrincipalData(type_="User", name=user), 0, flexible=True)


def envelope(
    request: object, *, version: int | None = None, user: str = "alice", host: str = "10.1.1.1"
) -> EnvelopeRequest:
    if version is None:
        version = api_of(type(request)).max_version
    (whole,) = encode_request(
        request, version=version, correlation_id=CORRELATION_ID, client_id="console"
    )
    assert isinstance(whole, bytes)
    return EnvelopeRequest(
        request_data=whole[LENGTH_SIZE:],
        request_principal=principal(user),
        client_host_address=ip_address(host).packed,
    )


async def opened(controller: Controller, sent: EnvelopeRequest) -> EnvelopeResponse:
    answer = await controller.handlers()[ApiKey.ENVELOPE](FROM_BROKER, sent)
    assert isinstance(answer, EnvelopeResponse)
    return answer


async def forwarded(
    controller: Controller,
    request: object,
    *,
    version: int | None = None,
    user: str = "alice",
    host: str = "10.1.1.1",
) -> object:
    """Return the response inside of the envelope."""
    answer = await opened(controller, envelope(request, version=version, user=user, host=host))
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    api = api_of(type(request))
    number, response = decode_response(
        memoryview(answer.response_data),
        api_key=api.key,
        version=api.max_version if version is None else version,
    )
    assert number == CORRELATION_ID
    return response


def new_topics(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def test_a_forwarded_request_is_carried_out_as_the_client_that_sent_it() -> None:
    async def story(world: World) -> None:
        allowed = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="mine",
            resource_pattern_type=PatternType.PREFIXED,
            principal="User:alice",
            host="10.1.1.1",
            operation=Operation.CREATE,
            permission_type=3,
        )
        async with running(world, WITH_ACLS) as controller:
            await join(controller, 11)
            made = await forwarded(controller, CreateAclsRequest(creations=[allowed]), user="root")
            assert isinstance(made, CreateAclsResponse)
            assert [each.error_code for each in made.results] == [ErrorCode.NONE]
            for user, host, mine in (
                ("alice", "10.1.1.1", ErrorCode.NONE),
                ("alice", "10.1.1.2", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                ("bob", "10.1.1.1", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ):
                name = f"mine-{mine}-{user}"
                response = await forwarded(
                    controller, new_topics(name, "others"), version=5, user=user, host=host
                )
                assert isinstance(response, CreateTopicsResponse)
                assert {each.name: each.error_code for each in response.topics} == {
                    name: mine,
                    "others": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                }
            assert [*controller.image.topics] == ["mine-0-alice"]

    World(seed=1).run(story)


def test_an_older_version_is_answered_in_its_own_form() -> None:
    async def story(world: World) -> None:
        no_deletion = attrs.evolve(CONFIG, delete_topic_enable=False)
        async with running(world, no_deletion) as controller:
            await join(controller, 11)
            for version, code in (
                (6, ErrorCode.TOPIC_DELETION_DISABLED),
                (5, ErrorCode.TOPIC_DELETION_DISABLED),
                (2, ErrorCode.INVALID_REQUEST),
            ):
                await forwarded(controller, new_topics("t"))
                deletion = DeleteTopicsRequest(
                    topic_names=["t"], topics=[DeleteTopicState(name="t")]
                )
                response = await forwarded(controller, deletion, version=version)
                assert isinstance(response, DeleteTopicsResponse)
                assert [(each.name, each.error_code) for each in response.responses] == [
                    ("t", code)
                ]
            update = FeatureUpdate(feature="transaction.version", max_version_level=1)
            update.allow_downgrade = True
            features = UpdateFeaturesRequest(feature_updates=[update])
            lowered = await forwarded(controller, features, version=0)
            assert isinstance(lowered, UpdateFeaturesResponse)
            assert [(each.feature, each.error_code) for each in lowered.results] == [
                ("transaction.version", ErrorCode.NONE)
            ]
            assert controller.image.feature("transaction.version") == 1

    World(seed=1).run(story)


def test_acls_are_refused_where_the_controller_has_no_authorizer() -> None:
    async def story(world: World) -> None:
        async with running(world) as controller:
            response = await forwarded(controller, CreateAclsRequest(creations=[AclCreation()]))
            assert isinstance(response, CreateAclsResponse)
            assert [each.error_code for each in response.results] == [ErrorCode.SECURITY_DISABLED]

    World(seed=1).run(story)


def test_the_quorum_of_another_log_is_unknown() -> None:
    async def story(world: World) -> None:
        async with running(world) as controller:
            request = DescribeQuorumRequest(topics=[QuorumTopic(topic_name="orders")])
            response = await forwarded(controller, request)
            assert isinstance(response, DescribeQuorumResponse)
            assert [each.topic_name for each in response.topics] == ["orders"]

    World(seed=1).run(story)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\5U"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (
            {"request_principal": b"\0\1" + principal("alice")[2:]},
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\0\x13\0\7"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\0\x13\0\x63\0\0\0\1\xff\xff"}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"request_data": envelope(FetchRequest()).request_data},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
    ids=[
        "no principal",
        "a principal that is cut off",
        "a principal of a later version",
        "no address",
        "half a header",
        "an unknown version",
        "an API that is not forwarded",
    ],
)
def test_an_envelope_that_cannot_be_opened_is_refused(
    changes: dict[str, Any], error: ErrorCode
) -> None:
    async def story(world: World) -> None:
        async with running(world) as controller:
            sent = attrs.evolve(envelope(AlterUserScramCredentialsRequest()), **changes)
            answer = await opened(controller, sent)
        assert (answer.error_code, answer.response_data) == (error, None)

    World(seed=1).run(story)


def test_a_controller_that_does_not_decide_says_so_outside() -> None:
    """Their broker looks for the active controller then; inside, the client would see the error."""

    async def story(world: World) -> None:
        voters = (Voter(100, "controller", 9093), Voter(101, "elsewhere", 9093))
        alone = attrs.evolve(CONFIG, controller_quorum_voters=voters, cluster_id="c")
        async with running(world, alone) as controller:
            answer = await opened(controller, envelope(new_topics("t")))
        assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)

    World(seed=1).run(story)
