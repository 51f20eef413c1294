"""Hot spots are dispersed by what workloads will use, on a real API server: by koord-scheduler before pods are placed,
by koord-descheduler before their node is hot. The test is the recommender and the nodes' agents."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.timestamps import format_time
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.descheduling.cluster import DEFINITIONS, PODS, Cluster, NodeCase, PodCase
from tests.real.descheduling.running import Trial, configuration
from tests.real.installation import program
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import API_VERSION, LOAD_AWARE, write_configuration
from tests.recommending import recommendation

PATH: Final = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/default/recommendations"
SECONDS: Final = 60.0
KOORD: Final = [sys.executable, "-m", "koordinator.cli.main"]
BY_RECOMMENDATION: Final = {
    "apiVersion": API_VERSION,
    "kind": "LoadAwareSchedulingArgs",
    "estimator": "recommendedUsageEstimator",
}
PROFILE: Final = {**LOAD_AWARE, "pluginConfig": [{"name": "LoadAwareScheduling", "args": BY_RECOMMENDATION}]}
NODES: Final = [NodeCase("hot"), NodeCase("cool")]
QUIET: Final = [PodCase(f"web-{number}", "hot", "100m") for number in range(4)]
"""Pods that use little at the moment."""


@pytest.fixture
def cluster(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Cluster]:
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster") as plane:
        made = Cluster(plane)
        made.install()
        yield made


def recommend(plane: ControlPlane, cpu: str, *, low_confidence: bool = False) -> None:
    """As the recommender does, for the pods with the label app=web."""
    new = recommendation("web", {"main": {"cpu": cpu}}, datetime.now(UTC), low_confidence=low_confidence)
    document = {**to_document(new), "apiVersion": "analysis.koordinator.sh/v1alpha1", "kind": "Recommendation"}
    for condition in document["status"]["conditions"]:
        condition["lastTransitionTime"] = format_time(datetime.now(UTC))
    plane.request("POST", PATH, {**document, "metadata": {"name": "web"}})
    code, response = plane.request("PATCH", f"{PATH}/web/status", {"status": document["status"]})
    assert code == 200, response.get("message")


def explained(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(*arguments, "-o", "json"))
    return found


def printed(*arguments: str) -> str:
    """By ``koord explain``."""
    done = subprocess.run([*KOORD, "explain", *arguments], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


@contextmanager
def scheduler(plane: ControlPlane, folder: Path) -> Iterator[tuple[str, Path]]:
    """With its flag for ``koord``, and its log."""
    written = write_configuration(folder / "scheduler.yaml", profile=PROFILE, podMaxBackoffSeconds=1)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "koordinator.scheduler", f"--config={written}", f"--kubeconfig={plane.kubeconfig}"]
    with program([*command, f"--port={port}"], folder / "log"):
        yield f"--scheduler=http://127.0.0.1:{port}", folder / "log"


def pending(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "2"}}}
    spec = {"schedulerName": "koord-scheduler", "containers": [container]}
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def state(plane: ControlPlane, name: str) -> str:
    """The pod's node, or why it has none."""
    pod = plane.request("GET", f"{PODS}/{name}")[1]
    conditions: list[Mapping[str, str]] = pod.get("status", {}).get("conditions", [])
    messages = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
    return str(pod["spec"].get("nodeName") or "".join(messages))


def wait_for(plane: ControlPlane, name: str, text: str) -> None:
    until(lambda: text in state(plane, name), SECONDS, f"{name} on {text}")


def test_the_scheduler_places_by_what_is_recommended(cluster: Cluster, tmp_path: Path) -> None:
    """A node of four cores, of which one is used: two more requested cores count as 1.7, which is beyond 65 percent."""
    plane = cluster.plane
    cluster.set_up([NodeCase("n1", system_cpu="1")], [])
    usage = {"nodeUsage": {"resources": {"cpu": "1", "memory": "0"}}}
    plane.request("PATCH", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n1/status", {"status": {"nodeMetric": usage}})
    with scheduler(plane, tmp_path) as (flag, _):
        plane.request("POST", PODS, pending("web-0"))
        wait_for(plane, "web-0", "cpu usage exceed threshold")
        said = explained("pod", "web-0", flag)["facts"]["LoadAwareScheduling"]
        assert said[0].endswith("by its requests: no Recommendation is about it.")
        recommend(plane, "500m", low_confidence=True)
        recommend(plane, "500m")
        wait_for(plane, "web-0", "n1")
        said = explained("pod", "web-0", flag)["facts"]["LoadAwareScheduling"]
        assert said == ["It is expected to use 0.5 cores of cpu and 200Mi of memory, by Recommendation default/web."]
        recommend(plane, "1500m")
        plane.request("POST", PODS, pending("web-1"))
        wait_for(plane, "web-1", "cpu usage exceed threshold")
        (node,) = explained("pod", "web-1", flag)["closestNodes"]
        assert "by Recommendation default/web" in node["lacks"][0]["details"][0]


def test_a_cluster_without_recommendations_is_scheduled_by_factors(cluster: Cluster, tmp_path: Path) -> None:
    plane = cluster.plane
    definition = f"{DEFINITIONS}/recommendations.analysis.koordinator.sh"
    assert plane.request("DELETE", definition)[0] == 200
    until(lambda: plane.request("GET", definition)[0] == 404, SECONDS)
    cluster.set_up([NodeCase("n1")], [])
    plane.request("POST", PODS, pending("web-0"))
    with scheduler(plane, tmp_path) as (_, log):
        wait_for(plane, "web-0", "n1")
        assert sum("recommendations" in line for line in log.read_text().splitlines()) == 1


def expecting(**settings: Any) -> dict[str, Any]:
    args = {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 50},
        "expectedHighThresholds": {"cpu": 50},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    }
    return configuration({"balance": ["LowNodeLoad"]}, {"LowNodeLoad": args}, **settings)


def test_the_descheduler_disperses_a_node_before_it_is_hot(cluster: Cluster, tmp_path: Path) -> None:
    def prepare() -> None:
        recommend(cluster.plane, "600m")

    outcome = Trial(cluster, NODES, QUIET, expecting(), prepare).ours(tmp_path / "ours")
    reasons = [reason for _, reason in outcome.evicted.values()]
    assert reasons == [
        "node is overutilized, node expected cpu usage(60.00%)>threshold(50.00%); by Recommendation default/web, the "
        "pod is expected to use cpu 600m"
    ]
    assert outcome.left == outcome.evicted.keys()


def test_what_it_expects_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    cluster.set_up(NODES, QUIET)
    recommend(cluster.plane, "600m")
    settings = expecting(dryRun=True, deschedulingInterval="1h")
    connection = {"kubeconfig": str(cluster.plane.kubeconfig)}
    written = tmp_path / "descheduler.yaml"
    written.write_text(json.dumps({**settings, "clientConnection": connection}))
    command = [sys.executable, "-m", "koordinator.descheduler", f"--config={written}"]
    flag = f"--descheduler=http://{settings['healthzBindAddress']}"
    with program(command, tmp_path / "log"):
        until(lambda: "Descheduling cycle done" in (tmp_path / "log").read_text(), SECONDS)
        document = explained("rebalance", flag)
        text = printed("rebalance", flag, "-o", "wide")
    (hot,) = document["hot"]
    assert (hot["usage"], len(document["evictions"])) == ({"expected cpu": 60.0}, 1)
    said = [each["text"] for each in document["remarks"]]
    assert any("expected cpu is with the pods of Recommendation default/web at their peak" in each for each in said)
    assert "expected cpu 60.00%" in text
