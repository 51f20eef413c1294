"""docs/dashboards.md and docs/runbooks.md, from the tables of dashboards and alerts.

``python -m tests.docs.monitoring_pages`` writes them anew. Here are also the names that a query of Prometheus has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from koordinator.api.manifests.monitoring import DASHBOARDS
from koordinator.api.manifests.monitoring.alerts import ALERTS, Alert
from koordinator.api.manifests.monitoring.dashboards import Dashboard
from tests.docs.metrics_page import PAGE
from tests.docs.pages import ROOT

DASHBOARDS_PAGE: Final = ROOT / "docs/dashboards.md"
RUNBOOKS_PAGE: Final = ROOT / "docs/runbooks.md"
_ROW: Final = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_STRING: Final = re.compile(r'"[^"]*"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) \(([^)]*)\)")
_SELECTOR: Final = re.compile(r"\{([^}]*)\}")
_NAME: Final = re.compile(r"(?<![\w$])[a-z_]\w*\b(?!\s*\()")
_WORDS: Final = frozenset({"and", "or", "unless", "by", "on"})
_RUNBOOKS_START: Final = """\
# Runbooks

What each alert of the chart means, and what to do when it fires. `monitoring.alerts.enabled` installs them for the
Prometheus operator ([dashboards.md](dashboards.md)); without it, `charts/koordinator/alerts.yaml` is a file of rules
that Prometheus takes.

`python -m tests.docs.monitoring_pages` writes this page from the table of alerts.
"""


@cache
def recorded_labels() -> dict[str, frozenset[str]]:
    """Each series that docs/metrics.md knows, with its labels."""
    found: dict[str, frozenset[str]] = {}
    for name, kind, labels in _ROW.findall(PAGE.read_text()):
        names = frozenset(re.findall(r"\w+", labels)) | found.get(name, frozenset())
        found |= (
            dict.fromkeys([f"{name}_{each}" for each in ("bucket", "sum", "count")], names | {"le"})
            if (kind == "histogram")
            else {name: names}
        )
    return found


def metrics_of(expression: str) -> frozenset[str]:
    """The series that a query reads."""
    plain = _STRING.sub('""', expression)
    for pattern in (_GROUPING, _SELECTOR, re.compile(r"\[[^\]]*\]")):
        plain = pattern.sub(" ", plain)
    return frozenset(_NAME.findall(plain)) - _WORDS


def labels_of(expression: str) -> frozenset[str]:
    """The labels that a query selects, groups or matches by."""
    plain = _STRING.sub('""', expression)
    grouped = " ".join(_GROUPING.findall(plain))
    selected = " ".join(re.sub(r'[=!~]+""', "", each) for each in _SELECTOR.findall(plain))
    return frozenset(re.findall(r"\w+", f"{grouped} {selected}"))


def dashboards_page() -> str:
    """The whole page: what is written by hand, up to the marker, and a table for each dashboard."""
    start, marker, _ = DASHBOARDS_PAGE.read_text().partition("## The dashboards\n")
    return "\n".join([f"{start}{marker}", *(line for each in DASHBOARDS for line in _of_dashboard(each))])


def runbooks_page() -> str:
    """The whole page."""
    return "\n".join([_RUNBOOKS_START, *(line for alert in ALERTS for line in _of_alert(alert))])


def _of_dashboard(dashboard: Dashboard) -> Iterator[str]:
    yield from (f"### {dashboard.title}", "", dashboard.question, "")
    yield from ("| panel | what to conclude | no data without |", "| --- | --- | --- |")
    for panel in dashboard.panels:
        yield f"| {panel.title} | {panel.conclusion} | {panel.needs} |"
    yield ""


def _of_alert(alert: Alert) -> Iterator[str]:
    wait = "" if alert.pending.startswith("0") else f", after {alert.pending}"
    yield from (f"## {alert.name}", "", f"{alert.severity.capitalize()}{wait}, while this holds:", "")
    yield from ("```promql", alert.expression, "```", "", alert.meaning, "")
    yield from (f"{number}. {step}" for number, step in enumerate(alert.steps, start=1))
    yield ""


def main() -> None:
    DASHBOARDS_PAGE.write_text(dashboards_page())
    RUNBOOKS_PAGE.write_text(runbooks_page())


if __name__ == "__main__":
    main()
