"""docs/metrics.md: what `/metrics` serves, from the catalogue that its help texts come from."""

from collections.abc import Iterator
from itertools import groupby

from replication.broker.nodes import CONTROLLER_ID
from replication.metrics import MetricName
from replication.observe.metric_catalogue import CATALOGUE, MetricDescription
from replication.observe.served_metrics import QUANTILES, spelling

_HEAD = """
`understudy up --metrics 9100` serves `http://127.0.0.1:9100/metrics` in Prometheus' text format. `understudy broker --config server.properties --metrics 9100` does so for its node, and `understudy follow --metrics-port 9100` for its copy.
`--metrics 0.0.0.0:9100` serves other machines too, and `--metrics 0` takes any free port; the command prints the URL. It needs the extra `http`: `pip install '.[http]'` in the directory of understudy.

```yaml
# prometheus.yml
scrape_configs:
- job_name: understudy
  static_configs:
  - targets: ["127.0.0.1:9100"]
```

You can import [the Grafana dashboard](grafana/understudy.json) unchanged: Dashboards, New, Import. In an installation it is the file `grafana.json` of the package `replication.observe`.
Its expressions were run against Prometheus 2.42, which scraped three brokers under load: all 59 returned data.
On 22 November 2026 every panel was checked in the front end of Grafana 11.0.0, over twenty minutes in which a broker was killed and came back:

![The dashboard in Grafana's front end: stats, traffic and replicas, with broker 2 killed and back again](images/grafana.png)

That front end was built from its source, with the plugins that the dashboard uses. A script took the place of Grafana's back end and answered from Prometheus, so importing the file into a complete Grafana has not been tried.
Before its last changes the file was checked against the type of newer dashboards (`@grafana/schema` 13.2).

## Names

The names are those of the rules in jmx_exporter's `kafka-2_0_0.yml`, and of Strimzi's, which come from them: the MBean's group, type and name, in lowercase, joined by underscores.
`...PerSec` is a counter that ends in `_total`; a distribution is a gauge for each quantile (QUANTILES) and a counter that ends in `_count`.
So public dashboards for these rules find their metrics: of the 21 metrics in Strimzi's Kafka dashboard, 16 are served. Missing are those of threads, of the operating system's disks (idle percentages, `linux_disk_*`), and of failed fetches.
Unlike in those rules, a fetcher's labels are those of the MBean (`clientId`, `brokerHost`, `brokerPort`), and request sizes have `_min`, `_max` and `_mean` instead of quantiles.
The names of metrics that Kafka does not have begin with `understudy_`.

## Brokers

Every series of a broker has the label `broker`; those of the controller and of the process have none.
If all nodes are in one process, one port serves them all; for a broker that is down it serves only `understudy_broker_up` 0 and the counts of its events.
With `--isolated` each process serves its own metrics, as each JVM would: `--metrics 9100` is the controller's port, broker 1 is at 9101, and so on; a killed broker has `up == 0`.

## Cost

A node answers one scrape at a time, in slices of 64 numbers, between which other tasks run.
Three brokers with 1,000 partitions of three replicas have 39,000 lines: a scrape takes half a second of processor time, and never more than 2.5 ms of it at once.
Between scrapes, only counts, the last 1,024 times of each API, and one timer for each waiting request are kept.

## Times

Times are those of the last 1,024 requests of each API; Kafka's are those of the last five minutes.
There are no request queues here, so `RequestQueueTimeMs` is the time of reading a long request or a login, and `ResponseQueueTimeMs` that of writing a long response (`replication/server/request_metrics.py` has a drawing).
""".strip()


def metrics_lines() -> Iterator[str]:
    assert CONTROLLER_ID == 0, "the controller's metrics are at the first port"
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
