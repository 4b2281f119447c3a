"""The Grafana dashboard asks for what `/metrics` serves, by labels that it has, on panels that do
not overlap, under titles that fit.

Beside this it was run against Prometheus 2.42, which scraped a cluster under load: each of its
expressions was answered with data; and looked at in Grafana's front end (docs/metrics.md).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from replication.metrics import MetricName
from replication.observe.metric_catalogue import CATALOGUE
from replication.observe.served_metrics import QUANTILES, spelling

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "understudy.json").read_text()
)
WIDTH = 24
_METRIC = re.compile(r"\b(?:kafka|understudy|process)_\w+")
_SELECTED = re.compile(r"(\w+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_QUERY = re.compile(r"label_values\((\w+), (\w+)\)")
_RANGE = re.compile(r"\[([^]]+)\]")
_BESIDE = {"broker", "job", "instance"}  # of the server, and of Prometheus


def served() -> dict[str, set[str]]:
    """The labels of each name."""
    names: dict[str, set[str]] = {}
    for described in CATALOGUE.values():
        name = spelling(MetricName(*described.key)).name
        names[name] = set(described.tags) | _BESIDE
        if described.distribution:
            names[f"{name}_count"] = names[name]
            names[name] = names[name] | {"quantile"}
    return names


SERVED = served()


@attrs.frozen
class Target:
    panel: str
    expr: str
    legend: str


def targets() -> Iterator[Target]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Target(panel["title"], target["expr"], target["legendFormat"])


def test_every_expression_names_metrics_that_are_served() -> None:
    asked = [name for target in targets() for name in _METRIC.findall(target.expr)]
    assert len(asked) >= len(list(targets())) > 50
    assert set(asked) - SERVED.keys() == set()


def test_every_label_is_one_of_that_metric() -> None:
    for target in targets():
        for name, matchers in _SELECTED.findall(target.expr):
            for label, value in _MATCHER.findall(matchers):
                assert label in SERVED[name], target
                assert label != "quantile" or value in QUANTILES, target
        (labels,) = {frozenset().union(*(SERVED[each] for each in _METRIC.findall(target.expr)))}
        grouped = {label.strip() for by in _GROUPED.findall(target.expr) for label in by.split(",")}
        assert grouped <= labels, target
        assert set(_LEGEND.findall(target.legend)) <= (grouped or labels), target


def test_no_rate_is_over_a_window_that_may_hold_a_single_scrape() -> None:
    """`[1m]` shows nothing where Prometheus scrapes once a minute, which is its default."""
    windows = {window for target in targets() for window in _RANGE.findall(target.expr)}
    assert windows == {"$__rate_interval", "1h"}


def test_titles_fit_their_panels() -> None:
    """In a window of 1,280 pixels a column holds about seven letters, and the frame takes nine."""
    for panel in DASHBOARD["panels"]:
        assert len(panel["title"]) <= 7 * panel["gridPos"]["w"] - 9, panel["title"]


def test_every_variable_is_used_and_every_one_used_is_there() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    text = json.dumps([DASHBOARD["panels"]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == variables.keys()
    for each in variables.values():
        if each["type"] == "query":
            ((metric, label),) = _QUERY.findall(each["query"]["query"])
            assert label in SERVED[metric]


def test_panels_have_a_place_of_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    taken: set[tuple[int, int]] = set()
    for place in places:
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < WIDTH
        assert not cells & taken
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert all(panel["title"] for panel in DASHBOARD["panels"])
