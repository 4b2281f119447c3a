"""Guards: they check the client's ACLs before a handler is called (KafkaApis, AuthHelper).

    request ── is the request allowed as a whole? ── no: every part of the answer is an error
       └──── is each topic (group, ...) allowed? ── no: removed, and answered as refused
                 └── the handler, which does not know about ACLs

    access.py    one request's checks by the authorizer, and the rights that most APIs need
    records.py   Produce and Fetch
    special.py   the other APIs, which do not fit into the table: Metadata, lists, descriptions

Rule 1: no API is served without an entry; a test compares the two tables.

Rule 2: without an authorizer in the configuration, handlers are served as they are.
"""

from collections.abc import Callable, Mapping
from functools import partial

from replication.metadata.rules.image import MetadataImage
from replication.security.rules.acls import Authorizer
from replication.server.guards.access import BROKERS_ONLY, RULES, Access, Guard, by_rules
from replication.server.guards.records import FetchGuard
from replication.server.server import Handler, RequestContext
from replication.wire.apis import ApiKey


def guarded(
    handlers: Mapping[ApiKey, Handler],
    authorizer: Authorizer,
    image: Callable[[], MetadataImage],
    *,
    creates_topics: bool,
) -> dict[ApiKey, Handler]:
    """Return `handlers`, each behind its guard.

    `creates_topics` is `auto.create.topics.enable`.
    """
    return {
        key: _guarded(_guard_of(key), handler, authorizer, image, creates_topics=creates_topics)
        for key, handler in handlers.items()
    }


def for_brokers(
    handlers: Mapping[ApiKey, Handler], authorizer: Authorizer, image: Callable[[], MetadataImage]
) -> dict[ApiKey, Handler]:
    """Return the controller's `handlers`, for brokers only.

    Brokers have checked the ACLs of the clients whose requests they forward.
    """
    guard = partial(by_rules, BROKERS_ONLY)
    return {key: _guarded(guard, handler, authorizer, image) for key, handler in handlers.items()}


def _guard_of(key: ApiKey) -> Guard:
    if key is ApiKey.FETCH:
        return FetchGuard().guard
    from replication.server.guards.special import SPECIAL  # noqa: PLC0415 - most clusters have no ACLs

    if key in SPECIAL:
        return SPECIAL[key]
    return partial(by_rules, RULES[key])


def _guarded(
    guard: Guard,
    handler: Handler,
    authorizer: Authorizer,
    image: Callable[[], MetadataImage],
    *,
    creates_topics: bool = False,
) -> Handler:
    async def handle(context: RequestContext, request: object) -> object:
        access = Access(authorizer, image(), context, creates_topics)
        return await guard(access, request, handler)

    return handle


__all__ = ["for_brokers", "guarded"]
