"""HTTP for metrics, control and the page.

    routes ──> http_app ──> serve_http ──> h11 over trio
    Site, Site ──> serve_sites ──> one server for each port that they name

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_http, http_app(routes), LOOPBACK, 0)
        ...  # address.port, address.url
        nursery.cancel_scope.cancel()

Rule 1: a server runs in its caller's nursery and ends when that is cancelled: it stops listening,
ends every stream, lets answers under way finish for GRACE_SECONDS, and then closes the remaining
connections, even of a client that does not read. It has no signal handler, thread or log line.

Rule 2: an endpoint is an ordinary trio task on the cluster's own loop, so it may read brokers
directly. It must not occupy the loop: long work is done in slices, with a checkpoint between them.

Rule 3: a long answer is an `EventStream` (server-sent events). Its feed is cancelled when the client
leaves or the server closes; a comment every KEEP_ALIVE_SECONDS detects clients that are gone.

Rule 4: an exception in an endpoint is answered with 500 and handed to `on_bug`. If that raises, as
in tests, the server ends with it.

Rule 5: a server listens only on this machine (LOOPBACK) by default. A page of another origin can
neither read nor change anything, although a browser that shows it can reach this machine
(`server.py`). A request without an Origin, as curl sends it, comes from no page.

Rule 6: port 0 is any free port. Sites that ask for the same port share it.

Importing this package needs the extra `http`; without it the import raises MissingExtraError.
It is imported only if a port is asked for.
"""

from replication.extras import extra

with extra("http", "serving HTTP"):
    from replication.observe.http.event_stream import KEEP_ALIVE_SECONDS, EventStream, SendEvent
    from replication.observe.http.server import (
        GRACE_SECONDS,
        LOOPBACK,
        HttpAddress,
        Site,
        http_app,
        serve_http,
        serve_sites,
    )

__all__ = [
    "GRACE_SECONDS",
    "KEEP_ALIVE_SECONDS",
    "LOOPBACK",
    "EventStream",
    "HttpAddress",
    "SendEvent",
    "Site",
    "http_app",
    "serve_http",
    "serve_sites",
]
