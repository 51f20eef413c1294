"""What is shown of Recommendations, and what ``--apply`` makes of pods and workloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, PODS, RECOMMENDATIONS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.meta import Object
from koordinator.api.recommendation import APPLIED, DETAILS, Recommendation
from koordinator.cli.main import main
from koordinator.cli.savings import savings_of, sums_of
from koordinator.cluster.server import ServerOptions
from koordinator.manager.recommender.limit_ranges import LIMIT_RANGES
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster
from tests.manager.recommender.pods import Document, container, pod


class Templated(Object):
    spec: dict[str, Any] = {}


NOW = datetime.now(UTC)
TEMPLATES = Kind("apps", "v1", "deployments", "Deployment", Templated)
_TIME = NOW.isoformat(timespec="seconds").replace("+00:00", "Z")


def _condition(low: bool) -> Document:
    said = {"status": str(low), "reason": "Told", "message": "too \x1bearly"}
    return {"type": "LowConfidence", "lastTransitionTime": _TIME, **said}


def document(
    name: str = "web", *, cpu: str = "250m", low: bool = False, containers: tuple[str, ...] = ("main",), **target: Any
) -> Document:
    chosen = target or {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {DETAILS: json.dumps({"main": {"confidence": 3.25}})},
        },
        "spec": {"target": chosen},
        "status": {
            "updateTime": _TIME,
            "podStatus": {
                "containerStatuses": [
                    {"containerName": each, "resources": {"cpu": cpu, "memory": "1Gi"}} for each in containers
                ]
            },
            "conditions": [_condition(low)],
        },
    }


def recommendation(name: str = "web", **more: Any) -> Recommendation:
    return convert(document(name, **more), Recommendation)


def test_sums_are_of_all_pods_that_go_by_a_recommendation() -> None:
    pods = [pod(f"web-{number}", container(cpu="1", memory="512Mi"), container("log", cpu="100m")) for number in (0, 1)]
    done = pod("done", container(cpu="1"), status={"phase": "Succeeded"})
    (found,) = savings_of([recommendation()], [*pods, done], NOW)

    assert (found.cpu.requested, found.cpu.recommended, found.cpu.saved) == (2200, 700, 1500)
    assert (found.memory.requested, found.memory.saved) == (1 << 30, -(1 << 30))
    assert found.confidence == 3.25


def test_what_must_not_be_used_is_in_no_sum() -> None:
    found = savings_of([recommendation("early", low=True)], [pod("web-0", container(cpu="1"))], NOW)

    assert "low confidence" in found[0].unusable
    assert sums_of(found)["cpu"].saved == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    # The pod's owner does not exist, for which a garbage collector would delete it.
    options = ServerOptions(garbage_collector=False)
    with explained_cluster(tmp_path_factory.mktemp("cluster"), options) as made:
        for definition in custom_resource_definitions():
            if definition["spec"]["names"]["kind"] == "Recommendation":
                made.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        sidecars = [{**containers[0], "name": "proxy", "restartPolicy": "Always"}]
        pod_spec = {"containers": containers, "initContainers": sidecars}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec}
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        made.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "u", "controller": True}
        metadata: Document = {"name": "web-0", "labels": {"app": "web", "pod-template-hash": "5d9"}}
        body = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"containers": containers}}
        made.create(PODS, body, "default")
        best_effort = {"containers": [{"name": "main", "image": "x"}]}
        body = {"metadata": {"name": "tiny-0", "labels": {"app": "tiny"}}, "spec": best_effort}
        made.create(PODS, body, "default")
        workload: Document = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}
        tiny: Document = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "tiny"}}}
        early = document("web-pods", low=True)
        early["metadata"]["labels"] = {"team": "shop"}
        for each in (document("web", containers=("main", "proxy"), **workload), document("tiny", **tiny), early):
            made.create(RECOMMENDATIONS, each, "default")
            made.set_status(RECOMMENDATIONS, each["metadata"]["name"], each["status"], "default")
        yield made


def koord(cluster: ExplainedCluster, *arguments: str) -> int:
    return main(["recommend", *arguments, f"--kubeconfig={cluster.kubeconfig}"])


def test_the_table_has_a_row_for_each_and_one_for_all(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(cluster, "-o", "wide") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert lines[0].startswith("recommendation target pods cpu now cpu then cpu saved memory now memory then")
    assert lines[1:] == [
        "default/tiny pods by label 1 0m 250m -250m 0Mi 1024Mi -1024Mi 3.2 Off main: 250m cpu, 1024Mi memory",
        "default/web deployment/web 1 1000m 250m 750m 1024Mi 1024Mi 0Mi 3.2 Off "
        "main: 250m cpu, 1024Mi memory; proxy: 250m cpu, 1024Mi memory",
        "default/web-pods pods by label 0 0m 0m 0m 0Mi 0Mi 0Mi 3.2 Off Recommendation default/web-pods is of low "
        "confidence: too ?early main: 250m cpu, 1024Mi memory",
        "all that may be used 2 1000m 500m 500m 1024Mi 2048Mi -1024Mi",
    ]


@pytest.mark.parametrize("name", ["web", "deploy/web", "Deployment/web", "default/web"])
def test_a_workload_is_named_as_people_name_it(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert koord(cluster, name.replace("Deployment", "deployment"), "-o", "name") == 0
    assert capsys.readouterr().out == "default/web\n"


def test_one_that_is_not_there_is_named(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert koord(cluster, "wbe", "-n", "default") == 3
    assert "there is no Recommendation for wbe in the namespace default" in capsys.readouterr().err


def test_without_an_answer_nothing_is_applied(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert koord(cluster, "web", "--apply") == 2
    said = capsys.readouterr()

    assert "pod default/web-0: main: cpu 1 -> 250m" in said.out
    assert "--yes says that it is" in said.err


def test_all_of_a_cluster_is_only_applied_where_that_is_said(cluster: ExplainedCluster) -> None:
    assert koord(cluster, "--apply", "--yes") == 2
    assert koord(cluster, "-A", "--apply", "--yes", "-o", "json") == 2
    assert koord(cluster, "--yes") == 2


def test_what_cannot_be_resized_is_named(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert koord(cluster, "tiny", "--apply", "--dry-run") == 1
    assert "pod default/tiny-0 stays as it is: its class of quality of service would change" in capsys.readouterr().out


def test_a_pod_goes_by_its_recommendation_whichever_are_selected(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(cluster, "-l", "team=shop", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]

    assert (found["recommendation"], found["pods"]) == ("default/web-pods", [])


def test_a_message_does_nothing_to_the_terminal(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert koord(cluster, "web-pods", "--apply", "--yes") == 1
    assert "is of low confidence: too ?early\n" in capsys.readouterr().out


def test_what_the_namespace_does_not_allow_is_not_tried(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = [{"type": "Container", "min": {"cpu": "400m"}}]
    cluster.create(LIMIT_RANGES, {"metadata": {"name": "least"}, "spec": {"limits": limits}}, "default")
    status = koord(cluster, "web", "--apply", "--dry-run")
    cluster.do(cluster.client.delete(LIMIT_RANGES, "least", "default"))

    assert status == 0
    assert "pod default/web-0: main: cpu 1 -> 400m" in capsys.readouterr().out


def test_applied_to_the_template_it_is_a_rollout(cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert koord(cluster, "web", "--apply", "--template", "--yes") == 0
    said = capsys.readouterr().out
    spec = cluster.do(cluster.client.get(TEMPLATES, "web", "default")).spec["template"]["spec"]

    assert "deployment default/web: its template: main: cpu 1 -> 250m; proxy: cpu 1 -> 250m" in said
    requests = {"requests": {"cpu": "250m", "memory": "1Gi"}}
    assert [each["resources"] for each in (*spec["containers"], *spec["initContainers"])] == [requests, requests]
    assert koord(cluster, "web", "--apply", "--template", "--yes") == 0
    assert "nothing is to be done" in capsys.readouterr().out


def test_applied_to_pods_it_is_a_resize_with_a_record(
    cluster: ExplainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(cluster, "web", "--apply", "--yes") == 0
    found = cluster.do(cluster.client.get(PODS, "web-0", "default"))

    assert capsys.readouterr().out.endswith("1 of 1 done\n")
    assert str(found.spec.containers[0].resources.requests["cpu"]) == "250m"
    assert json.loads(found.metadata.annotations[APPLIED])["recommendation"] == "web"
