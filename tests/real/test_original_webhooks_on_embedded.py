"""The Go original's koord-manager on the embedded API: it rewrites its webhook configurations, and pods pass them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.admission_webhooks.webhook_server import Document
from tests.cluster.embedded_thread import embedded_server
from tests.manager.webhook.installed import mutating, validating
from tests.real.manager_cluster import NAMESPACE, PROFILES
from tests.real.manager_process import manager
from tests.real.programs import RealPrograms

_DEFINITIONS = Path(__file__).resolve().parents[2] / "config/crd"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_PODS = "/api/v1/namespaces/default/pods"
_SETTLE_SECONDS = 30.0
_GATES = "--feature-gates=NodeMutatingWebhook=true,NodeValidatingWebhook=true"


@pytest.fixture
def api(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ApiServer]:
    """An embedded API that the original's koord-manager serves the webhooks of."""
    program = real_programs.original / "koord-manager"
    if not program.is_file():
        pytest.skip(f"the original's koord-manager is absent: put it into {real_programs.original}")
    with embedded_server(tmp_path) as kubeconfig:
        api = ApiServer(kubeconfig)
        _prepare(api)
        with manager((str(program),), kubeconfig, tmp_path / "manager", arguments=[_GATES]) as running:
            running.wait_ready()
            yield api


def _prepare(api: ApiServer) -> None:
    for path in sorted(_DEFINITIONS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            _create(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    _create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _create(api, f"{_REGISTRATION}/mutatingwebhookconfigurations", mutating())
    _create(api, f"{_REGISTRATION}/validatingwebhookconfigurations", validating())


def _create(api: ApiServer, path: str, document: Document) -> None:
    response = api.request("POST", path, document)
    assert response.code == 201, response.message


def test_a_profile_of_the_original_turns_a_pod_into_a_batch_pod(api: ApiServer) -> None:
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"},
        "spec": {
            "selector": {"matchLabels": {"kind": "batch"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "schedulerName": "koord-scheduler",
        },
    }
    priority: Document = {"metadata": {"name": "koord-batch"}, "value": 5999, "globalDefault": False}
    _create(api, "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    _create(api, PROFILES, profile)
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
    pod = {"metadata": {"name": "p", "labels": {"kind": "batch"}}, "spec": {"containers": [container]}}
    response = api.request("POST", f"{_PODS}?dryRun=All", pod)
    end = time.monotonic() + _SETTLE_SECONDS
    # The original answers as soon as it is ready, and hears of new profiles a moment later.
    while "koordinator.sh/qosClass" not in response.body.get("metadata", {}).get("labels", {}):
        assert time.monotonic() < end, response.body
        time.sleep(0.1)
        response = api.request("POST", f"{_PODS}?dryRun=All", pod)
    spec = response.body["spec"]
    assert response.body["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert (spec["priority"], spec["schedulerName"]) == (5999, "koord-scheduler")
    assert spec["containers"][0]["resources"]["requests"] == {
        "kubernetes.io/batch-cpu": "1k",
        "kubernetes.io/batch-memory": "1Gi",
    }


def test_a_pod_that_contradicts_itself_is_refused_by_the_original(api: ApiServer) -> None:
    labels = {"koordinator.sh/qosClass": "LSR"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}}
    response = api.request(
        "POST", _PODS, {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [container]}}
    )
    assert response.code >= 400
    assert response.message.startswith('admission webhook "vpod.koordinator.sh" denied the request: ')
