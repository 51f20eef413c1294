"""The two webhook configurations as an installation of the original leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MUTATING = "koordinator-mutating-webhook-configuration"
VALIDATING = "koordinator-validating-webhook-configuration"
CONTROL_PLANE = {"matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]}
_QUOTA = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


def entry(
    name: str,
    path: str,
    resource: str,
    operations: Sequence[str],
    *,
    group: str = "",
    version: str = "v1",
    failure_policy: str = "Ignore",
    reviews: Sequence[str] = ("v1", "v1beta1"),
    **more: Any,
) -> dict[str, Any]:
    """One webhook, reached through a Service that the manager is to rename."""
    return {
        "name": f"{name}.koordinator.sh",
        "admissionReviewVersions": list(reviews),
        "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": path}},
        "failurePolicy": failure_policy,
        "rules": [
            {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [resource]}
        ],
        "sideEffects": "None",
        **more,
    }


def mutating() -> dict[str, Any]:
    quotas = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1"}
    update = {"matchExpressions": [{"key": "pod.koordinator.sh/mutating-update", "operator": "In", "values": ["true"]}]}
    return _configuration(
        "MutatingWebhookConfiguration",
        MUTATING,
        [
            entry("melasticquota", f"/mutate-{_QUOTA}", "elasticquotas", ["CREATE"], **quotas),
            entry("mnode-status", "/mutate-node-status", "nodes/status", ["CREATE", "UPDATE"]),
            entry(
                "mpod-create",
                "/mutate-pod",
                "pods",
                ["CREATE"],
                failure_policy="Fail",
                namespaceSelector=CONTROL_PLANE,
            ),
            entry(
                "mpod-update",
                "/mutate-pod",
                "pods",
                ["UPDATE"],
                namespaceSelector=CONTROL_PLANE,
                objectSelector=update,
            ),
            entry(
                "mreservation-create",
                "/mutate-reservation",
                "reservations",
                ["CREATE"],
                group="scheduling.koordinator.sh",
                version="v1alpha1",
            ),
        ],
    )


def validating() -> dict[str, Any]:
    quotas = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1"}
    slo = {
        "matchExpressions": [
            {"key": "koordinator.sh/configmap-type", "operator": "In", "values": ["slo-controller-config"]}
        ]
    }
    return _configuration(
        "ValidatingWebhookConfiguration",
        VALIDATING,
        [
            entry(
                "vconfigmap",
                "/validate-configmap",
                "configmaps",
                ["CREATE", "UPDATE", "DELETE"],
                reviews=["v1beta1"],
                failure_policy="Fail",
                objectSelector=slo,
            ),
            entry("velasticquota", f"/validate-{_QUOTA}", "elasticquotas", ["CREATE", "UPDATE", "DELETE"], **quotas),
            entry("vnode", "/validate-node", "nodes", ["CREATE", "UPDATE"]),
            entry("vpod", "/validate-pod", "pods", ["CREATE", "UPDATE"], namespaceSelector=CONTROL_PLANE),
            entry("vpodbinding", "/validate-pod-binding", "pods/binding", ["CREATE"]),
        ],
    )


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"installed-by": "somebody"}, "annotations": {"note": "keep me"}},
        "webhooks": webhooks,
    }
