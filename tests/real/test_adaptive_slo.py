"""A node whose online pods suffer, on a real API server: koord-manager takes its co-location back step by step, over a
restart, koord-scheduler prefers other nodes meanwhile, and all comes back once the node is calm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.adaptive_slo import AdaptiveSLOState, read_state
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.koord_command import explained_node
from tests.real.manager_cluster import NAMESPACE, create, prepare
from tests.real.manager_process import OURS, manager
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.quota_runs import our_scheduler
from tests.real.scheduler_configuration import LOAD_AWARE, write_configuration

_SECONDS: Final = 60.0
_FLAGS: Final = ("--enable-leader-election=false", "--feature-gates=WebhookFramework=false")
_CONFIGURATION: Final = {
    "colocation-config": {"enable": True, "updateTimeThresholdSeconds": 1},
    "resource-threshold-config": {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65}},
    "adaptive-slo-config": {
        "clusterStrategy": {"enable": True, "steps": 2, "holdSeconds": 1, "recoverSeconds": 2}
        | {"cpuSuppressFloorPercent": 45, "cpuReclaimFloorPercent": 30, "scoreFloorPercent": 0}
    },
}
_FINDING: Final = {"indicator": "cpu-pressure", "value": 42.1, "limit": 9.9}
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/namespaces/default/pods"
_SLO: Final = "/apis/slo.koordinator.sh/v1alpha1"
_PROFILE: Final = {
    **LOAD_AWARE,
    "plugins": {
        **LOAD_AWARE["plugins"],
        "score": {"enabled": [{"name": "LoadAwareScheduling", "weight": 100}]},
    },
}


@dataclass(slots=True)
class Observed:
    """At the levels 0, 2 and 0 again: the node that pods go to, the suppress threshold and batch CPU of n1."""

    chosen: list[str] = field(default_factory=list)
    thresholds: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    explanation: str = ""
    events: set[str] = field(default_factory=set)


class Nodes:
    """Two nodes without kubelets, of which n1 uses less."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._numbers = count()

    def build(self) -> None:
        data = {key: json.dumps(document) for key, document in _CONFIGURATION.items()}
        place = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        create(self._plane, place, {"metadata": {"name": "slo-controller-config"}, "data": data})
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        for name in ("n1", "n2"):
            status = {"capacity": amounts, "allocatable": amounts}
            create(self._plane, _NODES, {"metadata": {"name": name}, "status": status})

    def get(self, path: str) -> dict[str, Any]:
        status, document = self._plane.request("GET", path)
        return document if status == 200 else {}

    def _patched(self, path: str, document: dict[str, Any]) -> bool:
        return self._plane.request("PATCH", path, document)[0] == 200

    def report(self, *findings: dict[str, Any]) -> None:
        """Both nodes report; a pod of n1 suffers from what is found."""
        for name, cores in (("n1", "1"), ("n2", "4")):
            usage = {"resources": {"cpu": cores, "memory": "4Gi"}}
            web = {"namespace": "default", "name": "web", "podUsage": usage, "priority": "koord-prod"}
            if name == "n1":
                web["extensions"] = {"Object": {"interference": list(findings)}}
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            metric = {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
            status = {"status": {"updateTime": now, "nodeMetric": metric, "podsMetric": [web]}}
            until(partial(self._patched, f"{_SLO}/nodemetrics/{name}/status", status), _SECONDS, "the NodeMetric")

    def state(self) -> AdaptiveSLOState:
        annotations = self.get(f"{_NODES}/n1").get("metadata", {}).get("annotations", {})
        return read_state(annotations) or AdaptiveSLOState()

    def threshold(self) -> int:
        spec = self.get(f"{_SLO}/nodeslos/n1").get("spec", {})
        return int(spec.get("resourceUsedThresholdWithBE", {}).get("cpuSuppressThresholdPercent", 0))

    def batch_cpu(self) -> int:
        return int(self.get(f"{_NODES}/n1")["status"]["allocatable"].get("kubernetes.io/batch-cpu", 0))

    def chosen(self) -> str:
        """The node that a pod goes to."""
        name = f"probe-{next(self._numbers)}"
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
        spec = {"schedulerName": "koord-scheduler", "containers": [container]}
        create(self._plane, _PODS, {"metadata": {"name": name}, "spec": spec})
        place = f"{_PODS}/{name}"
        until(lambda: self.get(place)["spec"].get("nodeName"), _SECONDS, "a node for the pod")
        found = str(self.get(place)["spec"]["nodeName"])
        self._plane.request("DELETE", f"{place}?gracePeriodSeconds=0")
        return found

    def until_pods_go_to(self, node: str) -> None:
        """The scheduler hears of the Node a moment after the API server."""
        until(lambda: self.chosen() == node, _SECONDS, f"pods go to {node}")

    def events(self) -> set[str]:
        items = self.get("/apis/events.k8s.io/v1/namespaces/default/events").get("items", [])
        return {f"{each['reason']}: {each['note']}" for each in items if each["regarding"].get("name") == "n1"}

    def until_told(self, start: str) -> None:
        """Events are written a moment after what they are about, and may be lost when a program is stopped before."""
        until(lambda: any(each.startswith(start) for each in self.events()), _SECONDS, start)


def observe(nodes: Nodes, observed: Observed, level: int, node: str) -> None:
    until(lambda: nodes.state().level == level, _SECONDS, f"level {level}")
    wanted = {0: 65, 2: 45}[level]
    until(lambda: nodes.threshold() == wanted, _SECONDS, f"the threshold {wanted}")
    nodes.until_pods_go_to(node)
    observed.chosen.append(nodes.chosen())
    observed.thresholds.append(nodes.threshold())
    observed.batch.append(nodes.batch_cpu())


def played(plane: ControlPlane, folder: Path) -> Observed:
    nodes, observed = Nodes(plane), Observed()
    nodes.build()
    (port,) = free_ports(1)
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=_PROFILE)
    with our_scheduler(plane, configuration, folder / "scheduler.log", f"--port={port}"):
        with manager(OURS, plane.kubeconfig, folder / "first", arguments=_FLAGS) as running:
            nodes.report()
            until(lambda: nodes.batch_cpu(), _SECONDS, "batch CPU")
            observe(nodes, observed, 0, "n1")
            nodes.report(_FINDING)
            until(lambda: nodes.state().level == 1, _SECONDS, "level 1")
            nodes.until_told("SLOTightened: step 1 of 2")
            running.stop()
        with manager(OURS, plane.kubeconfig, folder / "second", arguments=_FLAGS) as running:
            nodes.report(_FINDING)
            observe(nodes, observed, 2, "n2")
            observed.explanation = explained_node(plane, "n1", scheduler=port, manager=running.metrics_port)
            nodes.report()
            observe(nodes, observed, 0, "n1")
            for event in ("SLOTightened: step 2 of 2", "SLORelaxed: back to step 0 of 2"):
                nodes.until_told(event)
            observed.events = nodes.events()
    return observed


@pytest.fixture(scope="module")
def observed(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("adaptive")
    with ControlPlane(real_programs.kubernetes, folder / "cluster") as plane:
        prepare(plane)
        yield played(plane, folder)


def test_batch_pods_are_suppressed_earlier_until_the_node_is_calm(observed: Observed) -> None:
    assert observed.thresholds == [65, 45, 65]


def test_less_is_lent_until_the_node_is_calm(observed: Observed) -> None:
    # 60 and 30 percent of 16 CPUs, less one of the system and one of the pod.
    assert observed.batch == [7600, 2800, 7600]


def test_pods_go_to_another_node_meanwhile(observed: Observed) -> None:
    assert observed.chosen == ["n1", "n2", "n1"]


def test_the_explanation_says_how_far_and_why(observed: Observed) -> None:
    assert "co-location is taken back to step 2 of 2 since" in observed.explanation
    assert "cpu-pressure of pod default/web is 42.1, above 9.9" in observed.explanation
    assert "cpuSuppressThresholdPercent 45 (configured: 65)" in observed.explanation
    assert "one step is taken back at" in observed.explanation


def test_each_step_is_an_event(observed: Observed) -> None:
    why = "cpu-pressure of pod default/web is 42.1, above 9.9"
    assert {f"SLOTightened: step 1 of 2: {why}", f"SLOTightened: step 2 of 2: {why}"} <= observed.events
