"""Handlers that ask first whether the one who asks may (KafkaApis, AuthHelper).

    request ── whole: may this be asked at all? ── no: every part of the answer is an error
       └──── of each topic (group, ...): may it be? ── no: taken out, and answered as refused
                 └── the handler, which knows nothing of all this

    access.py    one request's questions to the authorizer
    rules.py     what each API needs: most of Kafka's table, as a table
    records.py   Produce and Fetch
    special.py   the other APIs that do not fit into the table: Metadata, lists
    described.py those that tell what may be done with what they describe

Rule 1: no API is served without an entry; a test compares the two tables.

Rule 2: where no authorizer is configured handlers are served as they are.
"""

from collections.abc import Callable, Mapping
from functools import partial

from replication.metadata.rules import MetadataImage
from replication.security.rules.acls import Authorizer
from replication.server.guards.access import Access, Guard
from replication.server.guards.records import FetchGuard
from replication.server.guards.required import BROKERS_ONLY, RULES, by_rules
from replication.server.guards.special import SPECIAL
from replication.server.server import Handler, RequestContext
from replication.wire.apis import ApiKey


def guarded(
    handlers: Mapping[ApiKey, Handler], authorizer: Authorizer, image: Callable[[], MetadataImage]
) -> dict[ApiKey, Handler]:
    """`handlers`, for those who may."""
    return {
        key: _guarded(_guard_of(key), handler, authorizer, image)
        for key, handler in handlers.items()
    }


def for_brokers(
    handlers: Mapping[ApiKey, Handler], authorizer: Authorizer, image: Callable[[], MetadataImage]
) -> dict[ApiKey, Handler]:
    """The controller's: whoever asks it is a broker, which has asked the ACLs for its clients."""
    guard = partial(by_rules, BROKERS_ONLY)
    return {key: _guarded(guard, handler, authorizer, image) for key, handler in handlers.items()}


def _guard_of(key: ApiKey) -> Guard:
    if key is ApiKey.FETCH:
        return FetchGuard().guard
    if key in SPECIAL:
        return SPECIAL[key]
    return partial(by_rules, RULES[key])


def _guarded(
    guard: Guard, handler: Handler, authorizer: Authorizer, image: Callable[[], MetadataImage]
) -> Handler:
    async def handle(context: RequestContext, request: object) -> object:
        return await guard(Access(authorizer, image(), context), request, handler)

    return handle


__all__ = ["for_brokers", "guarded"]
