"""A real API server made ready for koord-manager: definitions, a namespace, webhook configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from koordinator.manager.features import POD_TEMPLATE_VALIDATING_WEBHOOK, make_features
from koordinator.manager.webhook.handler_table import HANDLERS
from tests.manager.webhook.installed import MUTATING, VALIDATING, mutating, validating
from tests.real.control_plane import ControlPlane

NAMESPACE = "koordinator-system"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
_DEFINITIONS = Path(__file__).resolve().parents[2] / "config/crd"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_CONFIGURATIONS = {
    MUTATING: (f"{_REGISTRATION}/mutatingwebhookconfigurations", mutating),
    VALIDATING: (f"{_REGISTRATION}/validatingwebhookconfigurations", validating),
}


def prepare(cluster: ControlPlane) -> None:
    """Once for each API server: what both programs expect to find."""
    for path in sorted(_DEFINITIONS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            create(cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    create(cluster, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def install(cluster: ControlPlane) -> None:
    """The configurations as they are before any manager has seen them; no Secret."""
    cluster.request("DELETE", SECRET)
    for name, (path, make) in _CONFIGURATIONS.items():
        cluster.request("DELETE", f"{path}/{name}")
        create(cluster, path, make())


def create(cluster: ControlPlane, path: str, document: dict[str, Any]) -> None:
    status, response = cluster.request("POST", path, document)
    assert status == 201, response.get("message")


def configurations(cluster: ControlPlane) -> dict[str, dict[str, Any]]:
    """Both as they are now, by name."""
    return {name: cluster.request("GET", f"{path}/{name}")[1] for name, (path, _) in _CONFIGURATIONS.items()}


def gates() -> str:
    """Both programs with the handlers that we have: those of the original that we lack are switched off."""
    built = {entry.gate for entry in HANDLERS}
    ours_alone = {POD_TEMPLATE_VALIDATING_WEBHOOK}
    names = [name for name in make_features() if name.endswith("Webhook") and name not in ours_alone]
    return "--feature-gates=" + ",".join(f"{name}={str(name in built).lower()}" for name in names)
