"""Dashboards and alerts name metrics and labels that the programs have, and the pages say what the tables say."""

from __future__ import annotations

import re
from typing import Final

import pytest

from koordinator.api.manifests.monitoring import DASHBOARDS
from koordinator.api.manifests.monitoring.alerts import ALERTS
from koordinator.api.manifests.monitoring.dashboards import COLUMNS, Panel, grafana_text
from tests.docs.monitoring_pages import (
    DASHBOARDS_PAGE,
    RUNBOOKS_PAGE,
    dashboards_page,
    labels_of,
    metrics_of,
    recorded_labels,
    runbooks_page,
)

_OF_PROMETHEUS: Final = frozenset({"job", "instance", "node"})
"""Of every scraped series; koordlet's have the node, also in the recordings."""
_UNRECORDED: Final = {
    "koordlet_be_suppress_cpu_cores": {"type"},
    "koordlet_container_resource_requests": {"resource"},
    "koordlet_plugin_working": {"plugin", "package"},
    "koordlet_pod_eviction": {"reason"},
    "koordlet_pod_eviction_detail": {"reason", "pod_namespace", "pod_name"},
}
"""Labels of what has not happened in the recordings of koordlet."""
_PANELS: Final = [(dashboard, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]
EXPRESSIONS: Final = [
    *(
        (f"{each.name}: {panel.title}", query.expression, query.legend)
        for each, panel in _PANELS
        for query in panel.queries
    ),
    *((alert.name, alert.expression, alert.summary) for alert in ALERTS),
]


@pytest.mark.parametrize(("name", "expression", "shown"), EXPRESSIONS, ids=[each[0] for each in EXPRESSIONS])
def test_a_query_names_metrics_and_labels_that_there_are(name: str, expression: str, shown: str) -> None:
    recorded = recorded_labels()
    metrics = metrics_of(expression)
    assert metrics
    assert not metrics - recorded.keys(), name
    known = _OF_PROMETHEUS.union(*(recorded[each] | _UNRECORDED.get(each, set()) for each in metrics))
    used = labels_of(expression) | set(re.findall(r"\{\{(?: \$labels\.)?(\w+)(?= \}\}|\}\})", shown))
    assert not used - known, name


def test_what_names_a_metric_that_there_is_not_is_noticed() -> None:
    assert metrics_of('sum by (a) (rate(b_total{c="d_e"}[5m])) / on () group_left () g') == {"b_total", "g"}
    assert labels_of('sum by (a, le) (rate(b_total{c="d_e",f=~"g"}[5m]))') == {"a", "le", "c", "f"}


def test_no_two_panels_of_a_dashboard_have_the_same_title_or_place() -> None:
    for dashboard in DASHBOARDS:
        titles = [panel.title for panel in dashboard.panels]
        assert len(set(titles)) == len(titles), dashboard.name


def test_panels_lie_beside_and_below_each_other() -> None:
    import json

    for dashboard in DASHBOARDS:
        places = [each["gridPos"] for each in json.loads(grafana_text(dashboard))["panels"]]
        covered = [
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(set(covered)) == len(covered)
        assert max(x for x, _ in covered) < COLUMNS


def test_every_variable_of_a_query_is_one_of_its_dashboard() -> None:
    for dashboard, panel in _PANELS:
        for query in panel.queries:
            named = set(re.findall(r"\$(?!__)(\w+)", query.expression))
            assert named <= dashboard.variables.keys() | dashboard.typed.keys(), panel.title


def _says_what_to_conclude(panel: Panel) -> bool:
    return panel.conclusion.endswith(".")


def test_every_panel_and_alert_says_what_to_conclude() -> None:
    assert [panel.title for _, panel in _PANELS if not _says_what_to_conclude(panel)] == []
    assert [alert.name for alert in ALERTS if not alert.steps or not alert.meaning] == []


def test_the_pages_are_those_of_the_tables() -> None:
    again = "python -m tests.docs.monitoring_pages writes it anew"
    assert DASHBOARDS_PAGE.read_text() == dashboards_page(), again
    assert RUNBOOKS_PAGE.read_text() == runbooks_page(), again
