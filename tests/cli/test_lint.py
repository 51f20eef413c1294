"""``koord lint``: what an API server takes in silence is named with its line and with what was meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, ELASTIC_QUOTAS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cli.main import main
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

Captured = pytest.CaptureFixture[str]
CHECKOUT = Path(__file__).parents[2]
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
  {member}:
    {key}: "{value}"
spec:
  containers: [{{name: a}}]
"""
CONFIGURATION = """\
kind: ConfigMap
metadata: {{name: slo-controller-config}}
data:
  {key}: |
    {{
      {text}
    }}
"""
QUOTA = "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\nmetadata: {name: vision}\nspec:\n"
PROFILE = "apiVersion: config.koordinator.sh/v1alpha1\nkind: ClusterColocationProfile\nmetadata: {name: a}\nspec:\n"
SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
DESCHEDULER = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"


def pod(key: str, value: str, member: str = "labels") -> str:
    return POD.format(key=key, value=value, member=member)


def configuration(key: str, text: str) -> str:
    return CONFIGURATION.format(key=key, text=text)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (pod("koordinator.sh/qosClass", "be"), 6, "LSE, LSR, LS, BE, SYSTEM are; did you mean BE?"),
        (pod("koordinator.sh/qosclass", "BE"), 6, "no program reads it; did you mean koordinator.sh/qosClass?"),
        (pod("koordinator.sh/qosClass", "LS", "annotations"), 6, "it is read from labels, not from annotations"),
        (pod("koordinator.sh/qosClass", "LSE"), 3, "LSR Pod must declare the requested CPUs"),
        (
            pod("quota.scheduling.koordinator.sh/name", "visoin") + "---\n" + QUOTA + "  max: {cpu: '8'}\n",
            6,
            "there is no quota 'visoin', the pod would be of the default quota; did you mean vision?",
        ),
        (QUOTA + "  mx: {cpu: '8'}\n", 5, "no such field, it would be dropped; did you mean max?"),
        (QUOTA + "  min: {cpu: '9'}\n  max: {cpu: '8'}\n", 4, "quota vision min 9 > max 8"),
        (
            QUOTA.replace("vision}", "vision, annotations: {quota.scheduling.koordinator.sh/namespaces: team-a}}"),
            3,
            "quota.scheduling.koordinator.sh/namespaces is ignored: 'team-a' is not a JSON list",
        ),
        (PROFILE + "  probability: half\n", 5, "a whole number from 0 to 100"),
        (PROFILE + "  selector: {matchLabels: {app: a b}}\n", 5, "must be a label value"),
        (
            "kind: ConfigMap\nmetadata: {name: pod-enhanced-validator-config}\ndata:\n  rules: '{}'\n",
            4,
            "'{}' is not usable: must be a JSON array",
        ),
        (configuration("colocation-cfg", '"enable": true'), 4, "did you mean colocation-config?"),
        (configuration("colocation-config", '"enabled": true'), 6, "no such field; did you mean enable?"),
        (configuration("cpu-burst-config", '"clusterStrategy": {"polcy": "auto"}'), 6, "did you mean policy?"),
        (configuration("colocation-config", '"cpuReclaimThresholdPercent": -1'), 4, "koord-manager would refuse it"),
        (configuration("resource-qos-config", '"clusterStrategy": 3'), 4, "koord-manager would refuse it"),
        (SCHEDULER + "parallelsm: 4\n", 3, "parallelism"),
        (SCHEDULER + "profiles:\n- schedulerName: a\n  percentageOfNodesToScore: 101\n", 5, "101 is not usable"),
        (DESCHEDULER + "profiles:\n- name: ''\n- name: b\n", 4, "descheduler name is needed"),
        (
            "kind: ConfigMap\ndata:\n  koord-scheduler-config: |\n"
            + "".join(f"    {line}\n" for line in (*SCHEDULER.splitlines(), "parallelism: -1")),
            6,
            "data[koord-scheduler-config].parallelism: -1 is not usable",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, said: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert main(["lint", str(tmp_path / "f.yaml")]) == 1
    (found,) = capsys.readouterr().out.splitlines()
    assert found.startswith(f"{tmp_path / 'f.yaml'}:{line}: ")
    assert said in found


def test_the_template_of_a_workload_is_a_pod(tmp_path: Path, capsys: Captured) -> None:
    labels = "{metadata: {labels: {koordinator.sh/qosClass: bE}}, spec: {containers: []}}"
    (tmp_path / "f.yaml").write_text(f"kind: Deployment\nmetadata: {{name: a}}\nspec:\n  template: {labels}\n")
    assert main(["lint", str(tmp_path / "f.yaml")]) == 1
    assert "f.yaml:4: spec.template.metadata.labels[koordinator.sh/qosClass]: 'bE'" in capsys.readouterr().out


def test_nothing_is_found_in_what_the_project_ships(capsys: Captured) -> None:
    files = [*CHECKOUT.glob("docs/examples/*.yaml"), *CHECKOUT.glob("config/*/*.yaml")]
    assert len(files) > 20
    assert (main(["lint", *map(str, files)]), capsys.readouterr().out) == (0, "")


def test_without_a_cluster_and_without_quotas_in_the_files_no_quota_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(pod("quota.scheduling.koordinator.sh/name", "vision"))
    assert main(["lint", str(tmp_path / "f.yaml")]) == 0


def test_a_file_that_is_no_yaml_is_named_by_its_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "f.yaml").write_text("a: b: c\n")
    assert main(["lint", str(tmp_path / "f.yaml")]) == 2
    assert "f.yaml: line 1, column 5" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("lint")) as found:
        for definition in custom_resource_definitions():
            found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        found.create(ELASTIC_QUOTAS, {"metadata": {"name": "vision"}, "spec": {"max": {"cpu": "1"}}}, "default")
        yield found


@pytest.mark.parametrize(("name", "status"), [("vision", 0), ("vison", 1), ("koordinator-default-quota", 0)])
def test_a_cluster_that_can_be_queried_says_which_quotas_there_are(
    name: str, status: int, cluster: ExplainedCluster, tmp_path: Path
) -> None:
    (tmp_path / "f.yaml").write_text(pod("quota.scheduling.koordinator.sh/name", name))
    assert main(["lint", str(tmp_path / "f.yaml"), f"--kubeconfig={cluster.kubeconfig}"]) == status


def test_findings_are_for_programs_too(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "pod.yaml").write_text(pod("koordinator.sh/qosClass", "be"))
    file = str(tmp_path / "pod.yaml")
    assert main(["lint", file, "-o", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["file"], found["line"], found["path"]) == (file, 6, "metadata.labels[koordinator.sh/qosClass]")
    assert main(["lint", file, "-o", "name"]) == 1
    assert capsys.readouterr().out == f"{file}\n"
