"""docs/metrics.md: what `/metrics` serves, from the catalogue that its help texts come from."""

from collections.abc import Iterator
from itertools import groupby

from replication.cli.isolated import CONTROLLER
from replication.metrics import MetricName
from replication.observe.metric_catalogue import CATALOGUE, MetricDescription
from replication.observe.served_metrics import QUANTILES, spelling

_HEAD = """
`understudy up --metrics 9100` serves `http://127.0.0.1:9100/metrics` in Prometheus' text form; so do `understudy broker --config server.properties --metrics 9100`, for its node, and `understudy follow --metrics-port 9100`, for its copy.
`--metrics 0.0.0.0:9100` serves it to others, `--metrics 0` at any free port; the URL is printed. It needs the extra `http`: `pip install '.[http]'` in the directory of understudy.

```yaml
# prometheus.yml
scrape_configs:
- job_name: understudy
  static_configs:
  - targets: ["127.0.0.1:9100"]
```

[The Grafana dashboard](grafana/understudy.json) is imported as it is: Dashboards, New, Import.
Its expressions were run against Prometheus 2.42, which scraped three brokers under load: all 59 were accepted, and answered with data.
On 22 November 2026 it was looked at, panel by panel, in the front end of Grafana 11.0.0, over twenty minutes in which a broker was killed and came back:

![The dashboard in Grafana's front end: stats, traffic and replicas, with broker 2 killed and back again](images/grafana.png)

That front end was built from its source, with those of its plugins that the dashboard uses, and few others. Grafana's back end was not: what the front end asks of it, a script answered from Prometheus. So importing the file into a whole Grafana has not been tried.
Before its last changes the file was compiled against the type of newer dashboards (`@grafana/schema` 13.2).

## Whose spelling

That of the rules of jmx_exporter's `kafka-2_0_0.yml`, and of Strimzi's, which come from them: the MBean's group, type and name, lowercase, joined by underscores.
`...PerSec` is a counter that ends in `_total`; a distribution is a gauge for each quantile (QUANTILES) and a counter that ends in `_count`.
So public dashboards over these rules find their names: of the 21 metrics that Strimzi's Kafka dashboard asks for, 16 are served. Threads and what the operating system counts per disk (idle percentages, `linux_disk_*`) are not, nor are failed fetches.
Unlike those rules, a fetcher's labels are what the MBean has (`clientId`, `brokerHost`, `brokerPort`), and request sizes have `_min`, `_max` and `_mean` instead of quantiles.
What only we know is spelled `understudy_...`.

## Which broker

Every series of a broker's has the label `broker`. What is the controller's, or the process's, has none.
In one process all nodes are served on one port; a broker that is down shows nothing but `understudy_broker_up` 0 and what its events have added up to.
With `--isolated` each process serves its own, as each JVM would: `--metrics 9100` is the controller's port, broker 1 is at 9101, and so on; who is killed is `up == 0`.

## What it costs

A scrape is made in slices of 64 numbers, between which everybody else runs; one scrape at a time.
Three brokers with 1,000 partitions of three replicas are 39,000 lines: half a second of processor time each time, and never more than 2.5 ms of it at once.
Nothing is added up while nobody looks but counts, the last 1,024 times of each API, and one watch for each request that waits.

## What times are

Of the last 1,024 requests of each API, not of the last five minutes as Kafka's reservoirs are.
Nothing queues here, so `RequestQueueTimeMs` is reading a long request or a login, and `ResponseQueueTimeMs` is writing a long response (`replication/server/request_metrics.py` draws it).
""".strip()


def metrics_lines() -> Iterator[str]:
    assert CONTROLLER == 0, "the controller's metrics are at the first port"
    yield _HEAD.replace("QUANTILES", ", ".join(QUANTILES))
    for (group, kind), described in groupby(CATALOGUE.values(), lambda each: each.key[:2]):
        yield from ("", f"## {_title(group, kind)}", "")
        yield "| metric | type | labels | meaning | MBean |"
        yield "|---|---|---|---|---|"
        for each in described:
            yield from _rows(each)


def _title(group: str, kind: str) -> str:
    special = {"understudy": f"Ours: {kind.lower()}", "process": "As of every process"}
    return special.get(group, f"{group}: {kind}")


def _rows(described: MetricDescription) -> Iterator[str]:
    sizes = ("Count", "Min", "Max", "Mean") if "attribute" in described.tags else (None,)
    labels = ", ".join(f"`{each}`" for each in described.tags if each != "attribute")
    for attribute in sizes:
        tags = () if attribute is None else (("attribute", attribute),)
        spelled = spelling(MetricName(*described.key, tags))
        kind = "quantiles, and `_count`" if described.distribution else spelled.type
        ours = described.group in ("understudy", "process")
        bean = "" if ours else f"`{described.group}:type={described.type},name={described.name}`"
        yield f"| `{spelled.name}` | {kind} | {labels} | {described.meaning} | {bean} |"
