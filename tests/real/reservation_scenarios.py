"""More of what is done to Reservations and pods, to compare what becomes of them with the original's scheduler: owners,
policies, affinity, taints, changes in use, and nodes that come, go and keep some of their resources back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.real.reservation_runs import AddNode, Change, Delete, Ready, Scenario, pod, reservation

_A, _NEW = "node-0", "node-2"
_SHARED: Final[Any] = {"allocateOnce": False}
_RESTRICTED: Final[Any] = {**_SHARED, "allocatePolicy": "Restricted"}
_DOMAIN: Final = "scheduling.koordinator.sh"
_NODE_RESERVATION: Final = "node.koordinator.sh/reservation"
_REPLICA_SET: Final[Any] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "uid-web",
    "controller": True,
}


def _annotated(name: str, value: Any) -> dict[str, str]:
    return {name: json.dumps(value)}


def _controlled(document: dict[str, Any], name: str = "web") -> dict[str, Any]:
    """The pod, made by a ReplicaSet."""
    reference = {**_REPLICA_SET, "name": name, "uid": f"uid-{name}"}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [reference]}}


def _pinned(document: dict[str, Any], node: str) -> dict[str, Any]:
    """The Reservation, with the node in its template."""
    spec = document["spec"]
    template = {"spec": {**spec["template"]["spec"], "nodeName": node}}
    return {**document, "spec": {**spec, "template": template}}


def _placed(document: dict[str, Any], node: str) -> dict[str, Any]:
    """The pod, on a node without a scheduler."""
    return {**document, "spec": {**document["spec"], "nodeName": node}}


def _term(operator: str, *values: str) -> dict[str, Any]:
    expression: Mapping[str, Any] = {"key": "k", "operator": operator, **({"values": values} if values else {})}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [_expressions(expression)]}}


def _expressions(*found: Mapping[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(found)}


_BY_SET: Final[Any] = {"controller": {**_REPLICA_SET, "namespace": "default"}}
_LABELLED: Final[Any] = {"labelSelector": {"matchLabels": {"app": "web"}}}

OWNERS: Final = (
    Scenario(
        "for the pods of a ReplicaSet", (reservation("r", node=_A, owner=_BY_SET), _controlled(pod("o", node=_A)))
    ),
    Scenario(
        "not for those of another ReplicaSet",
        (reservation("r", node=_A, owner=_BY_SET), _controlled(pod("o", node=_A), "other")),
    ),
    Scenario(
        "not for those of a ReplicaSet elsewhere",
        (
            reservation("r", node=_A, owner={"controller": {**_REPLICA_SET, "namespace": "elsewhere"}}),
            _controlled(pod("o", node=_A)),
        ),
    ),
    Scenario("for everybody", (reservation("r", node=_A, owner={"labelSelector": {}}), pod("o", node=_A, app="other"))),
    Scenario(
        "one of two owners",
        (
            reservation("r", node=_A, owners=[{"labelSelector": {"matchLabels": {"app": "no"}}}, _LABELLED]),
            pod("o", node=_A),
        ),
    ),
    Scenario(
        "both of what an owner says",
        (reservation("r", node=_A, owner={**_LABELLED, "object": {"name": "o2"}}), pod("o", node=_A)),
    ),
    Scenario(
        "owners by an expression",
        (
            reservation(
                "r",
                node=_A,
                owner={"labelSelector": _expressions({"key": "app", "operator": "NotIn", "values": ["web"]})},
            ),
            pod("o", node=_A, app="other"),
        ),
    ),
    Scenario(
        "owners by an expression that is wrong",
        (
            reservation("r", "1", node=_A, owner={"labelSelector": _expressions({"key": "app", "operator": "Near"})}),
            pod("o", "1", affinity={}),
        ),
    ),
    Scenario(
        "its owners change",
        (
            reservation("r", node=_A),
            Change("r", {"spec": {"owners": [{"labelSelector": {"matchLabels": {"app": "late"}}}]}}),
            pod("o", node=_A),
            pod("late", node=_A, app="late"),
        ),
    ),
    Scenario(
        "who ignores Reservations takes their room",
        (reservation("r", node=_A), pod("p", node=_A, app="other", reservation_ignored="true")),
    ),
    Scenario(
        "it is closed while it is in use",
        (
            reservation("r", node=_A, **_SHARED),
            pod("o1", "1", node=_A),
            Change("r", {"spec": {"unschedulable": True}}),
            pod("o2", "1", affinity={}),
        ),
    ),
    Scenario(
        "it gets a taint while it is in use",
        (
            reservation("r", node=_A, **_SHARED),
            pod("o1", "1", node=_A),
            Change("r", {"spec": {"taints": [{"key": "t", "value": "v", "effect": "NoExecute"}]}}),
            pod("o2", "1", affinity={}),
        ),
    ),
    Scenario(
        "another taint than that which is tolerated",
        (
            reservation("r", node=_A, taints=[{"key": "t", "value": "v", "effect": "NoSchedule"}]),
            pod("o", affinity={"tolerations": [{"key": "t", "operator": "Equal", "value": "w"}]}),
        ),
    ),
    Scenario(
        "affinity by a term that excludes",
        (reservation("r", "1", labels={"k": "v"}), pod("o", "1", affinity=_term("NotIn", "v"))),
    ),
    Scenario(
        "affinity by a label that is there",
        (reservation("r", "1", labels={"k": "v"}), pod("o", "1", affinity=_term("Exists"))),
    ),
)
CAPACITY: Final = (
    Scenario(
        "aligned: more than reserved",
        (reservation("r", "2", node=_A, allocatePolicy="Aligned", **_SHARED), pod("o", "4", node=_A)),
    ),
    Scenario(
        "aligned: others leave no more than reserved",
        (
            reservation("r", "2", node=_A, allocatePolicy="Aligned", **_SHARED),
            pod("p", "2", node=_A, app="other"),
            pod("o", "3", affinity={}),
        ),
    ),
    Scenario(
        "restricted: up to the brim",
        (
            reservation("r", "2", node=_A, **_RESTRICTED),
            pod("o1", "1", affinity={}),
            pod("o2", "1", affinity={}),
            pod("o3", "1", affinity={}),
        ),
    ),
    Scenario(
        "restricted: only in CPU",
        (
            reservation(
                "r",
                "2",
                node=_A,
                annotations=_annotated(f"{_DOMAIN}/reservation-restricted-options", {"resources": ["cpu"]}),
                **_RESTRICTED,
            ),
            pod("o1", "2", "3Gi", affinity={}),
            pod("o2", "1", affinity={}),
        ),
    ),
    Scenario(
        "it is resized when it is bound",
        (
            reservation(
                "r",
                "2",
                node=_A,
                annotations=_annotated(
                    f"{_DOMAIN}/reservation-resize-allocatable", {"resources": {"cpu": "3", "memory": "1Gi"}}
                ),
                **_RESTRICTED,
            ),
            pod("o", "3", affinity={}),
        ),
    ),
    Scenario(
        "it keeps a part back",
        (
            reservation(
                "r", "3", node=_A, annotations=_annotated(_NODE_RESERVATION, {"resources": {"cpu": "2"}}), **_RESTRICTED
            ),
            pod("o1", "2", affinity={}),
            pod("o2", "1", affinity={}),
        ),
    ),
    Scenario("its template names a node", (_pinned(reservation("r", "1"), "node-1"), pod("o", "1", affinity={}))),
    Scenario(
        "its template names a node that is full",
        (pod("p", "4", node="node-1", app="other"), _pinned(reservation("r", "1"), "node-1")),
    ),
    Scenario("its template names a node that is not there", (_pinned(reservation("r", "1"), "nowhere"),)),
    Scenario("one that never expires", (reservation("r", "1", node=_A, ttl="0s"), pod("o", "1", affinity={}))),
    Scenario(
        "its node is deleted",
        (AddNode(_NEW), reservation("r", node=_NEW), Delete(_NEW, "Node"), pod("o", "1", affinity={})),
    ),
    Scenario(
        "its node is deleted while it is in use",
        (AddNode(_NEW), reservation("r", node=_NEW, **_SHARED), pod("o", "1", node=_NEW), Delete(_NEW, "Node")),
    ),
    Scenario(
        "a node keeps some of its CPUs back",
        (
            AddNode(_NEW, _annotated(_NODE_RESERVATION, {"resources": {"cpu": "2"}})),
            pod("p1", "3", node=_NEW),
            pod("p2", "2", node=_NEW),
        ),
    ),
    Scenario(
        "a node keeps CPUs by their numbers back",
        (
            AddNode(_NEW, _annotated(_NODE_RESERVATION, {"reservedCPUs": "0-1", "resources": {"memory": "6Gi"}})),
            reservation("r", "3", node=_NEW),
            pod("p", "1", "3Gi", node=_NEW),
        ),
    ),
    Scenario(
        "what a node keeps back limits nobody",
        (
            AddNode(
                _NEW, _annotated(_NODE_RESERVATION, {"applyPolicy": "ReservedCPUsOnly", "resources": {"cpu": "2"}})
            ),
            pod("p", "3", node=_NEW),
        ),
    ),
    Scenario(
        "what a node keeps back cannot be read", (AddNode(_NEW, {_NODE_RESERVATION: "{"}), pod("p", "3", node=_NEW))
    ),
)
_TAKING: Final[Any] = {**_RESTRICTED, "preAllocation": True}
_SEVERAL: Final[Any] = {**_TAKING, "preAllocationPolicy": {"enableMultiple": True}}
_REQUIRED: Final = {f"{_DOMAIN}/pre-allocation-required": "true"}
_TAINT: Final = {"key": "t", "value": "v", "effect": "NoSchedule"}

TAKING_OVER: Final = (
    Scenario(
        "who could be taken over makes too little room",
        (
            pod("o", "1", node=_A),
            pod("p", "3", node=_A, app="other"),
            reservation("r", "4", node=_A, **_TAKING),
        ),
    ),
    Scenario(
        "who could be taken over is too large",
        (pod("o", "3", node=_A), reservation("r", "2", node=_A, labels=_REQUIRED, **_TAKING)),
    ),
    Scenario(
        "who could be taken over asks for another",
        (
            pod("o1", "1", node=_A),
            _placed(pod("o2", "1", affinity={"name": "other"}), _A),
            _placed(pod("o3", "1", affinity={"reservationSelector": {"k": "v"}}), _A),
            reservation("r", "9", node=_A, **_TAKING),
        ),
    ),
    Scenario(
        "who could be taken over is on two nodes",
        (
            pod("o1", "1", node=_A),
            pod("o2", "1", node="node-1"),
            pod("o3", "1", node="node-1"),
            reservation("r", "9", **_TAKING),
        ),
    ),
    Scenario(
        "who could be taken over is where it may not go",
        (pod("o", "1", node="node-1"), reservation("r", "9", node=_A, **_TAKING)),
    ),
    Scenario(
        "who could be taken over does not tolerate it",
        (pod("o", "1", node=_A), reservation("r", "9", node=_A, taints=[_TAINT], **_TAKING)),
    ),
    Scenario(
        "who could be taken over must match exactly",
        (pod("o", "1", node=_A, exact=("cpu",)), reservation("r", "9", node=_A, **_TAKING)),
    ),
    Scenario(
        "even several make too little room",
        (
            pod("o1", "1", node=_A),
            pod("o2", "1", node=_A),
            pod("p", "2", node=_A, app="other"),
            reservation("r", "4", node=_A, **_SEVERAL),
        ),
    ),
)
ELSEWHERE: Final = (
    Scenario("what it owns is where it may not go", (reservation("r", node="node-1"), pod("o", "9", node=_A))),
    Scenario(
        "what it must use is where it may not go",
        (reservation("r", node="node-1"), pod("o", "1", node=_A, affinity={})),
    ),
    Scenario(
        "one of two that it owns is where it may not go",
        (
            reservation("r1", "1", node=_A, unschedulable=True),
            reservation("r2", "1", node="node-1", unschedulable=True),
            pod("o", "1", node=_A, affinity={}),
        ),
    ),
    Scenario(
        "one of two that it could use is where it may not go",
        (
            reservation("r1", "1", node=_A, **_RESTRICTED),
            reservation("r2", "1", node="node-1", **_RESTRICTED),
            pod("o", "2", node=_A, affinity={}),
        ),
    ),
)
_OPERATING: Final[Any] = {"operating_mode": "Reservation", "owners": [_LABELLED]}

OPERATING: Final = (
    Scenario(
        "a pod that reserves beside a Reservation of others",
        (reservation("r", "1", node=_A), pod("k", "1", node=_A, app="keeper", **_OPERATING)),
    ),
    Scenario(
        "a pod that reserves beside its own Reservation",
        (reservation("r", "1", node=_A), pod("k", "1", node=_A, **_OPERATING)),
    ),
    Scenario(
        "a pod that reserves beside its own aligned Reservation",
        (reservation("r", "1", node=_A, allocatePolicy="Aligned"), pod("k", "1", node=_A, **_OPERATING)),
    ),
    Scenario(
        "a pod that reserves and who uses it both count",
        (
            pod("k", "2", node=_A, app="keeper", **_OPERATING),
            Ready("k"),
            pod("o", "2", node=_A),
            # The original notices with the next event of the pod that it is used up.
            Ready("k", "still"),
            pod("p", "1", node=_A, app="other"),
        ),
    ),
)
