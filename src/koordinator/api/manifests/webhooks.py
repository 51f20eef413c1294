"""The webhook configurations of koord-manager, as they are installed; it fills in certificates and addresses.

Names, rules and failure policies are the original's (config/webhook/manifests.yaml). The manager's own namespace is
left out, so that it can come back whatever its webhooks do; so are namespaces with the label ``control-plane``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordinator.api.installation import (
    MUTATING_CONFIGURATION,
    NAMESPACE,
    VALIDATING_CONFIGURATION,
    WEBHOOK_PORT,
    WEBHOOK_SERVICE,
)

Document = dict[str, Any]

_QUOTA_PATH: Final = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"
_QUOTAS: Final = ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas")
_RESERVATIONS: Final = ("scheduling.koordinator.sh", "v1alpha1", "reservations")
_CREATE: Final = ("CREATE",)
_WRITE: Final = ("CREATE", "UPDATE")
_ALL: Final = ("CREATE", "UPDATE", "DELETE")


def webhook_service() -> Document:
    """Through which the API server reaches every replica."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": WEBHOOK_SERVICE, "namespace": NAMESPACE},
        "spec": {"ports": [{"port": 443, "targetPort": WEBHOOK_PORT}], "selector": {"koord-app": "koord-manager"}},
    }


def webhook_configurations() -> list[Document]:
    """The mutating one, then the validating one."""
    updatable = _matches("pod.koordinator.sh/mutating-update", "In", "true")
    configurable = _matches("koordinator.sh/configmap-type", "In", "slo-controller-config")
    mutating = [
        _entry("melasticquota", f"/mutate-{_QUOTA_PATH}", _QUOTAS, _CREATE, namespaceSelector=_ELSEWHERE),
        _entry("mnode-status", "/mutate-node-status", ("", "v1", "nodes/status"), _WRITE, policy="Ignore"),
        _entry("mpod-create", "/mutate-pod", ("", "v1", "pods"), _CREATE, namespaceSelector=_ELSEWHERE),
        _entry(
            "mpod-update",
            "/mutate-pod",
            ("", "v1", "pods"),
            ("UPDATE",),
            namespaceSelector=_ELSEWHERE,
            objectSelector={"matchExpressions": [updatable]},
        ),
        _entry("mreservation-create", "/mutate-reservation", _RESERVATIONS, _CREATE),
    ]
    validating = [
        _entry(
            "vconfigmap",
            "/validate-configmap",
            ("", "v1", "configmaps"),
            _ALL,
            objectSelector={"matchExpressions": [configurable]},
        ),
        _entry("velasticquota", f"/validate-{_QUOTA_PATH}", _QUOTAS, _ALL, namespaceSelector=_ELSEWHERE),
        _entry("vnode", "/validate-node", ("", "v1", "nodes"), _WRITE, policy="Ignore"),
        _entry("vpod", "/validate-pod", ("", "v1", "pods"), _WRITE, namespaceSelector=_ELSEWHERE),
        _entry("vpodbinding", "/validate-pod-binding", ("", "v1", "pods/binding"), _CREATE, policy="Ignore"),
    ]
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_CONFIGURATION, mutating),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION, validating),
    ]


def _configuration(kind: str, name: str, webhooks: list[Document]) -> Document:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def _entry(
    name: str,
    path: str,
    resource: tuple[str, str, str],
    operations: Sequence[str],
    *,
    policy: str = "Fail",
    **more: Any,
) -> Document:
    group, version, plural = resource
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [plural]}
    return {
        "name": f"{name}.koordinator.sh",
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": {"service": {"name": WEBHOOK_SERVICE, "namespace": NAMESPACE, "path": path}},
        "failurePolicy": policy,
        "rules": [rule],
        "sideEffects": "None",
        **more,
    }


def _matches(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_ELSEWHERE: Final = {
    "matchExpressions": [
        _matches("control-plane", "DoesNotExist"),
        _matches("kubernetes.io/metadata.name", "NotIn", NAMESPACE),
    ]
}
