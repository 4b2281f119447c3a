"""The limits of one request that changes the cluster.

    QuorumController.MAX_RECORDS_PER_USER_OP    10,000 records of the metadata log
    here, before anything is decided            10,000 items of the request, 100,000 numbers in it

Kafka counts records as it decides, and answers POLICY_VIOLATION to the whole request when there
are too many. A request with more items than that is refused here before it is forwarded: most
items become a record, and even those that are refused take time.
"""

from functools import cache
from typing import Any

from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MAX_RECORDS, TOO_LARGE
from replication.net.pace import in_steps
from replication.server.server import Handler, RequestContext
from replication.steps import Steps
from replication.wire.apis import API, ApiKey, api_of
from replication.wire.refusals import refused_in_steps
from replication.wire.schema import Kind, fields_of
from storage.attributes import define

MAX_NUMBERS = 100_000
"""The most brokers and partitions that a request may name by their number alone."""

LIMITED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
    }
)
"""The APIs that a broker forwards for its clients."""


def limited(key: ApiKey, handler: Handler) -> Handler:
    """Return `handler`, with a check of the request's size if `key` is one of `LIMITED`."""
    if key not in LIMITED:
        return handler

    async def handle(context: RequestContext, request: Any) -> Any:
        if is_too_large(await in_steps(size_of(request))):
            return await too_large(key, request)
        return await handler(context, request)

    return handle


async def too_large(key: ApiKey, request: Any) -> Any:
    """Return the answer to a request that would change too much."""
    return await in_steps(
        refused_in_steps(API[key].response, request, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    )


@define
class Size:
    """The number of items in the arrays of a request, structs and bare numbers apart."""

    items: int = 0
    numbers: int = 0


def is_too_large(size: Size) -> bool:
    """Return whether a request of that size is refused before anything is decided."""
    return size.items > MAX_RECORDS or size.numbers > MAX_NUMBERS


def size_of(request: Any) -> Steps[Size]:
    """Return the size of `request`; above the limits it is not counted any further."""
    size = Size()
    left = [request]
    while left and not is_too_large(size):
        each = left.pop()
        kind: type = type(each)
        for name, is_number, is_struct in _arrays_of(kind):
            array = getattr(each, name) or ()
            if is_number:
                size.numbers += len(array)
            else:
                size.items += len(array)
            if is_struct:
                left += array
        yield 1
    return size


@cache
def _arrays_of(kind: type) -> list[tuple[str, bool, bool]]:
    """Return the arrays of a message: name, whether of numbers, whether of structs."""
    return [
        (field.name, field.wire.items is Kind.INT32, isinstance(field.wire.items, type))
        for field in fields_of(kind)
        if field.wire.kind is Kind.ARRAY
    ]


class TooManyRecordsError(Exception):
    """The error of a decision with too many records; nothing of it is appended."""


def work_of(request: Any, size: Size, image: MetadataImage) -> int:
    """Return how many items a decision about `request` has to look at, at least one."""
    match api_of(type(request)).key:
        case ApiKey.CREATE_TOPICS:
            asked: int = sum(max(0, topic.num_partitions) for topic in request.topics)
            return 1 + size.items + min(asked, MAX_RECORDS)
        case ApiKey.CREATE_PARTITIONS:
            asked = sum(max(0, topic.count) for topic in request.topics)
            return 1 + size.items + min(asked, MAX_RECORDS)
        case ApiKey.CREATE_ACLS | ApiKey.DELETE_ACLS:
            return 1 + size.items + len(image.security.acls)
        case ApiKey.ELECT_LEADERS if request.topic_partitions is None:
            return MAX_RECORDS  # every partition there is
        case ApiKey.LIST_PARTITION_REASSIGNMENTS if request.topics is None:
            return MAX_RECORDS
        case ApiKey.UNREGISTER_BROKER:
            return MAX_RECORDS
        case _:
            return 1 + size.items + size.numbers
