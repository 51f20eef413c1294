"""The controller of DrainNodes: gathers what there is, decides, and carries it out, one DrainNode at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import drain_node as drains
from koordinator.api.codec import DecodeError, decode, decode_any
from koordinator.api.document import Document
from koordinator.api.drain_node import CordonPolicy, DrainNode
from koordinator.api.kinds import DRAIN_NODES, NODES, POD_MIGRATION_JOBS, PODS, RESERVATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.descheduler.drain.cordon import cordon_patch, uncordon_patch
from koordinator.descheduler.drain.decision import decide
from koordinator.descheduler.drain.objects import reservation_for
from koordinator.descheduler.drain.plan import (
    CORDONED_BY,
    DRAIN_NODE,
    DRAINED_NODE,
    Action,
    Cordon,
    CreateJob,
    DeleteDrainNode,
    DeleteOwned,
    DrainEvent,
    DrainFacts,
    DrainPlan,
    ExtendReservation,
    PatchDrainNode,
    ReservePlace,
)
from koordinator.descheduler.drain.pod_rules import MakePolicy, PodRules
from koordinator.descheduler.intentions import intentions_for, merged
from koordinator.descheduler.migration.job_status import status_patch
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.reconciler import Reconcilers
from koordinator.model.label_selector import SelectorError

_PERIOD: Final = 3.0
_DEADLINE: Final = 120.0
_UNREADABLE: Final = 60.0
"""Seconds until a DrainNode whose selector cannot be read is looked at again: its time to live may have passed."""
_DAY: Final = 24 * 3600.0
_BY_DRAIN_NODE: Final = "drain node"
_ACTIVE: Final = ("", drains.PENDING, drains.RUNNING, drains.COMPLETE)


class DrainController:
    """Works while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        cluster: MigrationLister,
        make_policy: MakePolicy,
        scheduler_names: Sequence[str],
        recorder: EventRecorder,
        reconcilers: Reconcilers,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """``make_policy`` gives why MigrationController would not move a pod under a DrainNode's spec."""
        self._client = client
        self._cluster = cluster
        self._make_policy = make_policy
        self._scheduler_names = scheduler_names
        self._recorder = recorder
        self._clock = clock
        self._drains = informers.informer(DRAIN_NODES, absent_is_empty=True)
        self._nodes = informers.informer(NODES)
        cluster.reservations.add_index(_BY_DRAIN_NODE, _drain_node_of)
        cluster.job_informer.add_index(_BY_DRAIN_NODE, _drain_node_of)
        self._pods_gauge = metrics.gauge(
            "descheduler_drain_node_pods", "Pods of a DrainNode, by their phase", ("drain_node", "phase")
        )
        self._results = metrics.counter("descheduler_drain_nodes_total", "DrainNodes, by how they ended", ("result",))
        self._reconciler = reconcilers.make("drains", self.reconcile, self._names, deadline=_DEADLINE)
        self._add_handlers()

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards."""
        await self._reconciler.run()

    async def reconcile(self, name: str) -> float | None:
        """Bring a DrainNode one step further. Returns after how many seconds it has to be looked at again."""
        found = self._drains.get(name)
        if found is None:
            return None
        try:
            drain, plan = self._decide(found)
        except SelectorError as error:
            self._recorder.event(
                reference_to(DRAIN_NODES, found), "Warning", "InvalidPodSelector", "Drain", f"spec.podSelector: {error}"
            )
            return _UNREADABLE
        await self._carry_out(drain, plan)
        is_over = plan.status.phase == drains.ABORTED and not drain.spec.ttl
        return None if is_over and not plan.actions else _PERIOD

    async def intentions(self) -> list[str]:
        """What would be done about each DrainNode, with nothing done about it."""
        return [
            f"DrainNode {drain.metadata.name} of node {drain.spec.node_name}: {each}"
            for drain in self._drains.list()
            for each in await self._intentions_for(drain)
        ]

    async def _intentions_for(self, drain: DrainNode) -> list[str]:
        async def next_plan(drain: DrainNode) -> tuple[DrainNode, list[str]]:
            _, plan = self._decide(drain)
            for action in plan.actions:
                if isinstance(action, PatchDrainNode):
                    drain = merged(drain, action.patch)
            actions = [str(action) for action in plan.actions if not isinstance(action, PatchDrainNode)]
            return replace(drain, status=plan.status), actions

        try:
            return await intentions_for(drain, next_plan)
        except SelectorError as error:
            return [f"nothing, spec.podSelector is invalid: {error}"]

    def _decide(self, found: DrainNode) -> tuple[DrainNode, DrainPlan]:
        """The DrainNode as the decision sees it, and the plan. SelectorError for a selector that is none."""
        drain = _as_begun(found)
        is_renamed = found.spec.node_name != drain.spec.node_name
        facts = self._facts(drain, renamed_to=found.spec.node_name if is_renamed else "")
        rules = PodRules(drain.spec, self._scheduler_names, self._make_policy)
        return drain, decide(drain, facts, rules, self._clock.now())

    def _names(self) -> Iterable[str]:
        return [drain.metadata.name for drain in self._drains.list()]

    def _add_handlers(self) -> None:
        self._drains.add_handlers(
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
            for each in self._drains.list()
            if each.spec.node_name == drain.spec.node_name and each.status.phase in _ACTIVE
        ]
        oldest = min([*rivals, drain], key=_age)
        return oldest.metadata.name if oldest.metadata.name != drain.metadata.name else ""

    async def _carry_out(self, drain: DrainNode, plan: DrainPlan) -> None:
        for action in plan.actions:
            await self._take(action, drain)
        patch = status_patch(drain.status, plan.status)
        if patch:
            body = {"metadata": _version(drain), "status": patch}
            await self._client.patch(DRAIN_NODES, drain.metadata.name, body, PatchType.MERGE, subresource="status")
            self._count(drain, plan)
        for event in plan.events:
            self._record_event(drain, event)

    def _count(self, drain: DrainNode, plan: DrainPlan) -> None:
        phase = plan.status.phase
        if phase != drain.status.phase and phase in (drains.COMPLETE, drains.ABORTED):
            self._results.labels(phase).inc()

    def _record_event(self, drain: DrainNode, event: DrainEvent) -> None:
        self._recorder.event(reference_to(DRAIN_NODES, drain), event.type, event.reason, "Drain", event.note)

    async def _take(self, action: Action, drain: DrainNode) -> None:
        try:
            await self._do(action, drain)
        except ApiStatusError as error:
            # It was done before, by a look at the DrainNode that did not come to its end.
            if not (error.is_already_exists or error.is_not_found):
                raise

    async def _do(self, action: Action, drain: DrainNode) -> None:
        client = self._client
        match action:
            case Cordon(wanted):
                await self._cordon(drain, wanted=wanted)
            case PatchDrainNode(patch):
                body = {**patch, "metadata": {**patch.get("metadata", {}), **_version(drain)}}
                await client.patch(DRAIN_NODES, drain.metadata.name, body, PatchType.MERGE)
            case DeleteDrainNode():
                await client.delete(DRAIN_NODES, drain.metadata.name, uid=drain.metadata.uid)
            case ReservePlace(pod, name):
                await self._reserve(drain, pod, name)
            case ExtendReservation(name, ttl):
                await client.patch(RESERVATIONS, name, {"spec": {"ttl": f"{int(ttl)}s"}}, PatchType.MERGE)
            case CreateJob(document):
                await client.create(POD_MIGRATION_JOBS, document)
            case DeleteOwned(owned):
                kind: Kind[Any] = RESERVATIONS if isinstance(owned, Reservation) else POD_MIGRATION_JOBS
                await client.delete(kind, owned.metadata.name, uid=owned.metadata.uid)

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


def _age(drain: DrainNode) -> tuple[float, str]:
    created = drain.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0, drain.metadata.name


def _version(drain: DrainNode) -> dict[str, Any]:
    return {"uid": drain.metadata.uid, "resourceVersion": drain.metadata.resource_version}
