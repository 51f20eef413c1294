"""A real API server that shows a certificate when it calls webhooks, and koord-manager that asks for one."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kube.certificates import Authority
from tests.manager.webhook.reviews import review
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import PROFILES, create, gates, install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.programs import RealPrograms
from tests.real.test_manager_webhooks import batch_pod

PODS = "/api/v1/namespaces/default/pods"
CLIENTS = Authority("clients of webhooks")
CONFIGURATION = "apiserver.config.k8s.io/v1"


def admission_configuration(folder: Path) -> Path:
    """What an administrator writes for the API server."""
    certificate, key = CLIENTS.issue("kube-apiserver")
    (folder / "client.crt").write_bytes(certificate)
    (folder / "client.key").write_bytes(key)
    shown = {"client-certificate": str(folder / "client.crt"), "client-key": str(folder / "client.key")}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": shown}]}
    (folder / "webhooks.kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    webhooks = {
        "apiVersion": CONFIGURATION,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "webhooks.kubeconfig"),
    }
    plugins = [
        {"name": name, "configuration": webhooks} for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    file = folder / "admission.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": CONFIGURATION, "kind": "AdmissionConfiguration", "plugins": plugins}))
    return file


@pytest.fixture
def cluster(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    arguments = (f"--admission-control-config-file={admission_configuration(tmp_path)}",)
    folder = tmp_path / "control-plane"
    with ControlPlane(real_programs.kubernetes, folder, extra_arguments=arguments) as plane:
        prepare(plane)
        profile = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": "batch"},
            "spec": {"selector": {"matchLabels": {"kind": "batch"}}, "qosClass": "LS"},
        }
        create(plane, PROFILES, profile)
        yield plane


def test_only_the_api_server_is_answered(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    (tmp_path / "clients.crt").write_bytes(CLIENTS.pem)
    arguments = ("--enable-leader-election=false", gates(), f"--webhook-client-ca-file={tmp_path / 'clients.crt'}")
    with manager(OURS, cluster.kubeconfig, tmp_path / "manager", arguments=arguments) as running:
        running.wait_ready()
        status, created = cluster.request("POST", PODS, batch_pod())
        assert (status, created["metadata"]["labels"]["koordinator.sh/qosClass"]) == (201, "LS")
        assert _call(running.webhook_port) == 401
        assert "has shown no certificate" in running.log.read_text()


def _call(port: int) -> int:
    """The status for a client without a certificate, on loopback as everything here."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}/mutate-pod", data=review(), method="POST")
    try:
        with urllib.request.urlopen(request, context=tls, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
