"""Pods, Reservations and profiles whose admission is compared with that of the original program.

Each case has profiles of its own, that choose by the label ``case``; all of them are there at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from koordinator.api.document import Document, copied
from tests.real_world.pods import PODS

RESOURCES = {"requests": {"cpu": "1", "memory": "3456Mi"}, "limits": {"cpu": "1", "memory": "3456Mi"}}
PRIORITY_CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
NAMESPACES: dict[str, dict[str, str]] = {"colocated": {"koordinator.sh/enable-colocation": "true"}, "plain": {}}
SPARK: Document = {
    "qosClass": "BE",
    "priorityClassName": "koord-batch",
    "koordinatorPriority": 1000,
    "schedulerName": "koord-scheduler",
}
EXTENDED = "node.koordinator.sh/extended-resource-spec"


@dataclass(frozen=True)
class Mutation:
    """An object that is created, and the profiles that choose it."""

    name: str
    object: Document
    profiles: list[Document] = field(default_factory=list)
    """Their specs; the selector is added. A key ``annotations!`` holds the profile's own annotations."""


@dataclass(frozen=True)
class Binding:
    """Who binds which pod; the outcome is reported by who, where and what."""

    name: str
    user: str
    namespace: str
    pod: str


@dataclass(frozen=True)
class Validation:
    """A pod that is created, or changed from ``old``."""

    name: str
    object: Document
    old: Document | None = None


def pod(
    *resources: Document, labels: dict[str, str] | None = None, namespace: str = "colocated", **spec: Any
) -> Document:
    containers = [
        {"name": f"c{at}", "image": "registry.example.com/app:1", "resources": each}
        for at, each in enumerate(resources or (copied(RESOURCES),))
    ]
    metadata = {"name": "p", "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def annotated(document: Document, **annotations: str) -> Document:
    document["metadata"]["annotations"] = {key.replace("__", "/"): value for key, value in annotations.items()}
    return document


def reservation(**spec: Any) -> Document:
    template = {"spec": {"containers": [{"name": "c0", "image": "i", "resources": copied(RESOURCES)}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "labels": {}},
        "spec": {"owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "template": template, **spec},
    }


def both(**amounts: str) -> Document:
    named = {key.replace("__", "/").replace("_", "-"): value for key, value in amounts.items()}
    return {"requests": dict(named), "limits": dict(named)}


GPU = "koordinator.sh/gpu"
IN_COLOCATED = {"namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}}}
TAINTED: dict[str, Any] = {"tolerations": [{"key": "a", "operator": "Exists"}]}

MUTATIONS = [
    Mutation("spark", pod(), [{**IN_COLOCATED, **SPARK}]),
    Mutation("spark-elsewhere", pod(namespace="plain"), [{**IN_COLOCATED, **SPARK}]),
    Mutation("no-profile", pod()),
    Mutation("no-profile-batch", pod(priority=5500)),
    Mutation("mid", pod(copied(RESOURCES), {"requests": {"cpu": "1500m"}}), [{"priorityClassName": "koord-mid"}]),
    Mutation("free", pod(), [{"priorityClassName": "koord-free"}]),
    Mutation("prod", pod(preemptionPolicy="Never"), [{"priorityClassName": "koord-prod", "qosClass": "LS"}]),
    Mutation("best-effort", pod({}), [{"labels": {"seen": "yes"}}]),
    Mutation("limits-alone", pod({"limits": {"cpu": "2", "memory": "1Gi"}}), [SPARK]),
    Mutation("requests-alone", pod({"requests": {"cpu": "100m", "memory": "1e9"}}), [SPARK]),
    Mutation("fractions", pod({"requests": {"cpu": "0.0001", "memory": "1.5Gi"}}), [SPARK]),
    Mutation(
        "init-and-overhead",
        pod(
            copied(RESOURCES),
            initContainers=[{"name": "i", "image": "i", "resources": {"requests": {"cpu": "10m"}}}],
            overhead={"cpu": "250m", "memory": "120Mi"},
        ),
        [SPARK],
    ),
    Mutation("pod-level", pod(copied(RESOURCES), resources={"requests": {"cpu": "2"}}), [SPARK]),
    Mutation("class-by-label", pod(labels={"koordinator.sh/priority-class": "koord-mid"}), [{"labels": {"a": "b"}}]),
    Mutation("be-by-label", pod(labels={"koordinator.sh/qosClass": "BE"}), [{"labels": {"a": "b"}}]),
    Mutation(
        "mappings",
        annotated(pod(labels={"a": "1", "b": "2"}), c="3"),
        [
            {
                "labels": {"x": "y"},
                "annotations": {"n": "m"},
                "labelKeysMapping": {"a": "copied-a", "missing": "copied-missing", "x": "copied-x"},
                "annotationKeysMapping": {"c": "copied-c", "missing": "copied-missing", "n": "copied-n"},
                "labelSuffixes": {"b": "-suffix", "copied-a": "-suffix", "none": "-suffix"},
            }
        ],
    ),
    Mutation("later-overrides", pod(), [{"labels": {"a": "1", "b": "1"}, "qosClass": "LS"}, {"labels": {"b": "2"}}]),
    Mutation("never", pod(), [{**SPARK, "probability": 0}]),
    Mutation("never-but-batch", pod(priority=5500), [{**SPARK, "probability": "0%"}]),
    Mutation("always", pod(), [{**SPARK, "probability": "100%"}]),
    Mutation(
        "keeps-resources",
        pod(),
        [{**SPARK, "annotations!": {"config.koordinator.sh/skip-update-resources": ""}}, {"labels": {"a": "b"}}],
    ),
    Mutation(
        "patch",
        pod(**TAINTED, nodeSelector={"a": "b"}, terminationGracePeriodSeconds=10),
        [
            {
                **SPARK,
                "patch": {
                    "metadata": {"labels": {"patched": "yes"}, "annotations": {"x": "y"}, "finalizers": ["e.com/f"]},
                    "spec": {
                        "nodeSelector": {"a": None, "c": "d"},
                        "terminationGracePeriodSeconds": None,
                        "tolerations": [{"key": "b", "operator": "Exists"}],
                        "containers": [
                            {"name": "c0", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "2"}}},
                            {"name": "sidecar", "image": "s", "resources": {"requests": {"cpu": "1500m"}}},
                        ],
                        "volumes": [{"name": "v", "emptyDir": {}}],
                    },
                },
            }
        ],
    ),
    Mutation(
        "patch-directives",
        pod(copied(RESOURCES), {}, **TAINTED),
        [
            {
                "patch": {
                    "spec": {
                        "containers": [{"name": "c1", "$patch": "delete"}],
                        "affinity": {"$patch": "replace", "podAffinity": {}},
                    }
                }
            }
        ],
    ),
    Mutation(
        "expressions",
        pod(labels={"tier": "two"}),
        [
            {
                "labels": {"seen": "yes"},
                "selector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["one"]}]},
            },
            {
                "labels": {"wrong": "yes"},
                "selector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            },
        ],
    ),
    Mutation("batch-already", pod(both(kubernetes_io__batch_cpu="500")), [{"labels": {"a": "b"}}]),
    Mutation("no-profile-batch-resources", pod({"limits": {"kubernetes.io/batch-memory": "1024Mi"}})),
    Mutation("extended-stale", annotated(pod(), **{EXTENDED: '{"containers":{"old":{}}}'})),
    Mutation("extended-empty", annotated(pod(), **{EXTENDED: "{}"})),
    Mutation("extended-broken", annotated(pod(), **{EXTENDED: "{"})),
    Mutation("gpu", pod({"requests": {GPU: "200"}, "limits": {GPU: "200"}})),
    Mutation("gpu-half", pod({"requests": {GPU: "50"}, "limits": {GPU: "50"}}), [SPARK]),
    Mutation("gpu-core", pod({"requests": {f"{GPU}-core": "300"}, "limits": {f"{GPU}-core": "300"}})),
    Mutation(
        "gpu-shared",
        pod({"requests": {f"{GPU}.shared": "2", f"{GPU}-memory-ratio": "200"}, "limits": {f"{GPU}.shared": "2"}}),
    ),
    Mutation("priority-class-missing", pod(), [{"priorityClassName": "gone"}]),
    Mutation("reservation", reservation(), [{**SPARK, "labels": {"a": "b"}, "annotations": {"c": "d"}}]),
    Mutation("reservation-without-template", reservation(template=None), [{**SPARK, "annotations": {"c": "d"}}]),
    Mutation(
        "reservation-patch",
        reservation(),
        [
            {
                **IN_COLOCATED,
                "patch": {
                    "metadata": {"labels": {"x": "y"}},
                    "spec": {
                        "ttl": "1h0m0s",
                        "owners": [{"object": {"name": "b"}}],
                        "template": {"spec": {"containers": [{"name": "c0", "image": "patched"}], **TAINTED}},
                    },
                },
            }
        ],
    ),
    *(Mutation(f"shape-{shape.name}", shape.document("colocated"), [SPARK]) for shape in PODS),
]


def labelled(qos: str, priority: int | None = None, requests: Document | None = None, **more: str) -> Document:
    labels = {key.replace("__", "/"): value for key, value in more.items()}
    if qos:
        labels["koordinator.sh/qosClass"] = qos
    document = pod({"requests": requests or {}}, labels=labels)
    if priority is not None:
        document["spec"]["priority"] = priority
    return document


BATCH = {"kubernetes.io/batch-cpu": "1k"}
VALIDATIONS = [
    Validation("plain", labelled("")),
    Validation("batch", labelled("BE", 5000, BATCH)),
    Validation("batch-without-be", labelled("LS", 5000, BATCH)),
    Validation("be-without-priority", labelled("BE")),
    Validation("be-prod", labelled("BE", 9000)),
    Validation("lsr", labelled("LSR", 9000, {"cpu": "2"})),
    Validation("lsr-mid-without-cpu", labelled("LSR", 7000)),
    Validation("lsr-fraction", labelled("LSR", 9000, {"cpu": "1500m"})),
    Validation("lse-free", labelled("LSE", 3000, {"cpu": "1"})),
    Validation("lse-fraction", labelled("LSE", 9000, {"cpu": "0.0001"})),
    Validation("unknown-qos", labelled("VERY", 9000, BATCH)),
    Validation("reserved-annotation", annotated(pod(), **{"scheduling.koordinator.sh__reserve-pod": "true"})),
    Validation("changed-all", labelled("LS", 9000, koordinator_sh="x"), labelled("BE", 5000)),
    Validation(
        "changed-sub-priority",
        labelled("", None, None, **{"koordinator.sh__priority": "1"}),
        labelled("", None, None, **{"koordinator.sh__priority": "2"}),
    ),
    Validation("unchanged", labelled("BE", 5000, BATCH), labelled("BE", 5000, BATCH)),
    Validation("within-class", labelled("BE", 5001), labelled("BE", 5000)),
    Validation("gpu-and-shared", pod({"requests": {GPU: "100", f"{GPU}.shared": "1"}})),
    Validation("gpu-150", pod({"requests": {GPU: "150"}})),
    Validation("gpu-shared-alone", pod({"requests": {f"{GPU}.shared": "0"}})),
    Validation(
        "gpu-indivisible",
        pod({"requests": {f"{GPU}.shared": "2", f"{GPU}-core": "101", f"{GPU}-memory-ratio": "101"}}),
    ),
]

BOUND_PODS: dict[str, dict[str, str]] = {"bound": {}, "bypassing": {"koordinator.sh/binding-admission-bypass": "no"}}
BINDINGS = [
    Binding("allowed-user", "system:serviceaccount:koordinator-system:koord-scheduler", "colocated", "bound"),
    Binding("other-user", "system:kube-scheduler", "colocated", "bound"),
    Binding("other-user-elsewhere", "system:kube-scheduler", "plain", "bound"),
    Binding("other-user-excluded", "system:kube-scheduler", "kube-system", "bound"),
    Binding("other-user-bypass", "system:kube-scheduler", "colocated", "bypassing"),
    Binding("other-user-unknown-pod", "system:kube-scheduler", "colocated", "gone"),
]

TERMINATING = labelled("BE", 9000)
TERMINATING["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/f"])
DIFFERENT_VALIDATIONS = [
    Validation("a-violation-that-was-there-before", labelled("BE", 9000, None, other="x"), labelled("BE", 9000)),
    Validation("a-finalizer-that-goes", labelled("BE", 9000), TERMINATING),
]
"""The original refuses these, and we do not."""
DIFFERENT_MUTATIONS = [
    Mutation("gpu-without-limits", pod({"requests": {GPU: "100"}})),
]
"""The original fails on these, and we do not."""
