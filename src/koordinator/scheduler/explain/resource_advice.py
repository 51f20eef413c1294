"""What to do when nodes have too little of a resource: how much is missing, and where the least is."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.amounts import amount_of, amount_text


def advise_on_resources(reasons: Sequence[str], pod: PodInfo, view: ClusterView, rows: Rows) -> list[str]:
    """A sentence for each of the reasons of NodeResourcesFit; ``rows`` are the nodes that have too little of
    something, but that the pod could use otherwise; none when it could not use any node."""
    return [_sentence(reason, pod, view, rows) for reason in reasons]


def _sentence(reason: str, pod: PodInfo, view: ClusterView, rows: Rows) -> str:
    if reason == "Too many pods":
        return "Nodes have no room for one more pod: add a node, or raise the kubelet's maxPods."
    resource = reason.removeprefix("Insufficient ")
    columns = view.columns
    column = columns.resources.column(resource)
    columns.fit_resources()
    amount = pod.request.amounts.get(column, 0)
    wanted = amount_of(resource, amount)
    if not rows.shape[0]:
        return f"The pod requests {wanted}, but there is no node that it could use at all."
    offered = columns.allocatable[rows, column]
    free = offered - columns.requested[rows, column]
    largest, roomiest = int(offered.argmax()), int(free.argmax())
    if offered[largest] < amount:
        return _never(resource, wanted, int(offered[largest]), columns.names[int(rows[largest])])
    most = int(free[roomiest])
    if most >= amount:
        return f"The pod requests {wanted}; {columns.names[int(rows[roomiest])]} has as much free by now."
    return (
        f"The pod requests {wanted}. Among the nodes that are too full for that, {columns.names[int(rows[roomiest])]} "
        f"has the most free, {amount_text(resource, max(most, 0))}: short by {amount_text(resource, amount - most)}. "
        "Request less, make room, or add a node."
    )


def _never(resource: str, wanted: str, largest: int, name: str) -> str:
    if not largest:
        return f"No node that the pod could use offers any {resource}: add one that does, or drop the request."
    return (
        f"The pod requests {wanted}, for which nodes are too small: the largest of them, {name}, has "
        f"{amount_text(resource, largest)} in all. Request less, or add a larger node."
    )
