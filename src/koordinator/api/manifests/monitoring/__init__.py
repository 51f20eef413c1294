"""Every dashboard, in the order in which people are to look at them, and the files of the chart that are made of the
tables."""

from __future__ import annotations

from typing import Final

import yaml

from koordinator.api.manifests.monitoring.alerts import rule_groups
from koordinator.api.manifests.monitoring.colocation_panels import EARNINGS, NODES, SAFETY
from koordinator.api.manifests.monitoring.dashboards import grafana_text
from koordinator.api.manifests.monitoring.program_panels import COST, DESCHEDULING
from koordinator.api.manifests.monitoring.scheduling_panels import SCHEDULING

DASHBOARDS: Final = (SAFETY, EARNINGS, NODES, SCHEDULING, DESCHEDULING, COST)
_GENERATED: Final = (
    "# Written by `make manifests` from koordinator.api.manifests.monitoring.alerts; change that instead.\n"
)


def monitoring_files() -> dict[str, str]:
    """Path below the folder of the chart -> text: what Grafana imports, and the file of rules that Prometheus takes."""
    files = {f"dashboards/{dashboard.name}.json": grafana_text(dashboard) for dashboard in DASHBOARDS}
    files["alerts.yaml"] = _GENERATED + yaml.safe_dump(rule_groups(), sort_keys=False, width=120)
    return files
