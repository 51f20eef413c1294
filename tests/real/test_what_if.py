"""``koord what-if`` on a real cluster says what then really happens, and needs no right but to list.

The same change is made twice: on a snapshot, by somebody whose role may list and nothing else, and then on the
cluster, where koord-scheduler and Kubernetes' own controllers do what they do. Nodes differ in size, so that no two
have the same score: the scheduler would choose among those at random.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.local_cluster.programs import shipped_file
from tests.docs.pages import ROOT
from tests.real.control_plane import ControlPlane
from tests.real.koord_command import run_koord
from tests.real.polling import until
from tests.real.programs import RealPrograms

Document = dict[str, Any]
PLANNER = "planner"
CORE, APPS = "/api/v1", "/apis/apps/v1/namespaces/default"
PODS = f"{CORE}/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SIZES = {"n1": 5, "n2": 7, "n3": 9, "n4": 12, "n5": 16}
SECONDS = 60.0


def _template(app: str, cpu: str, **spec: Any) -> Document:
    container = {
        "name": "main",
        "image": "example.com/main:1",
        "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
    }
    # Without grace, since no kubelet is there to end it.
    common = {"schedulerName": "koord-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"labels": {"app": app}}, "spec": {**common, **spec}}


def _deployment(name: str, replicas: int, cpu: str) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _template(name, cpu),
        },
    }


def _pod(name: str, cpu: str, **spec: Any) -> Document:
    template = _template(name, cpu, **spec)
    template["metadata"] |= {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", **template}


class Planned:
    """A real cluster, and what somebody who may only list learns of it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self._folder = folder
        self._kubeconfig = plane.kubeconfig_for(PLANNER)

    def create(self, path: str, document: Document) -> None:
        code, response = self.plane.request("POST", path, document)
        assert code == 201, response

    def pods(self, app: str = "") -> list[Document]:
        code, response = self.plane.request("GET", f"{PODS}?labelSelector={f'app%3D{app}' if app else ''}")
        assert code == 200, response
        return list(response["items"])

    def places(self, app: str) -> Counter[str]:
        """Node -> how many of its pods; "" for none."""
        return Counter(pod["spec"].get("nodeName", "") for pod in self.pods(app))

    def wait_placed(self, app: str, count: int) -> None:
        until(lambda: self.places(app).total() == count and not self.places(app)[""], SECONDS, f"{app} to be placed")

    def what_if(self, *arguments: str, status: int = 0) -> Document:
        done = run_koord("what-if", *arguments, f"--kubeconfig={self._kubeconfig}", "-o=json")
        assert done.returncode == status, done.stderr
        document: Document = json.loads(done.stdout)
        return document

    def file(self, name: str, *documents: Document) -> str:
        path = self._folder / name
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planned]:
    folder = tmp_path_factory.mktemp("what-if")
    plane = ControlPlane(
        real_programs.kubernetes, folder / "plane", authorization_mode="RBAC", tokens={PLANNER: (PLANNER, ())}
    )
    with ExitStack() as stack:
        stack.enter_context(plane)
        planned = Planned(plane, folder)
        _install(planned)
        configuration = shipped_file("scheduler.yaml")
        controllers = "deployment-controller,replicaset-controller"
        for name, command in (
            (
                "controllers",
                [
                    str(real_programs.kubernetes / "kube-controller-manager"),
                    f"--kubeconfig={plane.kubeconfig}",
                    f"--controllers={controllers}",
                    "--leader-elect=false",
                    "--secure-port=0",
                ],
            ),
            (
                "scheduler",
                [
                    *(sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}"),
                    *(f"--kubeconfig={plane.kubeconfig}", "--port=0"),
                ],
            ),
        ):
            stack.enter_context(_running(command, folder / f"{name}.log"))
        for document in (_deployment("base", 7, "2"), _deployment("small", 5, "500m")):
            planned.create(f"{APPS}/deployments", document)
        planned.wait_placed("base", 7)
        planned.wait_placed("small", 5)
        low = _pod("low", "3", nodeSelector={"name": "n5"}, priorityClassName="low")
        planned.create(PODS, low)
        planned.wait_placed("low", 1)
        yield planned


def _install(planned: Planned) -> None:
    for definition in custom_resource_definitions():
        planned.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    for document in yaml.safe_load_all((ROOT / "docs/examples/what-if-role.yaml").read_text()):
        planned.create(f"{RBAC}/clusterroles", document)
    binding = {
        "metadata": {"name": "what-if"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "koord-what-if"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLANNER}],
    }
    planned.create(f"{RBAC}/clusterrolebindings", binding)
    planned.create(f"{CORE}/namespaces", {"metadata": {"name": "koordinator-system"}})
    data = {"koord-scheduler-config": shipped_file("scheduler.yaml").read_text()}
    config_map = {"metadata": {"name": "koord-scheduler-config"}, "data": data}
    planned.create(f"{CORE}/namespaces/koordinator-system/configmaps", config_map)
    for name, value in (("low", -10), ("high", 1000)):
        planned.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    for name, cpu in SIZES.items():
        amounts = {"cpu": str(cpu), "memory": f"{3 * cpu + 1}Gi", "pods": "50"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "name": name}}
        status = {"capacity": amounts, "allocatable": amounts}
        planned.create(f"{CORE}/nodes", {"metadata": metadata, "status": status})


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
    finally:
        process.terminate()
        process.wait(30)


def _predicted(outcome: Document, workload: str) -> Counter[str]:
    placed = [each for each in outcome["placed"] if each["workload"] == workload]
    # Of several nodes with the same score the scheduler takes any, and then nothing could be compared.
    assert {each["nodesWithTheSameScore"] for each in placed} <= {0, 1}, placed
    return Counter(each["node"] for each in placed)


def test_what_is_applied_goes_where_the_what_if_said(cluster: Planned) -> None:
    new = _deployment("new", 4, "1500m")
    outcome = cluster.what_if("apply", "-f", cluster.file("new.yaml", new))
    assert outcome["scheduler"]["configuration"] == "ConfigMap koordinator-system/koord-scheduler-config"
    assert outcome["snapshot"]["missing"] == {}
    assert outcome["snapshot"]["nodes"] == len(SIZES)
    assert not cluster.pods("new")

    cluster.create(f"{APPS}/deployments", new)
    cluster.wait_placed("new", 4)
    assert cluster.places("new") == _predicted(outcome, "deployment default/new")


def test_those_are_evicted_whom_the_what_if_named(cluster: Planned) -> None:
    used = sum(_cpu(pod) for pod in cluster.pods() if pod["spec"].get("nodeName") == "n5")
    # One core more than is free: enough if the one unimportant pod goes, which has 3.
    wanted = f"{1000 * SIZES['n5'] - used + 1000}m"
    urgent = _pod("urgent", wanted, nodeSelector={"name": "n5"}, priorityClassName="high")
    outcome = cluster.what_if("apply", "-f", cluster.file("urgent.yaml", urgent))
    assert [(each["pod"], each["by"]) for each in outcome["departed"]] == [("default/low", "default/urgent")]
    assert _predicted(outcome, "pod default/urgent") == {"n5": 1}

    cluster.create(PODS, urgent)
    cluster.wait_placed("urgent", 1)
    assert cluster.places("urgent") == {"n5": 1}
    assert not cluster.pods("low")


def _cpu(pod: Document) -> int:
    text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(text.removesuffix("m")) if text.endswith("m") else 1000 * int(text)


def test_the_pods_of_a_drained_node_go_where_the_what_if_said(cluster: Planned) -> None:
    before = {app: cluster.places(app) for app in ("base", "small", "new")}
    assert before["base"]["n4"]
    outcome = cluster.what_if("drain", "n4")
    assert outcome["blocked"] == []
    moved = {app: _predicted(outcome, f"deployment default/{app}") for app in before}
    pending = sum(len(group["pods"]) for group in outcome["pending"])

    code, response = cluster.plane.request("GET", f"{CORE}/nodes/n4")
    assert code == 200
    code, _ = cluster.plane.request("PUT", f"{CORE}/nodes/n4", {**response, "spec": {"unschedulable": True}})
    assert code == 200
    # In the order in which kubectl lists them, and the what-if evicts them.
    leaving = [pod for pod in cluster.pods() if pod["spec"].get("nodeName") == "n4"]
    for pod in leaving:
        name = pod["metadata"]["name"]
        code, response = cluster.plane.request("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})
        assert code == 201, response
    counts = {app: places.total() for app, places in before.items()}
    until(
        lambda: (
            all(cluster.places(app).total() == counts[app] for app in before)
            and sum(cluster.places(app)[""] for app in before) == pending
            and not any(cluster.places(app)["n4"] for app in before)
        ),
        SECONDS,
        "the pods to move",
    )
    for app, places in before.items():
        del places["n4"]
        after = cluster.places(app)
        del after[""]
        assert after == places + moved[app], app


def test_who_may_not_list_is_told_what_is_needed(cluster: Planned) -> None:
    """And a role that may list can do nothing else."""
    code, _ = cluster.plane.request("DELETE", f"{RBAC}/clusterrolebindings/what-if")
    assert code == 200
    kubeconfig = cluster.plane.kubeconfig_for(PLANNER)

    def refused() -> bool:
        done = run_koord("what-if", "drain", "n1", f"--kubeconfig={kubeconfig}")
        return done.returncode == 4 and "docs/examples/what-if-role.yaml" in done.stderr

    until(refused, SECONDS, "the right to be gone")
