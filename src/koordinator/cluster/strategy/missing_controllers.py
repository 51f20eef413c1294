"""Kinds that are served and that nothing in this cluster acts on: what their creator is warned of.

Without a warning, a Deployment whose pods never come looks like a defect of the scheduler. The warnings stay true with
a kube-controller-manager on this API server, which works: they say what the API server does not do itself. Of what the
workload controllers of `koord up` act on, nobody is warned where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.quota.usage import is_enforced

_RUN_CONTROLLERS: Final = "unless you run kube-controller-manager with this cluster's kubeconfig"
_CREATE_PODS: Final = f"create pods directly (kubectl run, kubectl create -f), {_RUN_CONTROLLERS}"
_WORKLOADS: Final = (
    ("", "replicationcontrollers", "ReplicationController"),
    ("apps", "deployments", "Deployment"),
    ("apps", "replicasets", "ReplicaSet"),
    ("apps", "statefulsets", "StatefulSet"),
    ("apps", "daemonsets", "DaemonSet"),
    ("batch", "jobs", "Job"),
    ("batch", "cronjobs", "CronJob"),
)
CONTROLLED: Final = frozenset(
    (
        ("", "replicationcontrollers"),
        ("", "services"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "daemonsets"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("", "persistentvolumeclaims"),
    )
)
"""(group, plural) of the kinds that the workload controllers act on; see koordinator.cluster.controllers.table."""
_WARNINGS: Final[Mapping[tuple[str, str], str]] = {
    **{
        (group, plural): f"no controller in this cluster creates the pods of a {kind}: {_CREATE_PODS}"
        for group, plural, kind in _WORKLOADS
    },
    ("", "services"): (
        f"no controller in this cluster lists the pods of a Service as its endpoints, {_RUN_CONTROLLERS}; and no "
        "traffic reaches simulated pods"
    ),
    ("", "persistentvolumeclaims"): (
        f"no controller in this cluster binds a PersistentVolumeClaim to a volume: pods that use it stay pending, "
        f"{_RUN_CONTROLLERS}"
    ),
    ("networking.k8s.io", "networkpolicies"): (
        "nothing in this cluster enforces a NetworkPolicy: simulated pods have no network"
    ),
    ("networking.k8s.io", "ingresses"): "nothing in this cluster serves an Ingress: simulated pods have no network",
    ("apiregistration.k8s.io", "apiservices"): (
        "this API server forwards no requests: what an APIService registers is not served"
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        "no controller in this cluster acts on a HorizontalPodAutoscaler; change replicas with kubectl scale"
    ),
    ("certificates.k8s.io", "certificatesigningrequests"): (
        f"no controller in this cluster signs a CertificateSigningRequest, {_RUN_CONTROLLERS}"
    ),
    **{
        ("flowcontrol.apiserver.k8s.io", plural): (
            f"nothing in this cluster acts on a {kind}: too many requests are refused by limits of the server's own"
        )
        for plural, kind in (
            ("flowschemas", "FlowSchema"),
            ("prioritylevelconfigurations", "PriorityLevelConfiguration"),
        )
    },
    ("resource.k8s.io", "resourceclaims"): (
        "nothing in this cluster allocates the devices of a ResourceClaim: koord-scheduler does not place pods by "
        "dynamic resources"
    ),
}
"""(group, plural) -> the text of the Warning header."""


Warn = Callable[[Document], str | None]
"""From a new object to what its creator is warned of."""


def creation_warnings(*, controllers_run: bool = False) -> Mapping[tuple[str, str], Warn]:
    """By the kinds that something is to be said of. ``controllers_run``: the workload controllers run beside this
    server."""
    named = {key: partial(_warning, key, text) for key, text in _WARNINGS.items()}
    left = {key: warn for key, warn in named.items() if not (controllers_run and key in CONTROLLED)}
    return {**left, ("", "resourcequotas"): _uncounted}


def _uncounted(obj: Document) -> str | None:
    uncounted = sorted(name for name in (obj.get("spec") or {}).get("hard") or {} if not is_enforced(name))
    return f"nothing in this cluster counts {', '.join(uncounted)}: it is not limited" if uncounted else None


def _warning(key: tuple[str, str], text: str, obj: Document) -> str | None:
    """None where something acts on the object, or where a controller creates it."""
    if obj["metadata"].get("ownerReferences"):
        return None
    if key == ("apiregistration.k8s.io", "apiservices") and not (obj.get("spec") or {}).get("service"):
        return None
    if key == ("", "services") and not _has_endpoints(obj.get("spec") or {}):
        return None
    return text


def _has_endpoints(service_spec: Document) -> bool:
    """Whether a controller would list them."""
    return bool(service_spec.get("selector")) and service_spec.get("type") != "ExternalName"
