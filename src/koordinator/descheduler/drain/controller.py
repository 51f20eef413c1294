"""The controller of DrainNodes: gathers what there is, decides, and carries it out, one DrainNode at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api.codec import DecodeError, decode, decode_any
from koordinator.api.document import Document
from koordinator.api.drain_node import CordonPolicy, DrainNode
from koordinator.api.kinds import DRAIN_NODES, NODES, PODS, RESERVATIONS
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.descheduler.drain.decision import decide
from koordinator.descheduler.drain.objects import cordon_patch, reservation_for, uncordon_patch
from koordinator.descheduler.drain.plan import (
    CORDONED_BY,
    DRAIN_NODE,
    DRAINED_NODE,
    Cordon,
    DrainFacts,
    ReservePlace,
)
from koordinator.descheduler.drain.pod_rules import MakePolicy, PodRules
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.workloads import FRESH, Workloads
from koordinator.descheduler.plan_controller import ObjectPlan, PlanController, PlannedEvent, age_order
from koordinator.kube.interface import PatchType
from koordinator.kube.reconciler import Reconcilers
from koordinator.model.label_selector import SelectorError

_PERIOD: Final = 3.0
_UNREADABLE: Final = 60.0
"""Seconds until a DrainNode whose selector cannot be read is looked at again: its time to live may have passed."""
_DAY: Final = 24 * 3600.0
_BY_DRAIN_NODE: Final = "drain node"
_ACTIVE: Final = ("", drains.PENDING, drains.RUNNING, drains.COMPLETE)


class DrainController(PlanController[DrainNode]):
    """Decides about one DrainNode after the other."""

    def __init__(
        self,
        handle: Handle,
        reconcilers: Reconcilers,
        cluster: MigrationLister,
        workloads: Workloads,
        make_policy: MakePolicy,
        scheduler_names: Sequence[str],
    ) -> None:
        """``make_policy`` gives why MigrationController would not move a pod under a DrainNode's spec."""
        super().__init__("drains", DRAIN_NODES, handle, reconcilers)
        self._cluster = cluster
        self._workloads = workloads
        self._make_policy = make_policy
        self._scheduler_names = scheduler_names
        self._nodes = handle.informers.informer(NODES)
        cluster.reservations.add_index(_BY_DRAIN_NODE, _drain_node_of)
        cluster.job_informer.add_index(_BY_DRAIN_NODE, _drain_node_of)
        metrics = handle.metrics
        self._pods_gauge = metrics.gauge(
            "descheduler_drain_node_pods", "Pods of a DrainNode, by their phase", ("drain_node", "phase")
        )
        self._results = metrics.counter("descheduler_drain_nodes_total", "DrainNodes, by how they ended", ("result",))
        self._add_handlers()

    async def reconcile(self, name: str) -> float | None:
        try:
            return await super().reconcile(name)
        except SelectorError as error:
            if (found := self._objects.get(name)) is not None:
                self._record(found, PlannedEvent("Warning", "InvalidPodSelector", f"spec.podSelector: {error}"))
            return _UNREADABLE

    def _due(self, drain: DrainNode, plan: ObjectPlan) -> float | None:
        is_over = plan.status.phase == drains.ABORTED and not drain.spec.ttl
        return None if is_over and not plan.actions else _PERIOD

    async def _intentions_for(self, drain: DrainNode) -> list[str]:
        try:
            return await super()._intentions_for(drain)
        except SelectorError as error:
            return [f"nothing, spec.podSelector is invalid: {error}"]

    def _subject(self, drain: DrainNode) -> str:
        return f"DrainNode {drain.metadata.name} of node {drain.spec.node_name}"

    async def _prepare(self, found: DrainNode) -> None:
        await self._workloads.refresh(self._cluster.pods_on(found.spec.node_name), older_than=FRESH)

    def _decide(self, found: DrainNode) -> tuple[DrainNode, ObjectPlan]:
        """The DrainNode as the decision sees it, and the plan. SelectorError for a selector that is none."""
        drain = _as_begun(found)
        is_renamed = found.spec.node_name != drain.spec.node_name
        facts = self._facts(drain, renamed_to=found.spec.node_name if is_renamed else "")
        rules = PodRules(drain.spec, self._scheduler_names, self._make_policy)
        return drain, decide(drain, facts, rules, self._clock.now())

    def _add_handlers(self) -> None:
        self._objects.add_handlers(
            name="drain",
            on_add=lambda drain, _: self._see(drain),
            on_update=lambda _, drain: self._see(drain),
            on_delete=self._forget,
        )
        for informer in (self._cluster.reservations, self._cluster.job_informer):
            informer.add_handlers(
                name="drain",
                on_update=lambda _, owned: self._add_drain_of(owned),
                on_delete=self._add_drain_of,
            )

    def _add_drain_of(self, owned: Object) -> None:
        for name in _drain_node_of(owned):
            self._reconciler.add(name)

    def _see(self, drain: DrainNode) -> None:
        for phase, count in drain.status.pod_migration_summary.items():
            self._pods_gauge.labels(drain.metadata.name, phase).set(count)
        self._reconciler.add(drain.metadata.name)

    def _forget(self, drain: DrainNode) -> None:
        for phase in drains.POD_PHASES:
            if drain.status.pod_migration_summary:
                self._pods_gauge.remove(drain.metadata.name, phase)

    def _facts(self, drain: DrainNode, renamed_to: str) -> DrainFacts:
        name, node = drain.metadata.name, drain.spec.node_name
        reservations = self._cluster.reservations.by_index(_BY_DRAIN_NODE, name)
        jobs = self._cluster.job_informer.by_index(_BY_DRAIN_NODE, name)
        return DrainFacts(
            self._nodes.get(node),
            self._cluster.pods_on(node),
            {each.metadata.name: each for each in reservations},
            {each.metadata.name: each for each in jobs},
            self._drained_by(drain),
            renamed_to,
        )

    def _drained_by(self, drain: DrainNode) -> str:
        """The oldest other DrainNode of the node, if it is older."""
        rivals = [
            each
            for each in self._objects.list()
            if each.spec.node_name == drain.spec.node_name and each.status.phase in _ACTIVE
        ]
        oldest = min([*rivals, drain], key=age_order)
        return oldest.metadata.name if oldest.metadata.name != drain.metadata.name else ""

    def _on_status(self, drain: DrainNode, plan: ObjectPlan) -> None:
        phase = plan.status.phase
        if phase != drain.status.phase and phase in (drains.COMPLETE, drains.ABORTED):
            self._results.labels(phase).inc()

    async def _do(self, action: Any, drain: DrainNode) -> None:
        match action:
            case Cordon(wanted):
                await self._cordon(drain, wanted=wanted)
            case ReservePlace(pod, name):
                await self._reserve(drain, pod, name)

    async def _cordon(self, drain: DrainNode, *, wanted: bool) -> None:
        name = drain.spec.node_name
        node: Document = decode_any(await self._client.raw("GET", NODES.path(name=name)))
        patch = cordon_patch(drain, node) if wanted else uncordon_patch(drain, node)
        if patch:
            patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
            await self._client.patch(NODES, name, patch, PatchType.MERGE)

    async def _reserve(self, drain: DrainNode, pod: Pod, name: str) -> None:
        metadata = pod.metadata
        document: Document = decode_any(await self._client.raw("GET", PODS.path(metadata.namespace, metadata.name)))
        if document["metadata"]["uid"] != metadata.uid:
            return
        ttl = drain.spec.ttl.total_seconds() if drain.spec.ttl else _DAY
        await self._client.create(RESERVATIONS, reservation_for(drain, name, document, ttl))


def _as_begun(drain: DrainNode) -> DrainNode:
    """The DrainNode with the node that it has cordoned, and with the policy by which it has."""
    noted = drain.metadata.annotations
    node = noted.get(DRAINED_NODE, drain.spec.node_name)
    try:
        policy = decode(noted[CORDONED_BY], CordonPolicy)
    except (KeyError, DecodeError):
        policy = drain.spec.cordon_policy
    return replace(drain, spec=replace(drain.spec, node_name=node, cordon_policy=policy))


def _drain_node_of(owned: Object) -> Iterable[str]:
    name = owned.metadata.labels.get(DRAIN_NODE)
    return (name,) if name else ()
