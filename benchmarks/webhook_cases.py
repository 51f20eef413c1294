"""What the pod webhook is sent: profiles, pods that some of them match, and which of the responses is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]
_KINDS: Final = 12


@dataclass(frozen=True, slots=True)
class Case:
    """``profile`` makes one of 50 and more profiles by its number, ``matching`` says which of so many match a pod."""

    name: str
    profile: Callable[[int], Document]
    matching: Callable[[int], list[int]]
    reports: bool = False
    """Nodes report meanwhile, and the controllers in the same process reconcile them."""


def one_in_twelve(number: int) -> Document:
    """Four or five of 50 match."""
    return _profile(number, _labels(number % _KINDS), labels={_label(number): "yes"}, annotations={"by": _name(number)})


def matches_all(number: int) -> Document:
    """Every pod, and every profile has a patch."""
    patch = {
        "metadata": {"annotations": {f"patch-{number:02}": "yes"}},
        "spec": {
            "tolerations": [{"key": _name(number), "operator": "Exists"}],
            "containers": [{"name": "driver", "env": [{"name": f"PROFILE_{number:02}", "value": "yes"}]}],
        },
    }
    return _profile(number, {}, labels={_label(number): "yes"}, annotations={"by": _name(number)}, patch=patch)


def two_match(number: int) -> Document:
    """As clusters have them: one for all pods of a team, one for one of its jobs; the others are other teams'."""
    if number == 0:
        return _profile(number, {"matchLabels": {"team": "data"}}, labels={_label(number): "yes"})
    requested = [{"key": "kind", "operator": "In", "values": [f"kind-{kind}" for kind in range(_KINDS)]}]
    if number == 1:
        return _profile(
            number, {"matchExpressions": requested}, annotations={"by": _name(number)}, koordinatorPriority=9
        )
    other = {"matchLabels": {"team": f"team-{number}"}, "matchExpressions": requested}
    return _profile(number, other, labels={_label(number): "yes"})


CASES: Final = {
    case.name: case
    for case in (
        Case("some", one_in_twelve, lambda count: list(range(0, count, _KINDS))),
        Case("all", matches_all, lambda count: list(range(count))),
        Case("mix", two_match, lambda _: [0]),
        Case("mix-and-reports", two_match, lambda _: [0], reports=True),
    )
}


def review(number: int, priority: int | None = None) -> bytes:
    """The question about one pod of two containers; those of number 0 are the ones that ``matching`` speaks of."""
    resources = {"cpu": "1", "memory": "2Gi"}
    container = {
        "image": "registry.example/spark:3.5",
        "resources": {"requests": resources, "limits": resources},
        "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(20)],
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    labels = {"kind": f"kind-{number % _KINDS}", "team": "data"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "labels": labels},
        "spec": {
            "containers": [{"name": name, **container} for name in ("driver", "sidecar")],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "restartPolicy": "Never",
            **({} if priority is None else {"priority": priority}),
        },
    }
    request = {
        "uid": f"uid-{number}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": f"pod-{number}",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:job-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


def label_keys(case: Case, count: int) -> set[str]:
    """The labels that a pod of number 0 must get when there are ``count`` profiles, and no others of theirs."""
    return {_label(number) for number in case.matching(count)}


def is_label_key(key: str) -> bool:
    return key.startswith("label-")


def _profile(number: int, selector: Document, **spec: Any) -> Document:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": _name(number)},
        "spec": {"selector": selector, "qosClass": "BE", "schedulerName": "koord-scheduler", **spec},
    }


def _labels(kind: int) -> Document:
    return {"matchLabels": {"kind": f"kind-{kind}"}}


def _name(number: int) -> str:
    return f"profile-{number:02}"


def _label(number: int) -> str:
    return f"label-{number:02}"
