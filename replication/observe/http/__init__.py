"""HTTP for whoever watches a cluster or steers it: metrics, control, the page.

    routes ──> http_app ──> serve_http ──> hypercorn's HTTP/1.1 over trio
    Site, Site ──> serve_sites ──> one server for each port that they name

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_http, http_app(routes), LOOPBACK, 0)
        ...  # address.port, address.url
        nursery.cancel_scope.cancel()

Rule 1: a server lives in its caller's nursery and ends when that is cancelled: it stops
listening, tells every stream, lets answers that are under way finish for GRACE_SECONDS, and
then hangs up, also on a client that does not read. No signal handler, no thread, no log line.

Rule 2: an endpoint is an ordinary trio task of the cluster's own loop, so it may look at
brokers directly. It must not keep the loop for itself: what is long goes in slices, with a
checkpoint between them.

Rule 3: what lasts is an `EventStream` (server-sent events): its feed is cancelled when the
client has gone or the server closes, and a comment every KEEP_ALIVE_SECONDS finds out who has
gone without a word.

Rule 4: a mistake in an endpoint is answered with 500 and handed to `on_bug`. Where that raises,
as in tests, the server ends with it.

Rule 5: only this machine is listened to (LOOPBACK), unless told otherwise; and a page of
another origin changes nothing, for a browser that visits it can reach this machine
(`origins.py`). A request without an Origin, as curl sends it, is nobody's page.

Rule 6: port 0 is any free port. The same number asked for twice is one port that serves both.

Importing this package needs the extra `http`; without it the import raises MissingExtraError.
Nothing imports it where no port is asked for.
"""

from replication.extras import extra

with extra("http", "serving HTTP"):
    from replication.observe.http.event_stream import KEEP_ALIVE_SECONDS, EventSender, EventStream
    from replication.observe.http.server import GRACE_SECONDS, HttpAddress, serve_http
    from replication.observe.http.sites import LOOPBACK, Site, http_app, serve_sites

__all__ = [
    "GRACE_SECONDS",
    "KEEP_ALIVE_SECONDS",
    "LOOPBACK",
    "EventSender",
    "EventStream",
    "HttpAddress",
    "Site",
    "http_app",
    "serve_http",
    "serve_sites",
]
