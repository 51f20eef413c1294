"""The Helm chart with Helm itself, on a real API server: installed, upgraded while its webhooks are served, removed."""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.chart.original import original_chart
from tests.chart.rendered import objects
from tests.chart.renderings import (
    CASES,
    CHART,
    DEFAULTS,
    REFUSED,
    Document,
    chart_with_values,
    recorded,
    refusal,
    rendered_by,
    value_paths,
    without,
)
from tests.real.control_plane import ControlPlane
from tests.real.helm import helm_command, helm_program
from tests.real.installation import NAMESPACE, account_kubeconfig, eventually, shell
from tests.real.manager_cluster import configurations
from tests.real.manager_process import OURS, manager
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.slow

_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
_QUOTAS = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/elasticquotas"


@pytest.fixture(scope="module", name="helm_program")
def _helm_program() -> Path:
    return helm_program()


Helm = Callable[..., str]


@pytest.fixture
def helm(helm_program: Path, empty: ControlPlane, tmp_path: Path) -> Helm:
    """Runs it with a home of its own."""
    command = helm_command(helm_program, tmp_path / "helm")
    return lambda *words: shell(f"{command} {shlex.join(words)}", empty.kubeconfig)


def by_name(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    """Versions of Helm order kinds differently."""
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


@pytest.mark.parametrize("case", CASES)
def test_it_renders_what_is_recorded(case: str, helm_program: Path) -> None:
    assert by_name(rendered_by(helm_program, CASES[case])) == by_name(recorded(case))


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_what_is_recorded(case: str, helm_program: Path) -> None:
    """In the words of this Helm, which are others from 3.18 on where a type or a range is wrong."""
    values, name = REFUSED[case]
    assert name.split(":")[0].split(".")[-1] in refusal(helm_program, values)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(missing=st.sets(st.sampled_from(value_paths(DEFAULTS)), min_size=1), null=st.booleans())
def test_values_that_are_missing_are_the_defaults(
    missing: set[tuple[str, ...]], null: bool, helm_program: Path, tmp_path: Path
) -> None:
    chart = chart_with_values(without(missing, null=null), tmp_path)
    assert by_name(rendered_by(helm_program, {}, chart)) == by_name(recorded("defaults"))


def test_helm_lint_stops_at_what_is_refused(helm_program: Path) -> None:
    command = [str(helm_program), "lint", str(CHART), "--set=scheduler.replcas=3"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "[ERROR]" in ended.stdout
    assert "did you mean scheduler.replicas?" in ended.stdout


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("koord-manager", "featureGates"),
        ("koord-scheduler", "scheduler.featureGates"),
        ("koord-descheduler", "descheduler.featureGates"),
        ("koordlet", "koordlet.features"),
    ],
)
def test_every_feature_gate_of_the_original_is_known(program: str, value: str, real_programs: RealPrograms) -> None:
    """A release of the original has it in its values."""
    ended = subprocess.run([real_programs.original / program, "--help"], capture_output=True, text=True, check=False)
    gates = set(re.findall(r"(\w+)=true\|false", ended.stdout + ended.stderr))
    assert len(gates) > 20
    assert gates <= set(yaml.safe_load((CHART / "feature-gates.yaml").read_text())[value])


def entries(plane: ControlPlane) -> list[str]:
    return sorted(entry["name"] for each in configurations(plane).values() for entry in each.get("webhooks", []))


def test_helm_test_may_read_what_it_asks_for(helm: Helm, empty: ControlPlane, tmp_path: Path) -> None:
    """No program runs, and nothing is forbidden: each thing that is wrong is named, and the resources are served."""
    helm("install", "koordinator", str(CHART))
    for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
        document = objects("defaults")[kind, "koordinator-test"]
        code, made = empty.request("POST", path_of(kind), document)
        assert code == 201, made.get("message")
    daemon_set = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/koordlet/status"
    counts = dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberReady"), 1)
    assert empty.request("PATCH", daemon_set, {"status": {**counts, "numberMisscheduled": 0}})[0] == 200
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    code, made = empty.request("POST", f"{path_of('ServiceAccount')}/koordinator-test/token", request)
    assert code == 201
    (tmp_path / "token").write_text(made["status"]["token"])
    (tmp_path / "ca.crt").write_bytes((empty.kubeconfig.parent / "certificates/apiserver.crt").read_bytes())
    (container,) = objects("defaults")["Pod", "koordinator-test-release"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    given |= {"API": f"https://127.0.0.1:{empty.port}", "ACCOUNT": str(tmp_path), "SECONDS": "0"}
    command = [sys.executable, *container["command"][1:]]
    ended = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()) == (
        1,
        [
            f"no replica holds the Lease {NAMESPACE}/koord-scheduler",
            f"no replica holds the Lease {NAMESPACE}/koord-descheduler",
            f"no replica holds the Lease {NAMESPACE}/koordinator-manager",
            "koordlet runs, and no NodeMetric has a report",
        ],
    ), ended.stderr


def path_of(kind: str) -> str:
    if kind == "ServiceAccount":
        return f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    where = "" if kind.startswith("Cluster") else f"/namespaces/{NAMESPACE}"
    return f"/apis/rbac.authorization.k8s.io/v1{where}/{kind.lower()}s"


def test_webhooks_stay_served_through_an_upgrade(helm: Helm, empty: ControlPlane, tmp_path: Path) -> None:
    helm("install", "koordinator", str(CHART))
    assert entries(empty) == []
    with ExitStack() as running:
        kubeconfig = account_kubeconfig(empty, "koord-manager", tmp_path)
        served = running.enter_context(manager(OURS, kubeconfig, tmp_path / "manager"))
        served.wait_ready()
        eventually(lambda: "mpod-create.koordinator.sh" in entries(empty), "webhook", served.log)
        before = entries(empty)
        helm("upgrade", "koordinator", str(CHART), "--set=manager.log.level=4")
        assert entries(empty) == before
        # The new list is taken when the values change it.
        helm("upgrade", "koordinator", str(CHART), "--set=webhookConfiguration.timeoutSeconds=7")
        eventually(lambda: _timeouts(empty) == {7}, "new time limit", served.log)
    assert "forbidden" not in served.log.read_text()


def _timeouts(plane: ControlPlane) -> set[int]:
    return {entry["timeoutSeconds"] for each in configurations(plane).values() for entry in each.get("webhooks", [])}


def test_what_is_removed_leaves_no_webhooks_and_keeps_custom_resources(helm: Helm, empty: ControlPlane) -> None:
    helm("install", "koordinator", str(CHART))
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "team"}}
    assert empty.request("POST", _QUOTAS, quota)[0] == 201
    helm("uninstall", "koordinator")
    assert [configuration["reason"] for configuration in configurations(empty).values()] == ["NotFound", "NotFound"]
    code, left = empty.request("GET", f"{_QUOTAS}/team")
    assert (code, "deletionTimestamp" in left["metadata"]) == (200, False)


def test_an_api_server_takes_what_all_values_make(helm: Helm, empty: ControlPlane, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    # There are no definitions of the Prometheus operator.
    monitored = ("manager", "scheduler", "descheduler", "deviceDaemon")
    switches = [f"--set={name}.monitorEnabled=false" for name in monitored]
    switches.append("--set=koordlet.enableServiceMonitor=false")
    values.write_text(yaml.safe_dump(CASES["everything"]))
    helm("install", "koordinator", str(CHART), f"--values={values}", *switches)
    code, policies = empty.request("GET", "/apis/networking.k8s.io/v1/namespaces/elsewhere/networkpolicies")
    assert (code, len(policies["items"])) == (200, 5)


def test_priority_classes_of_a_release_stay_when_they_are_no_longer_managed(helm: Helm, empty: ControlPlane) -> None:
    helm("install", "koordinator", str(CHART))
    helm("upgrade", "koordinator", str(CHART), "--set=priorityClasses.managed=false")
    helm("uninstall", "koordinator")
    assert empty.request("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/koord-batch")[0] == 200


def test_a_release_may_be_in_the_namespace_of_the_programs(helm: Helm, empty: ControlPlane) -> None:
    where = f"--namespace={NAMESPACE}"
    helm("install", "koordinator", str(CHART), where, "--create-namespace")
    helm("upgrade", "koordinator", str(CHART), where)
    code, namespace = empty.request("GET", f"/api/v1/namespaces/{NAMESPACE}")
    assert (code, namespace["status"]["phase"]) == (200, "Active")


def test_the_certificates_of_a_release_of_the_original_stay(helm: Helm, empty: ControlPlane) -> None:
    """Its chart has the Secret and the Service among its objects, as this release has here."""
    data = {"tls.crt": base64.b64encode(b"certificate").decode()}
    metadata = {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "koordinator", "meta.helm.sh/release-namespace": "default"},
    }
    secret = {"metadata": {"name": "koordinator-webhook-certs", **metadata}, "data": data}
    assert empty.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, **metadata}})[0] == 201
    assert empty.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)[0] == 201
    for _ in range(2):
        helm("upgrade", "--install", "koordinator", str(CHART))
        assert empty.request("GET", _SECRET)[1]["data"] == data


def test_the_certificates_that_a_running_original_has_written_stay(
    helm: Helm, empty: ControlPlane, tmp_path: Path
) -> None:
    """It leaves Helm's labels and annotations out."""
    helm("install", "koordinator", str(original_chart("1.8.0", tmp_path)))
    data = {"tls.crt": base64.b64encode(b"certificate").decode()}
    written = {"metadata": {"name": "koordinator-webhook-certs", "namespace": NAMESPACE}, "data": data}
    assert empty.request("PUT", _SECRET, written)[0] == 200
    for _ in range(2):
        helm("upgrade", "koordinator", str(CHART))
        assert empty.request("GET", _SECRET)[1]["data"] == data
    # Without data, as the first release of the original had it; it makes new ones.
    helm("rollback", "koordinator", "1")
    assert "data" not in empty.request("GET", _SECRET)[1]
