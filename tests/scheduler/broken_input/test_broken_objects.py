"""Each object that an API server accepts and that says what cannot be, beside healthy pods of every sort and a healthy
node."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api import annotations as keys
from koordinator.api.kinds import DEVICES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES, PODS, RESERVATIONS, Kind
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import SchedulerConfiguration, parse_configuration
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.real_world.broken_documents import device_document, metric_document, topology_document
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS, BrokenObject, broken_objects
from tests.scheduler.fakes import make_node
from tests.scheduler.running_scheduler import MakeProfile, RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

_CHART: Final = (Path(__file__).parents[1] / "configuration/chart_profile.yaml").read_text()
_EVERY_USAGE: Final = """
              prodUsageThresholds: {cpu: 60}
              scoreAccordingProdUsage: true
              prodUsageIncludeSys: true
              allowCustomizeEstimation: true
              aggregated:
                usageThresholds: {cpu: 70, memory: 90}
                usageAggregationType: p95
                scoreAggregationType: p95
"""
_CONFIGURATIONS: Final = {
    "of the chart": _CHART,
    "that looks at every usage": _CHART.replace(
        "              usageThresholds:", f"{_EVERY_USAGE.rstrip()}\n              usageThresholds:"
    ),
}
_GOOD: Final = "good"
_CPUS: Final = 32
_GPU: Final = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def chart_profile(view: ClusterView, configuration: str = _CHART) -> Profile:
    return build_profiles(_parsed(configuration), BUILT_IN, view)[0]


@cache
def _parsed(configuration: str) -> SchedulerConfiguration:
    return parse_configuration(configuration, "scheduler.yaml")


def running_beside(api: SchedulerApi, profile: MakeProfile = chart_profile) -> RunningScheduler:
    return RunningScheduler(api, profile, lambda pod, view: make_pod_info(pod))


def healthy_pod(
    name: str,
    node: str = "",
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    gpu: bool = False,
) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi", **(_GPU if gpu else {})}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": "koord-prod",
            "priority": 9500,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }


_ALIGNED: Final = {keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
HEALTHY: Final = (
    healthy_pod("confined", _GOOD),
    healthy_pod("free"),
    healthy_pod("cpus", labels={"koordinator.sh/qosClass": "LSR"}),
    healthy_pod("aligned", annotations=_ALIGNED),
    healthy_pod("gpu", gpu=True),
)


def two_nodes(others: int = 0) -> SchedulerApi:
    """Both have CPUs in two NUMA nodes and a GPU; ``others`` have only CPUs and memory, and are cordoned."""
    api = SchedulerApi()
    for name in (_GOOD, BROKEN_NODE):
        for kind in (NODES, NODE_RESOURCE_TOPOLOGIES, DEVICES, NODE_METRICS):
            api.put(kind, healthy(kind, name))
    for number in range(others):
        api.store(make_node(f"other-{number}", unschedulable=True))
    return api


def healthy(kind: Kind[Any], name: str) -> dict[str, Any]:
    """The object of the kind about a healthy node."""
    if kind is NODES:
        amounts = {"cpu": str(_CPUS), "memory": "64Gi", "pods": "110", **_GPU}
        labels = {"kubernetes.io/hostname": name}
        return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}
    if kind is NODE_METRICS:
        document = metric_document({"cpu": "1", "memory": "1Gi"})
    elif kind is DEVICES:
        document = device_document(resources={**_GPU, "koordinator.sh/gpu-memory": "16Gi"})
    else:
        detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 16} for cpu in range(_CPUS)]
        annotations = {keys.CPU_TOPOLOGY: json.dumps({"detail": detail})}
        document = {**topology_document("16", annotations, ["node-0", "node-1"]), "topologyPolicies": ["None"]}
    return {**document, "metadata": {**document["metadata"], "name": name}}


def put(api: SchedulerApi, broken: BrokenObject) -> None:
    """A broken pod comes twice: it waits, and another scheduler has placed it."""
    document = broken.copy()
    if broken.kind is NODES:
        document["metadata"]["labels"] = {"kubernetes.io/hostname": BROKEN_NODE}
    api.put(broken.kind, document)
    if broken.kind is PODS:
        bound = broken.copy()
        bound["metadata"]["name"] = "bound"
        bound["spec"]["nodeName"] = BROKEN_NODE
        api.put(PODS, bound)


def take_away(api: SchedulerApi, broken: BrokenObject) -> None:
    metadata = broken.document["metadata"]
    if metadata["name"] == BROKEN_NODE and "namespace" not in metadata and broken.kind is not RESERVATIONS:
        api.put(broken.kind, healthy(broken.kind, BROKEN_NODE))
        return
    for name in ("broken", "bound") if broken.kind is PODS else ("broken",):
        if api.found(broken.kind, name, metadata.get("namespace", "")) is not None:
            api.remove(broken.kind, name, metadata.get("namespace", ""))


async def place_healthy(fixture: RunningScheduler) -> None:
    for pod in HEALTHY:
        fixture.api.put(PODS, pod)
    await fixture.until_idle(2)


def check(fixture: RunningScheduler, log: pytest.LogCaptureFixture, beside: str) -> None:
    placed, columns = fixture.api.placed(), fixture.scheduler.state.view.columns
    waiting = {pod["metadata"]["name"] for pod in HEALTHY} - set(placed)
    assert not waiting, f"{waiting} wait beside {beside}"
    assert placed["confined"] == _GOOD
    for row in columns.row_of.values():
        assert columns.requested[row, CPU] >= 0, beside
        assert 0 <= columns.allocatable[row, CPU] <= 1000 * _CPUS, beside
    errors = [record.getMessage() for record in log.records if record.levelno >= logging.ERROR]
    # What is wrong with a pod is an error of its own attempts.
    assert not [each for each in errors if not each.startswith("pod broken/")], beside


async def one_after_the_other(fixture: RunningScheduler, kind: Kind[Any], log: pytest.LogCaptureFixture) -> None:
    async with fixture.running():
        for broken in broken_objects(kind):
            put(fixture.api, broken)
            await fixture.until_idle(2)
            await place_healthy(fixture)
            check(fixture, log, broken.name)
            for pod in HEALTHY:
                fixture.api.remove(PODS, pod["metadata"]["name"], "default")
            take_away(fixture.api, broken)
            await fixture.until_idle()


_KINDS: Final = tuple(dict.fromkeys(broken.kind for broken in BROKEN_OBJECTS))
_CASES: Final = [(kind, "of the chart") for kind in _KINDS] + [
    (kind, "that looks at every usage") for kind in (NODE_METRICS, NODES)
]


@pytest.mark.parametrize(
    ("kind", "configuration"), _CASES, ids=lambda value: value if isinstance(value, str) else value.name
)
def test_healthy_pods_are_placed(kind: Kind[Any], configuration: str, caplog: pytest.LogCaptureFixture) -> None:
    fixture = running_beside(two_nodes(), partial(chart_profile, configuration=_CONFIGURATIONS[configuration]))
    asyncio.run(one_after_the_other(fixture, kind, caplog))


@pytest.mark.parametrize("configuration", _CONFIGURATIONS)
def test_healthy_pods_are_placed_beside_all_of_them(configuration: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of the objects about the node, the last of each kind is there at the end. With many nodes, plugins are called
    for all of them at once."""
    fixture = running_beside(two_nodes(others=30), partial(chart_profile, configuration=_CONFIGURATIONS[configuration]))

    async def all_at_once() -> None:
        async with fixture.running():
            for broken in BROKEN_OBJECTS:
                put(fixture.api, broken)
            await fixture.until_idle(2)
            await place_healthy(fixture)

    asyncio.run(all_at_once())
    check(fixture, caplog, "all")
