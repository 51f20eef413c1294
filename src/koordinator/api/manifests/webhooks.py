"""The webhook configurations of koord-manager, as they are installed; it fills in certificates and addresses.

Names, rules and failure policies are the original's (config/webhook/manifests.yaml). The manager's own namespace and
kube-system are left out, so that the manager and what a cluster runs on can come back whatever its webhooks do; so are
namespaces with the label ``control-plane``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from koordinator.api.annotations import WEBHOOK_TEMPLATE
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
_WORKLOADS: Final = (
    *(("apps", "v1", plural) for plural in ("daemonsets", "deployments", "replicasets", "statefulsets")),
    *(("batch", "v1", plural) for plural in ("cronjobs", "jobs")),
)
_CREATE: Final = ("CREATE",)
_WRITE: Final = ("CREATE", "UPDATE")
_ALL: Final = ("CREATE", "UPDATE", "DELETE")


def webhook_service(namespace: str = NAMESPACE) -> Document:
    """Through which the API server reaches every replica."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": WEBHOOK_SERVICE, "namespace": namespace},
        "spec": {"ports": [{"port": 443, "targetPort": WEBHOOK_PORT}], "selector": {"koord-app": "koord-manager"}},
    }


def webhook_configurations(namespace: str = NAMESPACE, failure_policy: str = "Fail") -> list[Document]:
    """The mutating one, then the validating one. ``failure_policy`` is that of pods, quotas and reservations."""
    elsewhere = _elsewhere(namespace)
    updatable = _matches("pod.koordinator.sh/mutating-update", "In", "true")
    configurable = _matches("koordinator.sh/configmap-type", "In", "slo-controller-config")

    def entry(
        name: str, path: str, resource: tuple[str, str, str], operations: Sequence[str], policy: str, **more: Any
    ) -> Document:
        return _entry(namespace, name, path, resource, operations, policy, **more)

    mutating = [
        entry("melasticquota", f"/mutate-{_QUOTA_PATH}", _QUOTAS, _CREATE, failure_policy, namespaceSelector=elsewhere),
        entry("mnode-status", "/mutate-node-status", ("", "v1", "nodes/status"), _WRITE, "Ignore"),
        entry("mpod-create", "/mutate-pod", ("", "v1", "pods"), _CREATE, failure_policy, namespaceSelector=elsewhere),
        entry(
            "mpod-update",
            "/mutate-pod",
            ("", "v1", "pods"),
            ("UPDATE",),
            failure_policy,
            namespaceSelector=elsewhere,
            objectSelector={"matchExpressions": [updatable]},
        ),
        entry("mreservation-create", "/mutate-reservation", _RESERVATIONS, _CREATE, failure_policy),
    ]
    validating = [
        entry(
            "vconfigmap",
            "/validate-configmap",
            ("", "v1", "configmaps"),
            _ALL,
            "Fail",
            objectSelector={"matchExpressions": [configurable]},
        ),
        entry("velasticquota", f"/validate-{_QUOTA_PATH}", _QUOTAS, _ALL, failure_policy, namespaceSelector=elsewhere),
        entry("vnode", "/validate-node", ("", "v1", "nodes"), _WRITE, "Ignore"),
        entry("vpod", "/validate-pod", ("", "v1", "pods"), _WRITE, failure_policy, namespaceSelector=elsewhere),
        # Ours, behind a feature gate that is off: warnings alone.
        entry(
            "vpod-template",
            "/validate-pod-template",
            _WORKLOADS[0],
            _WRITE,
            "Ignore",
            rules=[_rule(workload, _WRITE) for workload in _WORKLOADS],
            namespaceSelector=elsewhere,
        ),
        entry("vpodbinding", "/validate-pod-binding", ("", "v1", "pods/binding"), _CREATE, "Ignore"),
    ]
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_CONFIGURATION, mutating),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION, validating),
    ]


def until_served(configuration: Document) -> Document:
    """The configuration with its entries in the annotation from which koord-manager makes them, the original too.

    Until a koord-manager serves the webhooks and has said so, an API server has no webhook to call: a configuration
    that is installed first, or without a manager that ever starts, delays and refuses nothing.
    """
    template = json.dumps(configuration["webhooks"], indent=2) + "\n"
    metadata = {**configuration["metadata"], "annotations": {WEBHOOK_TEMPLATE: template}}
    return {"apiVersion": configuration["apiVersion"], "kind": configuration["kind"], "metadata": metadata}


def _configuration(kind: str, name: str, webhooks: list[Document]) -> Document:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def _entry(
    namespace: str,
    name: str,
    path: str,
    resource: tuple[str, str, str],
    operations: Sequence[str],
    policy: str,
    **more: Any,
) -> Document:
    return {
        "name": f"{name}.koordinator.sh",
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": {"service": {"name": WEBHOOK_SERVICE, "namespace": namespace, "path": path}},
        "failurePolicy": policy,
        "rules": [_rule(resource, operations)],
        "sideEffects": "None",
        **more,
    }


def _rule(resource: tuple[str, str, str], operations: Sequence[str]) -> Document:
    group, version, plural = resource
    return {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [plural]}


def _matches(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _elsewhere(namespace: str) -> Document:
    """Everywhere but where the cluster itself, or the manager, runs."""
    return {
        "matchExpressions": [
            _matches("control-plane", "DoesNotExist"),
            _matches("kubernetes.io/metadata.name", "NotIn", "kube-system", namespace),
        ]
    }
