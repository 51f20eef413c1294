"""The recommender on a real API server: what it has learned survives a kill; history comes from a real Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import create, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.polling import until
from tests.real.programs import RealPrograms

CORE = "/api/v1"
PODS = f"{CORE}/namespaces/default/pods"
METRIC = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
RECOMMENDATIONS = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/default/recommendations"
CHECKPOINT = f"{CORE}/namespaces/default/configmaps/koord-recommendation-web"
FLAGS = (
    "--feature-gates=Recommender=true,WebhookFramework=false",
    "--enable-leader-election=false",
    "--controllers=recommender",
    "--recommender-interval=1s",
    "--recommender-checkpoint-interval=1s",
)
LABELS = {"app": "web"}
HOUR = 3600


@pytest.fixture
def plane(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster") as made:
        prepare(made)
        yield made


def add_workload(plane: ControlPlane) -> None:
    """A StatefulSet of one pod on a node, and a Recommendation for it."""
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {"serviceName": "web", "selector": {"matchLabels": LABELS}, "template": template}
    sets = "/apis/apps/v1/namespaces/default/statefulsets"
    create(plane, sets, {"metadata": {"name": "web"}, "spec": spec})
    uid = plane.request("GET", f"{sets}/web")[1]["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": True}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": "web-0", "labels": LABELS, "ownerReferences": [owner]}
    create(plane, PODS, {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}})
    target = {"type": "workload", "workload": {"kind": "StatefulSet", "name": "web"}}
    head = {"apiVersion": "analysis.koordinator.sh/v1alpha1", "kind": "Recommendation"}
    create(plane, RECOMMENDATIONS, {**head, "metadata": {"name": "web"}, "spec": {"target": target}})


def report(plane: ControlPlane, cpu: str) -> None:
    """The usage of the pod, as the node's agent would report it now."""
    head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    plane.request("POST", METRIC, {**head, "metadata": {"name": "n1"}})
    pod = {"name": "web-0", "namespace": "default", "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}
    status = {"updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "podsMetric": [pod]}
    code, response = plane.request("PATCH", f"{METRIC}/n1/status", {"status": status})
    assert code == 200, response


def recommended(plane: ControlPlane) -> dict[str, str]:
    found = plane.request("GET", f"{RECOMMENDATIONS}/web")[1].get("status", {}).get("podStatus", {})
    return {name: amount for each in found.get("containerStatuses", ()) for name, amount in each["resources"].items()}


def checkpoint(plane: ControlPlane) -> dict[str, Any]:
    """Of the container; empty before there is one."""
    code, found = plane.request("GET", CHECKPOINT)
    model: dict[str, Any] = json.loads(found["data"]["main"]) if code == 200 else {}
    return model


def stored(plane: ControlPlane) -> int:
    """The number of samples in the checkpoint."""
    return int(checkpoint(plane).get("totalSamplesCount", 0))


def one_more_sample(plane: ControlPlane, running: ManagerProcess) -> None:
    before = stored(plane)

    def is_stored() -> bool:
        report(plane, "500m")
        return stored(plane) > before

    running.wait(is_stored, "further sample in the checkpoint")


def test_a_killed_recommender_goes_on_where_its_checkpoint_is(plane: ControlPlane, tmp_path: Path) -> None:
    add_workload(plane)
    with manager(OURS, plane.kubeconfig, tmp_path / "first", arguments=FLAGS) as running:
        one_more_sample(plane, running)
        one_more_sample(plane, running)
        running.wait(lambda: recommended(plane) == {"cpu": "582m", "memory": "1182Mi"}, "recommendation")
        running.process.kill()
    before = checkpoint(plane)
    with manager(OURS, plane.kubeconfig, tmp_path / "second", arguments=FLAGS) as running:
        one_more_sample(plane, running)
        assert "1 checkpoints read" in running.log.read_text()
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
    assert checkpoint(plane)["firstSampleStart"] == before["firstSampleStart"]


def test_a_deleted_recommendation_takes_its_checkpoint_with_it(plane: ControlPlane, tmp_path: Path) -> None:
    add_workload(plane)
    with manager(OURS, plane.kubeconfig, tmp_path / "manager", arguments=FLAGS) as running:
        one_more_sample(plane, running)
    owner = plane.request("GET", CHECKPOINT)[1]["metadata"]["ownerReferences"]
    uid = plane.request("GET", f"{RECOMMENDATIONS}/web")[1]["metadata"]["uid"]
    # The API server's garbage collector, which runs in kube-controller-manager, goes by this.
    assert [(each["kind"], each["name"], each["uid"]) for each in owner] == [("Recommendation", "web", uid)]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus server with the usage of the pod in the last two days."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("it needs prometheus and promtool: apt-get install prometheus")
    with started_prometheus(tmp_path) as address:
        yield address


@contextmanager
def started_prometheus(folder: Path) -> Iterator[str]:
    samples, data = folder / "samples", folder / "data"
    samples.write_text("\n".join((*openmetrics(int(time.time())), "# EOF", "")))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", samples, data], check=True, capture_output=True
    )
    (port,) = free_ports(1)
    configuration = folder / "prometheus.yml"
    configuration.write_text("{}")
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=30d",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: b"ready to receive" in (folder / "prometheus.log").read_bytes(), 30, "Prometheus")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def openmetrics(now: int) -> Sequence[str]:
    """Two cores and 2 GiB of a container for 48 hours, every five minutes, and as much of a pod that is not its own."""
    lines = []
    for metric, kind, start, rate in (
        ("container_cpu_usage_seconds", "counter", 0.0, 2.0),
        ("container_memory_working_set_bytes", "gauge", 2.0 * (1 << 30), 0.0),
    ):
        lines.append(f"# TYPE {metric} {kind}")
        name = f"{metric}_total" if kind == "counter" else metric
        for pod in ("web-0", "website-0"):
            labels = f'namespace="default",pod="{pod}",container="main"'
            scale = 1 if pod == "web-0" else 3
            for seconds in range(0, 48 * HOUR, 300):
                value = (start + rate * seconds) * scale
                lines.append(f"{name}{{{labels}}} {value} {now - 48 * HOUR + seconds}")
    return lines


def test_history_is_read_from_prometheus(plane: ControlPlane, prometheus: str, tmp_path: Path) -> None:
    add_workload(plane)
    flags = (*FLAGS, f"--recommender-prometheus-address={prometheus}")
    with manager(OURS, plane.kubeconfig, tmp_path / "manager", arguments=flags) as running:
        # Two cores and 2 GiB, to the end of their buckets, and the margin.
        running.wait(lambda: recommended(plane).get("cpu", "") != "", "recommendation")
        found = plane.request("GET", f"{RECOMMENDATIONS}/web")[1]
        running.wait(lambda: stored(plane) > 0, "checkpoint")
    amounts = recommended(plane)
    assert 2300 <= int(amounts["cpu"].removesuffix("m")) <= 2450, amounts
    assert 2355 <= int(amounts["memory"].removesuffix("Mi")) <= 2480, amounts
    conditions: dict[str, Any] = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions["LowConfidence"] == "False"
    assert conditions["FetchingHistory"] == "False"
