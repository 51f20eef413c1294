"""Recommendations that act, on a real API server: at admission, by resizes in place, and within quotas."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.control_plane import ControlPlane
from tests.real.koord_command import on_one_line, run_koord
from tests.real.manager_cluster import NAMESPACE, create, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.polling import until
from tests.real.programs import RealPrograms

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
RECOMMENDATIONS = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/default/recommendations"
POLICY = "analysis.koordinator.sh/recommendation-policy"
APPLIED = "analysis.koordinator.sh/recommendation-applied"
FLAGS = (
    "--feature-gates=Recommender=true",
    "--enable-leader-election=false",
    "--recommender-interval=1s",
    "--recommender-resize-hold=2s",
    "--recommender-resize-watch=2s",
)
ROOT = Path(__file__).resolve().parents[2]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "u", "controller": True}


@pytest.fixture
def plane(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster") as made:
        prepare(made)
        yield made


def add_pod(plane: ControlPlane, name: str, resources: dict[str, Any]) -> None:
    labels = {"app": name, "pod-template-hash": "5d9"}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    metadata = {"name": name, "labels": labels, "ownerReferences": [OWNER]}
    create(plane, PODS, {"metadata": metadata, "spec": {"nodeName": "n1", "containers": containers}})


def report(plane: ControlPlane, name: str, **status: Any) -> None:
    """As the kubelet."""
    code, response = plane.request("PATCH", f"{PODS}/{name}/status", {"status": status})
    assert code == 200, response


def recommend(plane: ControlPlane, name: str, mode: str, target: dict[str, Any], **amounts: str) -> None:
    head = {"apiVersion": "analysis.koordinator.sh/v1alpha1", "kind": "Recommendation"}
    metadata = {"name": name, "annotations": {POLICY: json.dumps({"updateMode": mode})}}
    create(plane, RECOMMENDATIONS, {**head, "metadata": metadata, "spec": {"target": target}})
    status = {
        "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "podStatus": {"containerStatuses": [{"containerName": "main", "resources": amounts}]},
    }
    assert plane.request("PATCH", f"{RECOMMENDATIONS}/{name}/status", {"status": status})[0] == 200


def of_pods(app: str) -> dict[str, Any]:
    return {"type": "podSelector", "podSelector": {"matchLabels": {"app": app}}}


def pod(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plane.request("GET", f"{PODS}/{name}")[1]
    return found


def resources(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pod(plane, name)["spec"]["containers"][0]["resources"]
    return found


def record(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((pod(plane, name)["metadata"].get("annotations") or {}).get(APPLIED, "{}"))
    return found


def events(plane: ControlPlane, name: str) -> dict[str, str]:
    """Reason -> note."""
    listed = plane.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")[1]["items"]
    return {each["reason"]: each["note"] for each in listed if each["regarding"]["name"] == name}


def explained(plane: ControlPlane, name: str) -> str:
    return on_one_line(run_koord("explain", "pod", name, kubeconfig=plane.kubeconfig).stdout)


def ready(plane: ControlPlane, name: str, **status: Any) -> None:
    condition = {"type": "Ready", "status": "True"}
    report(plane, name, phase="Running", conditions=[condition], **status)


def test_new_pods_of_a_deployment_request_what_is_recommended(plane: ControlPlane, tmp_path: Path) -> None:
    install(plane)
    workload = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}
    recommend(plane, "web", "Initial", workload, cpu="250m", memory="512Mi")
    # Without regard to it, the API server would refuse the pod.
    least = {"limits": [{"type": "Container", "min": {"cpu": "300m"}}]}
    create(plane, f"{CORE}/limitranges", {"metadata": {"name": "least"}, "spec": least})
    with manager(OURS, plane.kubeconfig, tmp_path / "manager", arguments=FLAGS) as running:
        running.wait_ready()
        add_pod(plane, "web-1", {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}})
        found = resources(plane, "web-1")
        said = explained(plane, "web-1")
        assert running.stop() == 0

    assert found == {"requests": {"cpu": "300m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
    assert record(plane, "web-1")["containers"]["main"]["requests"]["cpu"] == {"before": "1", "after": "300m"}
    assert "cpu 1 -> 300m, memory 1Gi -> 512Mi, memory limit 2Gi -> 1Gi" in said
    assert events(plane, "web")["RecommendationApplied"] == "applied to new pods of default (1)"


def test_a_running_pod_is_resized_and_given_back_what_it_had_when_it_is_killed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    add_pod(plane, "api", {"requests": amounts, "limits": amounts})
    ready(plane, "api")
    recommend(plane, "api", "Auto", of_pods("api"), cpu="250m", memory="256Mi")
    arguments = (*FLAGS, "--recommender-resize-hold=12s", "--controllers=recommender")
    with recommender(plane, tmp_path, *arguments) as running:
        running.wait(lambda: resources(plane, "api")["limits"]["memory"] != "1Gi", "resize")
        lowered = resources(plane, "api")
        killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
        status = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 1, "lastState": killed}
        ready(plane, "api", containerStatuses=[status])
        running.wait(lambda: "undone" in record(plane, "api"), "undo")
        given_back = resources(plane, "api")
        running.wait(lambda: "RecommendationUndone" in events(plane, "api"), "event")
        said = explained(plane, "api")
        assert running.stop() == 0

    assert lowered == {"requests": {"cpu": "750m", "memory": "768Mi"}, "limits": {"cpu": "750m", "memory": "768Mi"}}
    assert given_back == {"requests": amounts, "limits": amounts}
    assert "OOMKilled" in record(plane, "api")["undone"]
    assert "RecommendationApplied" in said
    assert "has ended (OOMKilled) after its resources were lowered" in said


def test_a_resize_that_a_resource_quota_refuses_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    create(plane, f"{CORE}/resourcequotas", {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "1500m"}}})
    # As kube-controller-manager.
    used = {"status": {"hard": {"requests.cpu": "1500m"}, "used": {"requests.cpu": "0"}}}
    assert plane.request("PATCH", f"{CORE}/resourcequotas/team/status", used)[0] == 200
    add_pod(plane, "api", {"requests": {"cpu": "1"}})
    ready(plane, "api")
    recommend(plane, "api", "Auto", of_pods("api"), cpu="3")
    with recommender(plane, tmp_path, *FLAGS, "--controllers=recommender") as running:
        running.wait(lambda: "RecommendationNotApplied" in events(plane, "api"), "event")
        assert running.stop() == 0

    assert "exceeded quota: team" in events(plane, "api")["RecommendationNotApplied"]
    assert resources(plane, "api") == {"requests": {"cpu": "1"}}
    assert record(plane, "api") == {}


def test_it_is_applied_by_hand_to_pods_and_to_the_template(plane: ControlPlane) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    }
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    create(plane, deployments, {"metadata": {"name": "web"}, "spec": spec})
    add_pod(plane, "web-1", {"requests": {"cpu": "1"}})
    workload = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}
    recommend(plane, "web", "Off", workload, cpu="250m")
    shown = on_one_line(run_koord("recommend", "-n", "default", kubeconfig=plane.kubeconfig).stdout)
    apply = ("recommend", "deployment/web", "-n", "default", "--apply")
    looked = run_koord(*apply, "--dry-run", kubeconfig=plane.kubeconfig)
    before = resources(plane, "web-1")
    pods = run_koord(*apply, "--yes", kubeconfig=plane.kubeconfig)
    rollout = run_koord(*apply, "--template", "--yes", kubeconfig=plane.kubeconfig)
    (container,) = plane.request("GET", f"{deployments}/web")[1]["spec"]["template"]["spec"]["containers"]

    assert "default/web deployment/web 1 1000m 250m 750m" in shown
    assert (looked.returncode, pods.returncode, rollout.returncode) == (0, 0, 0)
    assert before == {"requests": {"cpu": "1"}}
    assert resources(plane, "web-1") == {"requests": {"cpu": "250m"}}
    assert record(plane, "web-1")["recommendation"] == "web"
    assert container["resources"] == {"requests": {"cpu": "250m"}}


def test_a_dry_run_changes_no_pod(plane: ControlPlane, tmp_path: Path) -> None:
    add_pod(plane, "api", {"requests": {"cpu": "1"}})
    ready(plane, "api")
    recommend(plane, "api", "Auto", of_pods("api"), cpu="3")
    with recommender(plane, tmp_path, *FLAGS, "--controllers=recommender", "--recommender-dry-run") as running:
        running.wait(lambda: "dry run: recommender: pod default/api: main: cpu 1 -> 2" in running.log_tail(), "line")
        assert running.stop() == 0

    assert resources(plane, "api") == {"requests": {"cpu": "1"}}
    assert record(plane, "api") == {}


def test_the_values_of_the_chart_for_the_recommender_alone_need_nothing_else(
    real_programs: RealPrograms, tmp_path: Path
) -> None:
    values = yaml.safe_load((ROOT / "charts/koordinator/recommender.yaml").read_text())
    flags = (f"--feature-gates={values['featureGates']}", *values["manager"]["extraArgs"])
    definition = (ROOT / "config/crd/analysis.koordinator.sh_recommendations.yaml").read_text()
    with ControlPlane(real_programs.kubernetes, tmp_path / "bare") as bare:
        create(bare, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(definition))
        create(bare, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        install(bare)
        workload = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}
        until(lambda: bare.request("GET", RECOMMENDATIONS)[0] == 200, 30, "the definition")
        recommend(bare, "web", "Initial", workload, cpu="250m")
        arguments = (*flags, "--enable-leader-election=false")
        with manager(OURS, bare.kubeconfig, tmp_path / "manager", arguments=arguments) as running:
            running.wait_ready()
            add_pod(bare, "web-1", {"requests": {"cpu": "1"}})
            assert running.stop() == 0
        assert resources(bare, "web-1") == {"requests": {"cpu": "250m"}}


def recommender(plane: ControlPlane, folder: Path, *flags: str) -> AbstractContextManager[ManagerProcess]:
    """Alone, without webhooks."""
    gates = "--feature-gates=Recommender=true,WebhookFramework=false"
    return manager(OURS, plane.kubeconfig, folder / "manager", arguments=(*flags, gates))
