"""`GET /metrics`, for Prometheus.

One scrape at a time is made; another waits its turn, so that whoever asks often costs no more
than whoever asks all the time. What one costs, and that the loop goes on meanwhile, is the
business of `replication/observe/exposition.py`.
"""

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from replication.observe.exposition import CONTENT_TYPE, exposition
from replication.observe.http.sites import LOOPBACK, Site
from replication.observe.served_metrics import ServedMetrics

PATH = "/metrics"


def metrics_site(port: int, metrics: ServedMetrics, *, host: str = LOOPBACK) -> Site:
    one_at_a_time = trio.Lock()

    async def scrape(_: Request) -> Response:
        async with one_at_a_time:
            return Response(
                await exposition(metrics.sources()), headers={"content-type": CONTENT_TYPE}
            )

    routes = [Route(PATH, scrape)]
    return Site(purpose="metrics", host=host, port=port, path=PATH, routes=routes)
