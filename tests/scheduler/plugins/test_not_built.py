"""A pod that needs what is not built waits with a reason; others are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.not_built import STAND_INS
from koordinator.scheduler.plugins.table import BUILT_IN

NEEDY: dict[str, dict[str, Any]] = {
    "DeviceShare": {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"koordinator.sh/gpu-core": "50"}}}]}
    },
}
PLAIN = {
    "spec": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
    }
}


def rejection(plugin: str, document: dict[str, Any]) -> str:
    view = ClusterView(NodeColumns())
    result = STAND_INS[plugin](None, view).pre_filter(make_pod_info(convert(document, Pod), view.columns.resources))
    return result.rejection.text if result.rejection else ""


@pytest.mark.parametrize("plugin", NEEDY)
def test_a_pod_that_needs_the_plugin_is_told_so(plugin: str) -> None:
    assert rejection(plugin, NEEDY[plugin]).startswith(f"the pod needs plugin {plugin} (")


@pytest.mark.parametrize("plugin", NEEDY)
def test_other_pods_are_left_alone(plugin: str) -> None:
    assert rejection(plugin, PLAIN) == ""


def test_what_is_built_has_no_stand_in() -> None:
    assert not STAND_INS.keys() & BUILT_IN.keys()
