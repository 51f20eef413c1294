"""Simulates what happens to pods beside scheduling, as far as it affects placements: kubelets start and end them,
controllers replace evicted ones, disruption budgets count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from koordinator.api.annotations import (
    BIND_GANG_KEYS,
    BIND_TIMESTAMP,
    CAMBRICON_ASSIGNED,
    CAMBRICON_PROFILE,
    DEVICE_ALLOCATED,
    GPU_MINORS,
    HUAWEI_ASCEND_310P,
    HUAWEI_NPU_CORE,
    HUAWEI_PREDICATE_TIME,
    METAX_GPU_DEVICES_ALLOCATED,
    RESERVATION_ALLOCATED,
    RESOURCE_STATUS,
)
from koordinator.api.document import Document, copied
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, PODS
from koordinator.api.labels import HAMI_VGPU_NODE
from koordinator.api.timestamps import format_time
from koordinator.cluster.disruption import ControllerReplicas, budget_status
from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.interface import Change
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import NoWebhooks
from koordinator.cluster.verbs.eviction import budgets_of, selects, set_allowed_condition
from koordinator.cluster.verbs.target import Target, decode
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.pod_documents import is_finished, owner_of

Cause = Literal["preempted", "evicted", "drained", "node removed", "scaled down", "deleted"]
NOT_REPLACED: Final = ("DaemonSet", "Node")
"""Controllers whose pods belong to one node, so that they are not replaced elsewhere."""
_INTENDED: Final = ("scaled down", "deleted")
"""Causes after which pods are not replaced."""
FROM_SCHEDULER: Final = frozenset(
    {
        RESOURCE_STATUS, DEVICE_ALLOCATED, RESERVATION_ALLOCATED, BIND_TIMESTAMP, GPU_MINORS, *BIND_GANG_KEYS,
        HUAWEI_PREDICATE_TIME, HUAWEI_NPU_CORE, HUAWEI_ASCEND_310P, CAMBRICON_ASSIGNED, CAMBRICON_PROFILE,
        METAX_GPU_DEVICES_ALLOCATED,
    }
)  # fmt: skip
"""Annotations that record a pod's placement; its replacement starts without them."""
_OVERDUE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Departure:
    """A pod that has left its node, or that was pending and is gone."""

    pod: Document
    """Its last state."""
    cause: Cause
    by: str = ""
    """The preemptor, ``namespace/name``."""
    replacement: str = ""
    """The uid of the pod that its controller has created instead."""
    not_replaced: str = ""
    """Why there is no replacement."""

    @property
    def node(self) -> str:
        return str(self.pod["spec"].get("nodeName") or "")


class PodLife:
    """``preemptors``: the uid of a victim -> its preemptor. Call ``react`` until it returns False."""

    def __init__(self, api: InProcessApi, preemptors: Mapping[str, str]) -> None:
        self._api = api
        self._preemptors = preemptors
        self._resource = api.resource(PODS)
        self._revision = api.environment.storage.revision()
        # A replacement is made from the previous pod, which admission webhooks have changed already.
        self._unchanged = replace(api.environment, webhooks=NoWebhooks())
        self.departures: dict[str, Departure] = {}
        """By uid, in the order in which they left."""
        self.causes: dict[str, Cause] = {}
        """By uid: the cause of a pod's end, where it is known before the end."""
        self._replicas = ControllerReplicas(api.environment)

    async def react(self) -> bool:
        """Act as kubelets and controllers on the changes since the last call; False where there were none."""
        changes = self._changes()
        for change in changes:
            pod = decode(self._resource, change.current)
            if change.type == "deleted":
                await self._left(pod)
            elif pod["metadata"].get("deletionTimestamp"):
                await self._end(pod)
            elif pod["spec"].get("nodeName") and not _node_of(change):
                await self._start(pod)
        await self._count_budgets(changes)
        return bool(changes)

    async def begin(self) -> None:
        """Finish what was in progress when the snapshot was taken: terminating pods end, and budgets that changed are
        counted. A pod whose end is long overdue stays, since its node does not respond."""
        late = self._api.environment.clock.now() - _OVERDUE
        for pod in self._api.documents(PODS):
            due = pod["metadata"].get("deletionTimestamp")
            if due and datetime.fromisoformat(due) >= late:
                self.departures[pod["metadata"]["uid"]] = Departure(pod, "deleted")
                await self._end(pod)
        await self.count_changed_budgets()

    async def count_changed_budgets(self) -> None:
        """Update the status of budgets whose spec has changed since it was written."""
        for budget in self._api.documents(POD_DISRUPTION_BUDGETS):
            observed = (budget.get("status") or {}).get("observedGeneration") or 0
            if observed < (budget["metadata"].get("generation") or 0):
                await self._count(budget)

    def _changes(self) -> list[Change]:
        """The last change of each pod, with its first and last state."""
        storage = self._api.environment.storage
        if storage.revision() == self._revision:
            return []
        found: dict[str, Change] = {}
        for change in self._api.changes(PODS, self._revision):
            before = found.pop(change.key, None)
            first = change if before is None or before.type == "deleted" else before
            found[change.key] = Change(change.type, change.current, first.previous)
        self._revision = storage.revision()
        return list(found.values())

    async def _start(self, pod: Document) -> None:
        """The kubelet of the node runs the pod; it becomes ready at once."""
        now = format_time(self._api.environment.clock.now())
        status = pod.setdefault("status", {})
        kept = [each for each in status.get("conditions") or () if each.get("type") not in ("Ready", "ContainersReady")]
        ready = [{"type": name, "status": "True", "lastTransitionTime": now} for name in ("Ready", "ContainersReady")]
        status |= {"phase": "Running", "startTime": now, "conditions": [*kept, *ready]}
        await self._api.put(PODS, pod)

    async def _end(self, pod: Document) -> None:
        """The kubelet has ended it; its finalizers are removed by their owners."""
        await self._api.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    async def _left(self, pod: Document) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.departures:
            return
        by = self._preemptors.get(uid, "")
        cause = self.causes.get(uid) or ("preempted" if by else "evicted")
        departure = self.departures[uid] = Departure(pod, cause, by)
        if cause in _INTENDED:
            return
        departure.not_replaced = why_not_replaced(pod)
        if not departure.not_replaced:
            await self._replace(departure)

    async def _replace(self, departure: Departure) -> None:
        """The pod's controller creates another one, from the same template."""
        new = as_new(departure.pod)
        try:
            stored = await create(self._unchanged, Target(self._resource, new["metadata"]["namespace"]), new)
        except ApiError as error:
            departure.not_replaced = error.message
            return
        departure.replacement = decode(self._resource, stored)["metadata"]["uid"]

    async def _count_budgets(self, changes: Iterable[Change]) -> None:
        """Update the status of the budgets over these pods."""
        environment = self._api.environment
        if not environment.storage.list(self._api.resource(POD_DISRUPTION_BUDGETS).prefix, limit=1).items:
            return
        touched: dict[tuple[str, str], Document] = {}
        for change in changes:
            for budget in budgets_of(environment, decode(self._resource, change.current)):
                touched[budget["metadata"]["namespace"], budget["metadata"]["name"]] = budget
        for budget in touched.values():
            await self._count(budget)

    async def _count(self, budget: Document) -> None:
        pods = [
            pod
            for pod in self._api.documents(PODS, budget["metadata"]["namespace"])
            if selects(budget, pod["metadata"].get("labels") or {})
        ]
        await self._api.put(POD_DISRUPTION_BUDGETS, {**budget, "status": self._budget_status(budget, pods)})

    def _budget_status(self, budget: Document, pods: list[Document]) -> Document:
        now = self._api.environment.clock.now()
        status = budget_status(budget, pods, self._replicas, now)
        if "desiredHealthy" not in (budget.get("status") or {}) or not _is_failed(status):
            return status
        # The controller of these pods is not in the snapshot: its replicas are assumed to be as they were then.
        result: Document = copied(budget)
        known = result["status"]
        healthy = sum(_is_ready(pod) for pod in pods)
        known["currentHealthy"] = healthy
        known["disruptionsAllowed"] = max(0, healthy - known["desiredHealthy"])
        set_allowed_condition(result, now)
        return dict(known)


def why_not_replaced(pod: Document) -> str:
    """Why the pod is not replaced; empty where its controller replaces it."""
    owner = owner_of(pod)
    if owner is None:
        return "no controller makes it again"
    if is_finished(pod):
        return "it had finished"
    if owner["kind"] in NOT_REPLACED:
        return f"it belongs to its node ({owner['kind']})"
    return ""


def as_new(pod: Document) -> Document:
    """The pod as its controller would create it again: without its node, its status, and its allocations."""
    metadata, owner = pod["metadata"], owner_of(pod)
    annotations = {key: text for key, text in (metadata.get("annotations") or {}).items() if key not in FROM_SCHEDULER}
    labels = {key: text for key, text in (metadata.get("labels") or {}).items() if key != HAMI_VGPU_NODE}
    new: Document = {"namespace": metadata["namespace"], "labels": labels}
    new |= {"annotations": annotations, "ownerReferences": metadata.get("ownerReferences") or []}
    if owner is not None and owner["kind"] == "StatefulSet":
        new["name"] = metadata["name"]
    else:
        new["generateName"] = metadata.get("generateName") or f"{owner['name'] if owner else metadata['name']}-"
    spec = copied(pod["spec"])
    for name in ("nodeName", "priority", "preemptionPolicy"):
        # Admission computes the last two from the priority class.
        spec.pop(name, None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": new, "spec": spec}


def _node_of(change: Change) -> str:
    """The node of the pod before the change."""
    if change.previous is None:
        return ""
    return str(msgspec.json.decode(change.previous.value)["spec"].get("nodeName") or "")


def _is_failed(status: Document) -> bool:
    return any(found.get("reason") == "SyncFailed" for found in status.get("conditions") or ())


def _is_ready(pod: Document) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)
