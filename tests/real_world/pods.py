"""Pods as people have them: how they are created, what is changed while they run, and how they look then.

A shape is created with :meth:`PodShape.document` on a real API server or the embedded one. What can only be done to a
pod that exists, such as a resize or an ephemeral container, is in ``changes``. ``status`` is what the kubelet of
Kubernetes 1.35 reports afterwards, as far as resources depend on it, for tests that have no kubelet.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

IMAGE: Final = "docker.io/library/pause:latest"
"""What ``real-node.sh`` makes: it does nothing until SIGTERM, when it ends with status 0; so do its init containers."""
_BATCH: Final = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}

OVERHEAD_CLASS: Final[Mapping[str, Any]] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "with-overhead"},
    "handler": "runc",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
}
"""The RuntimeClass of pods with overhead: the API server fills their ``spec.overhead`` from it."""

BATCH_CLASS: Final[Mapping[str, Any]] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5000,
}


@dataclass(frozen=True)
class PodChange:
    """A strategic merge patch of a pod that exists, of the ``subresource`` unless that is empty."""

    subresource: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class PodShape:
    """``what`` is special about the pod, and the parts of it that are not those of a plain pod.

    ``milli_cpu`` is what the pod takes from its node once its ``changes`` have been made, as kube-scheduler counts it.
    ``needs`` are objects that have to exist before. ``is_static`` pods are created by the kubelet from a file; the API
    server shows their mirror pods.
    """

    name: str
    what: str
    milli_cpu: int
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[PodChange] = ()
    needs: Sequence[Mapping[str, Any]] = ()
    is_static: bool = False

    def document(self, namespace: str, *, node: str = "") -> dict[str, Any]:
        """The pod to create: on ``node`` without a scheduler, where that is given; on the network of the node, and gone
        at once when it is deleted."""
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "hostNetwork": True,
            **copy.deepcopy(dict(self.spec)),
        }
        if node:
            spec["nodeName"] = node
        metadata = {
            "name": self.name,
            "namespace": namespace,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def running(self, namespace: str, node: str, uid: str) -> dict[str, Any]:
        """As the API server shows the pod once it runs and its ``changes`` have been made."""
        document = self.document(namespace, node=node)
        document["metadata"]["uid"] = uid
        for change in self.changes:
            _merge(document, change.patch)
        spec = document["spec"]
        spec["priority"] = next((needed["value"] for needed in self.needs if needed["kind"] == "PriorityClass"), 0)
        containers = [(c["name"], "containerStatuses") for c in spec["containers"]]
        containers += [(c["name"], "initContainerStatuses") for c in spec.get("initContainers", ())]
        containers += [(c["name"], "ephemeralContainerStatuses") for c in spec.get("ephemeralContainers", ())]
        status: dict[str, Any] = {"phase": "Running", "qosClass": self.qos_class}
        for name, where in containers:
            is_done = where == "initContainerStatuses" and not _is_sidecar(spec, name)
            state = {"terminated": {"exitCode": 0, "reason": "Completed"}} if is_done else {"running": {}}
            entry = {"name": name, "containerID": f"containerd://{uid}-{name}", "ready": not is_done, "state": state}
            status.setdefault(where, []).append(entry)
        _merge(status, copy.deepcopy(dict(self.status)))
        document["status"] = status
        return document

    @property
    def qos_class(self) -> str:
        """The ``qosClass`` that the API server gives the pod: pod-level resources count alone where they are set."""
        spec = self.spec
        if "resources" in spec:
            holders = [spec["resources"]]
        else:
            holders = [c.get("resources", {}) for c in (*spec["containers"], *spec.get("initContainers", ()))]
        compute = ("cpu", "memory")
        if not any(holder.get(part, {}).get(name) for holder in holders for part in holder for name in compute):
            return "BestEffort"
        equal = all(
            holder.get("limits", {}).get(name) is not None
            and holder.get("requests", holder["limits"]).get(name, holder["limits"][name]) == holder["limits"][name]
            for holder in holders
            for name in compute
        )
        return "Guaranteed" if equal else "Burstable"


def container(name: str = "main", *, limits: Any = None, requests: Any = None, **more: Any) -> dict[str, Any]:
    """A container that does nothing; ``requests`` are the ``limits`` unless they are given."""
    resources: dict[str, Any] = {}
    if requests is not None or limits is not None:
        resources["requests"] = dict(requests if requests is not None else limits)
    if limits is not None:
        resources["limits"] = dict(limits)
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "resources": resources, **more}


def sidecar(name: str, *, limits: Any = None, requests: Any = None) -> dict[str, Any]:
    """A restartable init container: it runs as long as the pod, and its resources add to those of the containers."""
    return container(name, limits=limits, requests=requests, restartPolicy="Always")


def _is_sidecar(spec: Mapping[str, Any], name: str) -> bool:
    return any(c["name"] == name and c.get("restartPolicy") == "Always" for c in spec.get("initContainers", ()))


def _merge(document: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Lists of named things by their names, as a strategic merge patch does it."""
    for key, value in patch.items():
        old = document.get(key)
        if isinstance(value, Mapping) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and all("name" in entry for entry in value):
            by_name = {entry["name"]: entry for entry in old}
            for entry in value:
                if entry["name"] in by_name:
                    _merge(by_name[entry["name"]], entry)
                else:
                    old.append(copy.deepcopy(dict(entry)))
        else:
            document[key] = copy.deepcopy(value)


def _amounts(cpu: str, memory: str = "64Mi") -> dict[str, str]:
    return {"cpu": cpu, "memory": memory}


def _resize(cpu: str) -> PodChange:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return PodChange("resize", {"spec": {"containers": [{"name": "main", "resources": resources}]}})


def _granted(cpu: str) -> dict[str, Any]:
    """What the status says of a container that has ``cpu`` now, whatever the spec wants."""
    amounts = _amounts(cpu)
    return {"name": "main", "allocatedResources": amounts, "resources": {"requests": amounts, "limits": amounts}}


def _resize_status(cpu: str, **condition: str) -> dict[str, Any]:
    return {"containerStatuses": [_granted(cpu)], "conditions": [{"status": "True", **condition}]}


PODS: Final[Sequence[PodShape]] = (
    PodShape("guaranteed", "requests equal to limits", 500, {"containers": [container(limits=_amounts("500m"))]}),
    PodShape(
        "burstable",
        "a limit above the request",
        200,
        {"containers": [container(limits=_amounts("1"), requests=_amounts("200m"))]},
    ),
    PodShape("best-effort", "neither requests nor limits", 0, {"containers": [container()]}),
    PodShape("requests-alone", "requests without limits", 200, {"containers": [container(requests=_amounts("200m"))]}),
    PodShape(
        "partly-limited",
        "one container has a limit and the other has none, so that the pod has none",
        600,
        {"containers": [container(limits=_amounts("500m")), container("free", requests=_amounts("100m"))]},
    ),
    PodShape(
        "tiny",
        "a limit of 1 milli-CPU, for which the kernel's smallest quota is 1 ms a period",
        1,
        {"containers": [container(limits=_amounts("1m"))]},
    ),
    PodShape(
        "odd-milli-cpu",
        "a limit that is no multiple of a hundredth of a CPU",
        333,
        {"containers": [container(limits=_amounts("333m"))]},
    ),
    PodShape(
        "two-containers",
        "the limit of the pod is the sum",
        750,
        {"containers": [container(limits=_amounts("500m")), container("second", limits=_amounts("250m"))]},
    ),
    PodShape(
        "sidecar",
        "a restartable init container, which counts with the containers",
        1000,
        {
            "initContainers": [sidecar("proxy", limits=_amounts("500m"))],
            "containers": [container(limits=_amounts("500m"))],
        },
    ),
    PodShape(
        "two-sidecars",
        "two restartable init containers",
        1500,
        {
            "initContainers": [
                sidecar("proxy", limits=_amounts("500m")),
                sidecar("log", limits=_amounts("500m")),
            ],
            "containers": [container(limits=_amounts("500m"))],
        },
    ),
    PodShape(
        "unlimited-sidecar",
        "a restartable init container without a limit takes the limit from the pod",
        600,
        {
            "initContainers": [sidecar("proxy", requests=_amounts("100m"))],
            "containers": [container(limits=_amounts("500m"))],
        },
    ),
    PodShape(
        "large-init-container",
        "an init container that has ended wanted more than the containers: requests keep the maximum",
        1000,
        {
            "initContainers": [container("prepare", limits=_amounts("1"))],
            "containers": [container(limits=_amounts("250m"))],
        },
    ),
    PodShape(
        "sidecar-before-init-container",
        "an init container runs beside the sidecar that was started before it",
        750,
        {
            "initContainers": [
                sidecar("proxy", limits=_amounts("250m")),
                container("prepare", limits=_amounts("500m")),
            ],
            "containers": [container(limits=_amounts("250m"))],
        },
    ),
    PodShape(
        "overhead",
        "a RuntimeClass adds to what the pod requests and may use",
        750,
        {
            "runtimeClassName": "with-overhead",
            "overhead": {"cpu": "250m", "memory": "64Mi"},
            "containers": [container(limits=_amounts("500m"))],
        },
        needs=(OVERHEAD_CLASS,),
    ),
    PodShape(
        "pod-level-resources",
        "the limit of the pod is its own, not the sum of its containers'",
        500,
        {
            "resources": {"requests": _amounts("500m", "128Mi"), "limits": _amounts("1", "256Mi")},
            "containers": [container(limits=_amounts("250m")), container("free")],
        },
    ),
    PodShape(
        "pod-level-resources-alone",
        "no container says anything",
        500,
        {
            "resources": {"requests": _amounts("500m", "128Mi"), "limits": _amounts("500m", "128Mi")},
            "containers": [container(), container("second")],
        },
    ),
    PodShape(
        "ephemeral-container",
        "a container for debugging that was added later and has no resources",
        500,
        {"containers": [container(limits=_amounts("500m"))]},
        changes=(
            PodChange(
                "ephemeralcontainers",
                {"spec": {"ephemeralContainers": [{"name": "debug", "image": IMAGE, "imagePullPolicy": "Never"}]}},
            ),
        ),
    ),
    PodShape(
        "resized-up",
        "a resize in place that the kubelet has carried out",
        500,
        {"containers": [container(limits=_amounts("250m"))]},
        changes=(_resize("500m"),),
        status={"containerStatuses": [_granted("500m")]},
    ),
    PodShape(
        "resized-down",
        "a resize in place to less",
        250,
        {"containers": [container(limits=_amounts("500m"))]},
        changes=(_resize("250m"),),
        status={"containerStatuses": [_granted("250m")]},
    ),
    PodShape(
        "resize-in-progress",
        "the kubelet has allocated what the spec wants and has not written it to the cgroup yet",
        500,
        {"containers": [container(limits=_amounts("250m"))]},
        changes=(_resize("500m"),),
        status={
            "containerStatuses": [
                {
                    "name": "main",
                    "allocatedResources": _amounts("500m"),
                    "resources": {"requests": _amounts("250m"), "limits": _amounts("250m")},
                }
            ],
            "conditions": [{"type": "PodResizeInProgress", "status": "True"}],
        },
    ),
    PodShape(
        "resize-infeasible",
        "a resize that the node can never grant: what the status says counts, not what the spec wants",
        250,
        {"containers": [container(limits=_amounts("250m"))]},
        changes=(_resize("500"),),
        status=_resize_status("250m", type="PodResizePending", reason="Infeasible"),
    ),
    PodShape(
        "resize-deferred",
        "a resize that waits until other pods leave the node: what was granted counts until then",
        1900,
        {"containers": [container(limits=_amounts("250m"))]},
        # Any node of the tests has more than one CPU, and none has this much left beside the other pods.
        changes=(_resize("1900m"),),
        status=_resize_status("250m", type="PodResizePending", reason="Deferred"),
    ),
    PodShape(
        "static",
        "the kubelet made it from a file; the API server has its mirror pod",
        100,
        {"containers": [container(limits=_amounts("100m"))]},
        annotations={"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "0f1e2d3c"},
        is_static=True,
    ),
    PodShape(
        "nested-cgroups",
        "its container makes cgroups of its own below that which the kubelet made",
        500,
        {
            "containers": [
                container(
                    limits=_amounts("500m"),
                    securityContext={"privileged": True},
                )
            ]
        },
    ),
    PodShape(
        "batch",
        "a pod of the priority band koord-batch, as koord-manager's webhook leaves it",
        0,
        {
            "priorityClassName": "koord-batch",
            "containers": [
                container(limits=_BATCH),
            ],
        },
        labels={"koordinator.sh/qosClass": "BE"},
        annotations={
            "node.koordinator.sh/extended-resource-spec": json.dumps(
                {"containers": {"main": {"requests": _BATCH, "limits": _BATCH}}}
            )
        },
        needs=(BATCH_CLASS,),
    ),
    PodShape(
        "pinned",
        "a pod of the class LSR, which koord-scheduler has given a CPU of its own",
        1000,
        {"containers": [container(limits=_amounts("1"))]},
        labels={"koordinator.sh/qosClass": "LSR"},
        annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"1"}'},
    ),
)


def pod_shape(name: str) -> PodShape:
    """The shape of that name; KeyError if there is none."""
    return {shape.name: shape for shape in PODS}[name]
