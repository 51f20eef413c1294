"""koord-free pods on a real API server: the webhook renames what they request, koord-manager computes what all others
leave of a node, koord-scheduler places them there, and without the gate nothing of it is left on the node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.koord_command import explained_node
from tests.real.manager_cluster import NAMESPACE, PROFILES, create, gates, install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.quota_runs import our_scheduler
from tests.real.scheduler_configuration import write_configuration

_SECONDS: Final = 60.0
_FLAGS: Final = ("--enable-leader-election=false", f"{gates()},FreeResource=true")
_WITHOUT: Final = ("--enable-leader-election=false", gates())
_FREE_CPU: Final = "kubernetes.io/free-cpu"
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/namespaces/default/pods"
_METRICS: Final = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
_PROFILE: Final = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "free"},
    "spec": {
        "selector": {"matchLabels": {"kind": "scan"}},
        "qosClass": "BE",
        "priorityClassName": "koord-free",
        "schedulerName": "koord-scheduler",
    },
}


@dataclass(slots=True)
class Observed:
    left: int = 0
    requested: dict[str, str] = field(default_factory=dict)
    recorded: str = ""
    fits: str = ""
    too_much: str = ""
    explanation: str = ""
    left_without_the_gate: list[str] = field(default_factory=list)


class Cluster:
    """One node without a kubelet, on which a prod and a batch pod are measured."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def build(self) -> None:
        data = {"colocation-config": json.dumps({"enable": True, "updateTimeThresholdSeconds": 1})}
        place = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        create(self._plane, place, {"metadata": {"name": "slo-controller-config"}, "data": data})
        document = {"metadata": {"name": "koord-free"}, "value": 3000}
        create(self._plane, "/apis/scheduling.k8s.io/v1/priorityclasses", document)
        create(self._plane, PROFILES, _PROFILE)
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        create(
            self._plane, _NODES, {"metadata": {"name": "n1"}, "status": {"capacity": amounts, "allocatable": amounts}}
        )

    def get(self, path: str) -> dict[str, Any]:
        status, document = self._plane.request("GET", path)
        return document if status == 200 else {}

    def _patched(self, path: str, document: dict[str, Any]) -> bool:
        return self._plane.request("PATCH", path, document)[0] == 200

    def report(self) -> None:
        pods = [
            {"namespace": "default", "name": f"koord-{name}", "priority": f"koord-{name}"}
            | {"podUsage": {"resources": {"cpu": cores, "memory": "4Gi"}}}
            for name, cores in (("prod", "3"), ("batch", "2"))
        ]
        usage = {"nodeUsage": {"resources": {"cpu": "6", "memory": "10Gi"}}}
        system = {"systemUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"status": {"updateTime": now, "nodeMetric": {**usage, **system}, "podsMetric": pods}}
        until(partial(self._patched, f"{_METRICS}/n1/status", status), _SECONDS, "the NodeMetric")

    def allocatable(self) -> dict[str, str]:
        found: dict[str, str] = self.get(f"{_NODES}/n1")["status"]["allocatable"]
        return found

    def create(self, name: str, cpu: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
        spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        create(self._plane, _PODS, {"metadata": {"name": name, "labels": {"kind": "scan"}}, "spec": spec})
        return self.get(f"{_PODS}/{name}")

    def node_of(self, name: str) -> str:
        return str(self.get(f"{_PODS}/{name}")["spec"].get("nodeName", ""))

    def message_of(self, name: str) -> str:
        conditions = self.get(f"{_PODS}/{name}").get("status", {}).get("conditions", [])
        return next((str(each["message"]) for each in conditions if each.get("reason") == "Unschedulable"), "")


def played(plane: ControlPlane, folder: Path) -> Observed:
    cluster, observed = Cluster(plane), Observed()
    cluster.build()
    (port,) = free_ports(1)
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=plane.kubeconfig)
    install(plane)
    with our_scheduler(plane, configuration, folder / "scheduler.log", f"--port={port}"):
        with manager(OURS, plane.kubeconfig, folder / "on", arguments=_FLAGS) as running:
            running.wait_ready()
            cluster.report()
            until(lambda: _FREE_CPU in cluster.allocatable(), _SECONDS, "free CPU")
            observed.left = int(cluster.allocatable()[_FREE_CPU])
            pod = cluster.create("fits", "2500m")
            observed.requested = pod["spec"]["containers"][0]["resources"]["requests"]
            observed.recorded = pod["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"]
            until(lambda: cluster.node_of("fits"), _SECONDS, "a node for the pod")
            observed.fits = cluster.node_of("fits")
            cluster.create("too-much", "2500m")
            until(lambda: cluster.message_of("too-much"), _SECONDS, "the reason")
            observed.too_much = cluster.message_of("too-much")
            observed.explanation = explained_node(plane, "n1", scheduler=port, manager=running.metrics_port)
            running.stop()
        with manager(OURS, plane.kubeconfig, folder / "off", arguments=_WITHOUT):
            until(lambda: _FREE_CPU not in cluster.allocatable(), _SECONDS, "the end of free CPU")
            observed.left_without_the_gate = sorted(cluster.allocatable())
    return observed


@pytest.fixture(scope="module")
def observed(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("free")
    with ControlPlane(real_programs.kubernetes, folder / "cluster") as plane:
        prepare(plane)
        yield played(plane, folder)


def test_a_node_offers_what_all_others_leave(observed: Observed) -> None:
    # 60 percent of 16 CPUs, less one of the system, three of the prod pod and two of the batch pod.
    assert observed.left == 3600


def test_the_webhook_renames_what_a_free_pod_requests(observed: Observed) -> None:
    assert observed.requested == {"kubernetes.io/free-cpu": "2500", "kubernetes.io/free-memory": "1Gi"}
    assert '"kubernetes.io/free-cpu":"2500"' in observed.recorded


def test_the_scheduler_counts_them(observed: Observed) -> None:
    assert observed.fits == "n1"
    assert "Insufficient kubernetes.io/free-cpu" in observed.too_much


def test_each_term_is_explained(observed: Observed) -> None:
    assert "free-cpu" in observed.explanation
    assert "batch pod usage" in observed.explanation


def test_without_the_gate_nothing_is_left(observed: Observed) -> None:
    mid_and_batch = [f"kubernetes.io/{class_}-{name}" for class_ in ("batch", "mid") for name in ("cpu", "memory")]
    native = {"cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi"}
    assert [name for name in observed.left_without_the_gate if name not in native] == mid_and_batch
