"""DeleteTopics (KIP-4, 516, 599): deletes topics by name, and from version 6 on also by id."""

from replication.wire.schema import Kind, array, define, int16, int32, string, uuid


@define(kw_only=True)
class DeleteTopicState:
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@define(kw_only=True)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(Kind.STRING, "0-5")
    timeout_ms: int = int32()


@define(kw_only=True)
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


@define(kw_only=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
